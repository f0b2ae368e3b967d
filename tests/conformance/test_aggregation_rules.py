"""What every aggregation rule owes, whoever wrote it: an entry of the registry is tested by being there."""

import inspect

import numpy as np
import pytest

from qccf.learning.aggregation.registry import AGGREGATION_RULES
from qccf.learning.server.average import Average
from qccf.learning.server.registry import SERVER_OPTIMIZERS
from qccf.rounds.aggregation import Aggregator
from qccf.runtimes.simulator import simulate
from tests.conformance.entries import entries
from tests.helpers.arrivals import made_arrivals
from tests.helpers.tiny import tiny_dataset, tiny_scenario

NAMES = entries(AGGREGATION_RULES)


@pytest.fixture(params=NAMES)
def rule(request: pytest.FixtureRequest):
    return AGGREGATION_RULES.build(request.param)


def changes(count: int = 7, seed: int = 0) -> np.ndarray:
    return 1.0 + 0.1 * np.random.default_rng(seed).normal(size=(count, 20))


def test_states_are_named_arrays_that_a_checkpoint_can_hold(rule) -> None:
    state = rule.init(7)
    for seed in range(3):
        for name, array in state.items():
            assert isinstance(name, str)
            assert array.dtype == np.float64
        combined, state = rule.combine(state, made_arrivals(changes(seed=seed)))
        assert combined.model.shape == (20,)
        assert combined.kept.shape == (7,)


def test_it_is_a_function_of_state_and_updates_and_changes_neither(rule) -> None:
    _, state = rule.combine(rule.init(7), made_arrivals(changes()))
    copies, given = {name: array.copy() for name, array in state.items()}, made_arrivals(changes(seed=1))
    first, after = rule.combine(state, given)
    again, _ = rule.combine(state, given)
    assert first.model.tobytes() == again.model.tobytes()
    assert set(after) == set(state)
    for name, array in copies.items():
        np.testing.assert_array_equal(array, state[name])
    np.testing.assert_array_equal(list(given.changes()), list(made_arrivals(changes(seed=1)).changes()))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_where_all_agree_the_aggregate_is_what_they_say(rule, count: int) -> None:
    combined, _ = rule.combine(rule.init(count), made_arrivals(np.tile(changes(1), (count, 1))))
    np.testing.assert_allclose(combined.model, changes(1)[0], rtol=1e-6)
    assert combined.mean_norm_sq() == pytest.approx(np.square(changes(1)).sum(), rel=1e-5)


@pytest.mark.parametrize("factor", [1e2, 1e6, 1e30, -1e2, -1e6])
@pytest.mark.parametrize("buffers", [0, 5])
def test_one_client_of_seven_cannot_sink_the_model(rule, factor: float, buffers: int) -> None:
    hostile = changes()
    hostile[3] *= factor
    combined, _ = rule.combine(rule.init(7), made_arrivals(hostile, buffers=buffers))
    assert np.linalg.norm(combined.model - 1.0) < 1.5 * np.sqrt(20)
    assert combined.mean_norm_sq() < 10.0 * (20 - buffers)


@pytest.mark.parametrize("optimizer", list(SERVER_OPTIMIZERS))
def test_it_works_in_front_of_every_server_optimizer(rule, optimizer: str) -> None:
    hostile = changes()
    hostile[0] *= 1e6
    aggregator = Aggregator(rule, SERVER_OPTIMIZERS.build(optimizer))
    made = aggregator.next_model(*aggregator.init(7, 15), made_arrivals(hostile, buffers=5))
    assert np.abs(made.model).max() < 10.0


def test_blocks_of_values_give_the_same(rule, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = rule.combine(rule.init(7), made_arrivals(changes(), buffers=5))
    monkeypatch.setattr("qccf.rounds.aggregation.BLOCK_BYTES", 8 * 7 * 6)
    parts, _ = rule.combine(rule.init(7), made_arrivals(changes(), buffers=5))
    np.testing.assert_allclose(whole.model, parts.model, rtol=1e-12)
    np.testing.assert_array_equal(whole.kept, parts.kept)


def test_an_empty_round_changes_nothing(rule) -> None:
    arrivals = made_arrivals(changes()[:0])
    state = rule.init(7)
    made = Aggregator(rule, Average()).next_model(state, {}, arrivals)
    assert made.model is arrivals.previous
    assert made.rule_state is state


@pytest.mark.parametrize("name", NAMES)
def test_it_trains(name: str) -> None:
    run = simulate(tiny_scenario(f"aggregation.rule={name}", "control.energy_weight=0.05"), dataset=tiny_dataset())
    losses = run.rounds["test_loss"]
    assert losses.iloc[-1] < losses.iloc[0]


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(AGGREGATION_RULES.find(name))
