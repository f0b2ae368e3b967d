"""The average of global models: its weights, what it changes in a run, and that a resumed run has the same."""

from pathlib import Path

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.rounds.averaging import ModelAverage, averaged
from qccf.rounds.round import run_round
from qccf.rounds.setup import build_average
from qccf.runtimes.simulator import simulate
from tests.helpers.checkpoints import checkpoint_arrays
from tests.helpers.tiny import tiny_dataset, tiny_scenario
from tests.runtimes.test_resume import assert_same, run_to_the_end, stopped_after


def test_a_model_of_k_rounds_ago_weighs_memory_to_the_k() -> None:
    """(0.25·8 + 0.5·2 + 1·6)/(0.25 + 0.5 + 1) = 9/1.75."""
    one = ModelAverage(0.5)
    state = one.init(2)
    for value in (8.0, 2.0, 6.0):
        state = one.added(state, np.array([value, -value], dtype=np.float32))
    found = averaged(state, np.zeros(2, dtype=np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [9.0 / 1.75, -9.0 / 1.75], rtol=1e-7)


def test_the_average_of_one_model_is_that_model_and_before_it_the_given_one() -> None:
    one, model = ModelAverage(0.9), np.array([0.1, -0.3], dtype=np.float32)
    assert averaged(one.init(2), model) is model
    assert averaged({}, model) is model
    np.testing.assert_array_equal(averaged(one.added(one.init(2), model), np.zeros(2, dtype=np.float32)), model)


def both(monkeypatch: pytest.MonkeyPatch, *settings: str, rounds: int = 5):
    """A run without averaging, the average of its models by hand, and the run that averages."""
    models = []

    def kept(*given):
        state = run_round(*given)
        models.append(state.weights)
        return state

    monkeypatch.setattr("qccf.runtimes.simulator.run_round", kept)
    last = simulate(tiny_scenario(*settings, f"federation.rounds={rounds}"), dataset=tiny_dataset())
    expected = np.average(np.stack(models), axis=0, weights=0.7 ** np.arange(rounds - 1, -1, -1.0))
    settings = (*settings, f"federation.rounds={rounds}", "server.averaging=0.7")
    return last, expected, simulate(tiny_scenario(*settings), dataset=tiny_dataset())


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("codec.name=update+entropy", "server.downlink=update+entropy"),
        ("learning.model=tests.helpers.own_models:Normed", "learning.num_parameters=0"),
    ],
    ids=["plain", "coded downlink", "buffers"],
)
def test_a_run_trains_the_same_and_delivers_the_average(monkeypatch, settings: tuple[str, ...]) -> None:
    """With a coded downlink models are averaged as clients have them; buffers are averaged as well."""
    last, expected, mean = both(monkeypatch, *settings)
    np.testing.assert_allclose(mean.weights, expected, rtol=1e-5, atol=1e-7)
    assert not np.array_equal(mean.weights, last.weights)
    assert mean.rounds["energy_j"].tolist() == last.rounds["energy_j"].tolist(), "clients notice nothing"
    assert mean.rounds["train_loss"].tolist() == last.rounds["train_loss"].tolist()
    losses = mean.rounds["test_loss"], last.rounds["test_loss"]
    assert losses[0][0] == losses[1][0], "the average of one model"
    assert (losses[0][1:] != losses[1][1:]).all(), "the average is evaluated in every round"


def test_an_empty_round_adds_nothing(tmp_path: Path) -> None:
    settings = ("server.averaging=0.5", "policy.name=tests.helpers.tiny:Nobody", "federation.rounds=2")
    run = simulate(tiny_scenario(*settings), dataset=tiny_dataset(), out=tmp_path)
    saved = checkpoint_arrays(tmp_path / "checkpoints")
    assert saved["average/weight"] == 0.0
    np.testing.assert_array_equal(run.weights, saved["weights"])


def test_a_run_resumes_with_its_average(tmp_path: Path) -> None:
    settings = ("server.averaging=0.8", "server.optimizer=fedavgm")
    stopped_after(4, tmp_path, *settings)
    assert_same(run_to_the_end("qccf", tmp_path, *settings), run_to_the_end("qccf", None, *settings))


def test_zero_is_the_last_model_and_one_is_refused() -> None:
    assert build_average(tiny_scenario()) is None
    assert build_average(tiny_scenario("server.averaging=0.3")) == ModelAverage(0.3)
    with pytest.raises(ConfigError, match=r"server\.averaging"):
        tiny_scenario("server.averaging=1")


def test_an_extended_run_is_the_longer_run(tmp_path: Path) -> None:
    """Also where the sum of weights is rounded above its limit, as for 0.09 from round 17 on."""
    settings = ("server.averaging=0.09",)
    simulate(tiny_scenario(*settings, "federation.rounds=20"), dataset=tiny_dataset(), out=tmp_path)
    longer = tiny_scenario(*settings, "federation.rounds=22")
    extended = simulate(longer, dataset=tiny_dataset(), out=tmp_path, extend=True)
    assert_same(extended, simulate(longer, dataset=tiny_dataset()))


def test_an_interrupted_run_delivers_the_average_so_far() -> None:
    def interrupt(event) -> None:
        if len(event.ledger) == 3:
            raise KeyboardInterrupt

    settings = ("server.averaging=0.7",)
    stopped = simulate(tiny_scenario(*settings), dataset=tiny_dataset(), callbacks=[interrupt])
    whole = simulate(tiny_scenario(*settings, "federation.rounds=3"), dataset=tiny_dataset())
    np.testing.assert_array_equal(stopped.weights, whole.weights)
