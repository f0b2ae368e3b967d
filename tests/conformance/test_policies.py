"""Every policy of the table, and the example of a user's own, held to one protocol."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from examples.custom_policy import BestLinks
from qccf.core.contracts import MAX_NUM_BITS
from qccf.core.errors import ConfigError, PolicyError
from qccf.core.streams import stream
from qccf.devices.cost import settle
from qccf.policies.registry import POLICIES
from qccf.rounds.setup import build_policy
from qccf.rounds.sources import StatisticsModel
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan, plan_run
from qccf.settings.loading import load_scenario
from tests.conformance.entries import entries

SETTINGS = {
    "default": [],
    "fewer-channels": ["radio.num_channels=4"],
    "more-channels": ["radio.num_channels=13"],
    "weak-links": ["radio.gain_db=-15"],
    "one-client": ["federation.num_clients=1"],
}
NAMES = entries(POLICIES, "examples.custom_policy:BestLinks", "examples.growing_share:GrowingShare")


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_protocol(name: str, setting: str) -> None:
    scenario = load_scenario("femnist", [*SETTINGS[setting], "federation.rounds=20"])
    world, constants = build_world(scenario, 5), scenario.constants()
    model = StatisticsModel(scenario, world.dataset_sizes)
    policy = build_policy(name, scenario)
    state = policy.init(model.known(0))
    for n in range(6):
        observation, losses = world.observe(n, model.known(n)), model.losses(n)
        assert json.loads(json.dumps(state)) == state, "the state must survive JSON"
        before = copy.deepcopy(state)
        decision = policy.decide(state, observation, stream(0, "policy", n))
        again = policy.decide(json.loads(json.dumps(state)), observation, stream(0, "policy", n))
        assert state == before, "decide must not change the state"
        np.testing.assert_array_equal(decision.channels, again.channels)
        np.testing.assert_array_equal(decision.num_bits, again.num_bits)
        np.testing.assert_array_equal(decision.frequencies_hz, again.frequencies_hz)

        on = decision.participates
        used = decision.channels[on]
        assert decision.channels.shape == decision.num_bits.shape == decision.frequencies_hz.shape == on.shape
        assert len(set(used.tolist())) == len(used), "C3: a channel has one client"
        assert ((used >= 0) & (used < observation.num_channels)).all()
        assert ((decision.num_bits[on] >= 1) & (decision.num_bits[on] <= MAX_NUM_BITS)).all()
        assert (decision.num_bits[~on] == 0).all()
        assert (decision.frequencies_hz[~on] == 0).all()
        slow, fast = constants.frequency_min_hz, constants.frequency_max_hz
        assert ((decision.frequencies_hz[on] >= slow) & (decision.frequencies_hz[on] <= fast)).all()

        outcome = replace(settle(decision, observation, constants), losses=losses)
        if name not in ("principle", "no-quantization", "examples.custom_policy:BestLinks"):
            assert not outcome.missed.any(), "a policy that knows the deadline keeps it"
        state = policy.update(state, decision, outcome)


def test_all_policies_meet_the_same_worlds() -> None:
    scenario = load_scenario("quick", ["federation.rounds=3"])
    runs = plan(scenario, list(POLICIES), 2)
    by_seed = {seed: [run for run in runs if run.seed == seed] for seed in (0, 1)}
    for same in by_seed.values():
        rates: dict[tuple[int, int, int], float] = {}
        shared = 0
        for run in same:
            np.testing.assert_array_equal(run.dataset_sizes, same[0].dataset_sizes)
            uploads = run.uploads
            for *pair, rate_bps in zip(
                uploads["round"], uploads["client"], uploads["channel"], uploads["rate_bps"], strict=False
            ):
                shared += tuple(pair) in rates
                assert rates.setdefault(tuple(pair), rate_bps) == rate_bps
        assert shared > 0, "some policies must have used the same client and channel in the same round"
    assert not np.array_equal(by_seed[0][0].dataset_sizes, by_seed[1][0].dataset_sizes)


def test_the_same_plan_twice_is_the_same() -> None:
    scenario = load_scenario(
        "quick",
        ["federation.rounds=5", "control.form=paper", "control.solver=genetic", "control.genetic.generations=5"],
    )
    first, second = (plan_run(build_world(scenario, 3), "qccf") for _ in range(2))
    np.testing.assert_array_equal(first.energy_j, second.energy_j)
    np.testing.assert_array_equal(first.by_round("num_bits"), second.by_round("num_bits"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nonsense", "is not one of qccf"),
        ("no.such.module:Thing", "cannot be loaded"),
        ("json:NoSuchClass", "cannot be loaded"),
        ("json:JSONDecoder", "has no init"),
        ("..x:Y", "cannot be loaded"),
        ("tests.helpers.broken_module:X", "ZeroDivisionError"),
    ],
)
def test_a_policy_that_is_none_gets_a_sentence(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_policy(name, load_scenario("quick"))


def test_options_reach_a_users_policy_and_wrong_ones_are_refused() -> None:
    scenario = load_scenario("quick", ["policy.options={num_bits = 7}"])
    world = build_world(scenario, 0)
    run = plan_run(world, "examples.custom_policy:BestLinks")
    assert set(run.uploads["num_bits"]) == {7}
    with pytest.raises(ConfigError, match="unexpected keyword argument 'colour'"):
        build_policy("examples.custom_policy:BestLinks", load_scenario("quick", ["policy.options={colour = 1}"]))


def test_defaults_of_the_policies_are_the_configs() -> None:
    """A policy built by hand and one built from an empty config decide alike."""
    scenario = load_scenario("femnist")
    for name, factory in POLICIES.items():
        by_config = vars(build_policy(name, scenario))
        by_hand = vars(factory(scenario.constants(), rounds=scenario.federation.rounds))
        assert by_config == by_hand


def wrong(**changes) -> type:
    """A policy whose decision is sound but for the changes."""

    class Wrong(BestLinks):
        def decide(self, state, observation, rng):
            if "returns" in changes:
                return changes["returns"]
            return replace(super().decide(state, observation, rng), **{k: v(observation) for k, v in changes.items()})

    return Wrong


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (wrong(channels=lambda o: np.zeros(o.num_clients, dtype=int)), "more than one client"),
        (wrong(channels=lambda o: np.arange(o.num_clients) + 5), "0 to 9"),
        (wrong(channels=lambda _: np.arange(3)), "array of 10 integers"),
        (wrong(channels=lambda _: list(range(10))), "array of 10 integers"),
        (wrong(num_bits=lambda o: np.zeros(o.num_clients, dtype=int)), "1 to 32"),
        (wrong(num_bits=lambda o: np.full(o.num_clients, 3.5)), "array of 10 integers"),
        (wrong(frequencies_hz=lambda o: np.full(o.num_clients, 1e12)), "between 2e[+]08 and 1e[+]09"),
        (wrong(frequencies_hz=lambda o: np.full(o.num_clients, np.nan)), "between 2e[+]08 and 1e[+]09"),
        (wrong(returns=None), "returned NoneType, not a Decision"),
    ],
)
def test_a_decision_that_is_none_is_refused(monkeypatch, policy: type, words: str) -> None:
    monkeypatch.setitem(POLICIES, "wrong", policy)
    scenario = load_scenario("quick", ["federation.rounds=2"])
    with pytest.raises(PolicyError, match=words):
        plan_run(build_world(scenario, 0), "wrong")


def test_a_state_that_is_none_is_refused(monkeypatch) -> None:
    class Forgetful(BestLinks):
        def update(self, state, decision, outcome):
            return None

    monkeypatch.setitem(POLICIES, "wrong", Forgetful)
    scenario = load_scenario("quick", ["federation.rounds=2"])
    with pytest.raises(PolicyError, match="a state is a dict"):
        plan_run(build_world(scenario, 0), "wrong")
