"""Aggregation and the server optimizer behind it: by hand, with every kind of codec."""

import numpy as np
import pytest

from qccf.core.contracts import MAX_NUM_BITS, Decision
from qccf.core.errors import AggregationError, DivergedError, ServerOptimizerError
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
    made = Aggregator(Mean(), Average()).next_model({}, state, Arrivals({}, np.ones(3), decision(), codec, PREVIOUS, 2))
    assert made.kept.shape == (0,)


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


def test_the_usual_error_of_an_upload_is_the_median_of_all_clients_at_its_bits() -> None:
    """Errors of 10, 20 and 90 with one bit, and a half, a third, … of that with more."""
    codec, uploads = both_uploads("update")
    errors = np.array([10.0, 90.0, 20.0])[:, None] / np.arange(1.0, MAX_NUM_BITS + 1.0)
    bits = Decision(np.array([0, -1, 1]), np.array([1, 0, 4]), np.array([1e9, 0.0, 1e9]))
    arrivals = Arrivals(uploads, SIZES, bits, codec, PREVIOUS, 2, errors)
    assert arrivals.quantization_errors.tolist() == [20.0, 5.0]
    assert Arrivals(uploads, SIZES, bits, codec, PREVIOUS, 2).quantization_errors.tolist() == [0.0, 0.0], "unknown"
    raw = Arrivals(uploads, SIZES, decision(raw=True), codec, PREVIOUS, 2, errors)
    assert raw.quantization_errors.tolist() == [0.0, 0.0]
    assert arrivals.relative_sizes.tolist() == [1.0, 3.0], "in medians of 100 samples"


def test_a_mean_of_shrunk_changes_has_a_factor_for_parameters_and_one_for_buffers() -> None:
    """Changes (4, 0) and (0, 4) with shares of a quarter and three quarters; the second value is a buffer."""
    codec, uploads = both_uploads("update", raw=True)
    arrivals = Arrivals(uploads, SIZES, decision(raw=True), codec, PREVIOUS, 1)
    shrunk = arrivals.shrunk_mean(np.array([0.5, 0.25]), np.array([0.1, 0.2]))
    np.testing.assert_allclose(shrunk, [9.0 + 0.25 * 0.5 * 4.0, -9.0 + 0.75 * 0.2 * 4.0])
    assert [one.tolist() for one in arrivals.norms()] == [[4.0, 0.0], [0.0, 4.0]]
    assert arrivals.plus_previous(np.array([1.0, 2.0])).tolist() == [10.0, -7.0]


@pytest.mark.parametrize(("room", "widths"), [(16, [1, 1]), (31, [1, 1]), (32, [2]), (1, [1, 1])])
def test_blocks_hold_as_many_values_as_fit_and_at_least_one(
    room: int, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients with two values of eight bytes."""
    monkeypatch.setattr("qccf.rounds.aggregation.BLOCK_BYTES", room)
    codec, uploads = both_uploads("update", raw=True)
    parts = list(Arrivals(uploads, SIZES, decision(raw=True), codec, PREVIOUS, 2).blocks())
    assert [block.shape for _, block in parts] == [(2, width) for width in widths]
    assert [part.start for part, _ in parts] == [0, 1][: len(parts)]
    np.testing.assert_array_equal(np.concatenate([block for _, block in parts], axis=1), [[4.0, 0.0], [0.0, 4.0]])


@pytest.mark.parametrize("combined", [None, (np.zeros(2), 2), (np.zeros(3), 2), (np.zeros(2), 1)])
def test_an_aggregate_has_all_values_and_a_verdict_on_each_client(combined) -> None:
    codec, uploads = both_uploads("update")
    arrivals = Arrivals(uploads, SIZES, decision(), codec, PREVIOUS, 2)
    made = None if combined is None else Combined(combined[0], np.ones(combined[1]), lambda: 1.0)
    if made is not None and (len(made.model), len(made.kept)) == (2, 2):
        assert checked_combined(made, arrivals, Mean()) is made
    else:
        with pytest.raises(AggregationError, match="made no model of 2 values with a verdict on each of 2 clients"):
            checked_combined(made, arrivals, Mean())


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
