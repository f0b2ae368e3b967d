"""Aggregation and the server optimizer behind it: by hand, with every kind of codec."""

import numpy as np
import pytest

from qccf.core.errors import DivergedError, ServerOptimizerError
from qccf.learning.aggregation.mean import Mean
from qccf.learning.aggregation.protocol import Combined
from qccf.learning.server.average import Average
from qccf.learning.server.fedexp import FedExP
from qccf.rounds.aggregation import Aggregator, Arrivals, checked_combined, checked_model
from tests.rounds.test_uplink import PREVIOUS, both_uploads, decision

SIZES = np.array([100.0, 50.0, 300.0])


def averaged(uploads, codec, sizes=SIZES, raw: bool = False) -> np.ndarray:
    return aggregated(Average(), {}, Arrivals(uploads, sizes, decision(raw), codec, PREVIOUS, 2))[0]


def aggregated(optimizer, state, arrivals):
    """The next model and the state of the optimizer behind the plain mean."""
    made = Aggregator(Mean(), optimizer).next_model(Mean().init(3), state, arrivals)
    return made.model, made.optimizer_state


@pytest.mark.parametrize("name", ["model", "model+entropy", "block"])
def test_models_are_averaged_by_data(name: str) -> None:
    codec, uploads = both_uploads(name)
    np.testing.assert_allclose(averaged(uploads, codec), [0.25, 1.5], atol=1e-4)
    np.testing.assert_allclose(averaged({2: uploads[2]}, codec), [0.0, 2.0], atol=1e-4)


@pytest.mark.parametrize("name", ["update", "update+entropy", "update+block"])
def test_updates_are_averaged_and_added(name: str) -> None:
    codec, uploads = both_uploads(name)
    np.testing.assert_allclose(averaged(uploads, codec), [10.0, -6.0], atol=1e-4)


def test_raw_models_replace_the_global_one_whatever_the_codec() -> None:
    codec, uploads = both_uploads("update", raw=True)
    assert uploads[0].size_bits == 64
    assert uploads[0].forecast is None
    assert averaged(uploads, codec, np.array([100.0, 50.0, 100.0]), raw=True).tolist() == [11.0, -7.0]


def test_an_empty_round_keeps_the_model_and_the_optimizer() -> None:
    codec, _ = both_uploads("update")
    state = {"velocity": np.ones(2)}
    model, after = aggregated(Average(), state, Arrivals({}, np.ones(3), decision(), codec, PREVIOUS, 2))
    assert model is PREVIOUS
    assert after is state


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("name", ["model", "update", "update+entropy"])
def test_changes_are_those_of_each_client_in_order(name: str, raw: bool) -> None:
    codec, uploads = both_uploads(name, raw)
    arrivals = Arrivals(dict(reversed(uploads.items())), SIZES, decision(raw), codec, PREVIOUS, 2)
    expected = [[4.0, 0.0], [0.0, 4.0]] if codec.relative else [[-8.0, 9.0], [-9.0, 11.0]]
    np.testing.assert_allclose(list(arrivals.changes()), expected, atol=1e-4)
    assert arrivals.shares.tolist() == [0.25, 0.75]
    mean = PREVIOUS + arrivals.shares @ np.array(list(arrivals.changes()))
    np.testing.assert_allclose(arrivals.mean(), mean, atol=1e-5)


def test_buffers_are_averaged_and_the_optimizer_does_not_see_them() -> None:
    """FedExP doubles the first value's change: w·‖Δ_i‖² = 16·0.25, ‖Δ‖² = 1, so the factor is 4/2 = 2."""
    codec, uploads = both_uploads("update", raw=True)
    arrivals = Arrivals(uploads, SIZES, decision(raw=True), codec, PREVIOUS, 1)
    model, _ = aggregated(FedExP(epsilon=1e-12), {}, arrivals)
    np.testing.assert_allclose(model, [9.0 + 2.0 * 1.0, -6.0], atol=1e-5)


def test_the_largest_value_of_a_model_is_that_of_a_32_bit_float() -> None:
    codec, uploads = both_uploads("update")
    arrivals, largest = Arrivals(uploads, SIZES, decision(), codec, PREVIOUS, 2), float(np.finfo(np.float32).max)
    for value in (largest, -largest):
        combined = Combined(np.array([0.0, value]), np.ones(2), lambda: 1.0)
        assert checked_combined(combined, arrivals, Mean()) is combined
        assert checked_model(combined.model, 2, Average()) is combined.model
    for value in (np.nextafter(largest, np.inf), -np.inf, np.nan):
        beyond = Combined(np.array([0.0, value]), np.ones(2), lambda: 1.0)
        with pytest.raises(DivergedError, match="aggregation rule 'Mean' made values that are not finite"):
            checked_combined(beyond, arrivals, Mean())
        with pytest.raises(DivergedError, match="server optimizer 'Average' made values that are not finite"):
            checked_model(beyond.model, 2, Average())


class Broken:
    def __init__(self, model, state=None) -> None:
        self.result = model, {} if state is None else state

    def init(self, num_parameters):
        return {}

    def step(self, state, aggregate):
        return self.result


@pytest.mark.parametrize(
    ("optimizer", "error", "words"),
    [
        (Broken(np.zeros(3)), ServerOptimizerError, "made no model of 2 values"),
        (Broken(None), ServerOptimizerError, "made no model of 2 values"),
        (Broken(np.array([1.0, np.nan])), DivergedError, "not finite: lower its learning rate"),
        (Broken(np.array([1.0, 1e39])), DivergedError, "not finite"),
        (Broken(np.zeros(2), {"m": 1.0}), ServerOptimizerError, "mapping of names to arrays of 64-bit floats"),
        (Broken(np.zeros(2), [1.0]), ServerOptimizerError, "mapping of names"),
    ],
)
def test_a_faulty_optimizer_gets_a_sentence(optimizer, error, words: str) -> None:
    codec, uploads = both_uploads("update")
    with pytest.raises(error, match=words):
        aggregated(optimizer, {}, Arrivals(uploads, SIZES, decision(), codec, PREVIOUS, 2))
