"""What every server optimizer owes, whoever wrote it: an entry of the registry is tested by being there."""

import inspect

import numpy as np
import pytest

from qccf.learning.server.protocol import Aggregate
from qccf.learning.server.registry import SERVER_OPTIMIZERS
from qccf.runtimes.simulator import simulate
from tests.conformance.entries import entries
from tests.helpers.tiny import tiny_dataset, tiny_scenario

NAMES = entries(SERVER_OPTIMIZERS)


def aggregate(seed: int = 0) -> Aggregate:
    rng = np.random.default_rng(seed)
    previous = rng.normal(size=50)
    return Aggregate(previous, previous + 0.1 * rng.normal(size=50), lambda: 0.7)


@pytest.fixture(params=NAMES)
def optimizer(request: pytest.FixtureRequest):
    return SERVER_OPTIMIZERS.build(request.param)


def test_states_are_named_arrays_that_a_checkpoint_can_hold(optimizer) -> None:
    state = optimizer.init(50)
    for seed in range(3):
        for name, array in state.items():
            assert isinstance(name, str)
            assert array.dtype == np.float64
        model, state = optimizer.step(state, aggregate(seed))
        assert model.shape == (50,)
        assert np.isfinite(model).all()


def test_a_step_is_a_function_of_state_and_aggregate_and_changes_neither(optimizer) -> None:
    state, given = optimizer.init(50), aggregate()
    _, state = optimizer.step(state, given)
    copies = {name: array.copy() for name, array in state.items()}
    first, after = optimizer.step(state, aggregate(1))
    again, _ = optimizer.step(state, aggregate(1))
    assert first.tobytes() == again.tobytes()
    assert set(after) == set(state)
    for name, array in copies.items():
        np.testing.assert_array_equal(array, state[name])
    np.testing.assert_array_equal(given.average, aggregate().average)
    np.testing.assert_array_equal(given.previous, aggregate().previous)


def test_a_step_goes_where_the_clients_went(optimizer) -> None:
    given = aggregate()
    model, _ = optimizer.step(optimizer.init(50), given)
    assert float(np.dot(model - given.previous, given.change)) > 0.0


def test_where_nobody_moves_the_model_stays(optimizer) -> None:
    still = Aggregate(np.ones(50), np.ones(50), lambda: 0.0)
    model, _ = optimizer.step(optimizer.init(50), still)
    np.testing.assert_allclose(model, np.ones(50))


@pytest.mark.parametrize("name", NAMES)
def test_it_trains(name: str) -> None:
    run = simulate(tiny_scenario(f"server.optimizer={name}", "codec.name=update+entropy"), dataset=tiny_dataset())
    losses = run.rounds["test_loss"]
    assert losses.iloc[-1] < losses.iloc[0]


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(SERVER_OPTIMIZERS.find(name))
