"""The baselines by hand."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.control.paper_form import PaperOptions
from qccf.core.contracts import Decision, Observation, Statistics
from qccf.core.errors import ConfigError
from qccf.devices.cost import settle
from qccf.policies.channel_allocate import ChannelAllocate
from qccf.policies.fixed_bits import FixedBits
from qccf.policies.no_quantization import NoQuantization
from qccf.policies.principle import Principle, spread_level
from qccf.policies.qccf import Qccf
from qccf.policies.same_size import SameSize
from qccf.rounds.setup import build_policy
from qccf.settings.loading import load_scenario
from support.problems import CONSTANTS, typical_problem

RNG = np.random.default_rng(0)


def observation(rates: list[list[float]], *sizes: float) -> Observation:
    n = len(rates)
    ones = np.ones(n)
    return Observation(np.array(rates), Statistics(np.array(sizes or [1200.0] * n), ones, ones, 0.4 * ones))


def test_no_quantization_takes_the_best_total_rate_and_is_late() -> None:
    seen = observation([[9e7, 8e7], [8.5e7, 2e7], [3e7, 3e7]])
    policy = NoQuantization(CONSTANTS, rounds=10)
    decision = policy.decide(policy.init(seen.statistics), seen, RNG)
    assert decision.channels.tolist() == [1, 0, -1]
    assert decision.num_bits.tolist() == [32, 32, 0]
    assert decision.frequencies_hz.tolist() == [2e8, 2e8, 0.0]
    outcome = settle(decision, seen, CONSTANTS)
    assert outcome.missed.tolist() == [True, True, False]
    assert outcome.arrived.tolist() == [True, True, False]


def test_no_quantization_can_be_held_to_the_deadline() -> None:
    seen = observation([[9e7, 8e7], [7.9e6 / 0.012, 2e7]])
    policy = NoQuantization(CONSTANTS, rounds=10, enforce_deadline=True)
    decision = policy.decide({}, seen, RNG)
    assert decision.channels.tolist() == [-1, 0]
    assert not settle(decision, seen, CONSTANTS).missed.any()
    assert decision.frequencies_hz[1] == pytest.approx(2.4e6 / (0.02 - 32 * 246_590 / (7.9e6 / 0.012)))


def test_channel_allocate_maximises_bits_then_slows_down() -> None:
    """17.6 ms are left at 1 GHz. 1e8 b/s: 1.76e6 bits, less 246,622, over 246,590 is 6.13; 7e7 b/s: 3.99."""
    seen = observation([[1e8, 7e7], [1e8, 3e7]])
    policy = ChannelAllocate(CONSTANTS, rounds=10)
    decision = policy.decide({}, seen, RNG)
    assert decision.channels.tolist() == [1, 0]
    assert decision.num_bits.tolist() == [3, 6]
    upload_s = (246_590 * np.array([4, 7]) + 32) / np.array([7e7, 1e8])
    np.testing.assert_allclose(decision.frequencies_hz, 2.4e6 / (0.02 - upload_s))
    assert not settle(decision, seen, CONSTANTS).missed.any()


def test_channel_allocate_breaks_ties_by_rate() -> None:
    """Both ways give 4 + 4 bits; the second has the faster links."""
    seen = observation([[7.2e7, 8.0e7], [8.0e7, 7.2e7]])
    assert ChannelAllocate(CONSTANTS, rounds=10).decide({}, seen, RNG).num_bits.tolist() == [4, 4]
    assert ChannelAllocate(CONSTANTS, rounds=10).decide({}, seen, RNG).channels.tolist() == [1, 0]


def test_channel_allocate_fits_exactly_as_many_bits_as_fit() -> None:
    rng = np.random.default_rng(1)
    policy = ChannelAllocate(CONSTANTS, rounds=10)
    for _ in range(50):
        seen = observation([[rate] for rate in rng.uniform(3e7, 3e8, 1)], rng.uniform(300, 3000))
        decision = policy.decide({}, seen, RNG)
        if not decision.participates[0]:
            continue
        assert not settle(decision, seen, CONSTANTS).missed[0]
        more = replace(decision, num_bits=decision.num_bits + 1, frequencies_hz=np.array([1e9]))
        assert settle(more, seen, CONSTANTS).missed[0]


def test_spread_level_keeps_equal_clients_equal_and_follows_the_data() -> None:
    assert spread_level(5, np.full(10, 0.1)).tolist() == [5.0] * 10
    weights = np.array([0.05, 0.1, 0.15, 0.3, 0.4])
    levels = spread_level(6, weights)
    assert (np.diff(levels) >= 0).all()
    a = (weights ** (2 / 3)).sum()
    b = (weights**2 / 36).sum()
    np.testing.assert_array_equal(levels, np.maximum(1, np.round(np.sqrt(a / b) * weights ** (2 / 3))))
    assert spread_level(1, np.array([0.01, 0.99])).min() == 1.0


def rounds_of(policy: Principle, losses: list[float]) -> list[int]:
    seen = observation([[1e9], [1e9]], 1000.0, 1000.0)
    state = policy.init(seen.statistics)
    levels = []
    for loss in losses:
        decision = policy.decide(state, seen, RNG)
        outcome = replace(settle(decision, seen, CONSTANTS), losses=np.full(2, loss))
        state = policy.update(state, decision, outcome)
        levels.append(state["level"])
    return levels


def test_principle_rises_only_when_the_loss_stalls_and_then_waits() -> None:
    policy = Principle(CONSTANTS, rounds=40)
    assert policy.patience == 4
    assert rounds_of(policy, list(np.linspace(4.0, 1.0, 12))) == [3] * 12
    assert rounds_of(policy, [1.0] * 12) == [3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6]


def test_principle_as_published_doubles_its_intervals_up_to_a_limit() -> None:
    policy = Principle(CONSTANTS, rounds=40, form="published", most_intervals=6)
    assert rounds_of(policy, [1.0] * 17) == [1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6]
    seen = observation([[1e9, 1e9], [1e9, 1e9]])
    decision = policy.decide({**policy.init(seen.statistics), "level": 6}, seen, RNG)
    assert decision.num_bits.tolist() == [3, 3], "6 intervals need 3 bits, which have 7"


def test_principle_smooths_less_in_short_runs() -> None:
    """φ·(1 - ψ) is 5, as with the authors' φ = 50 and ψ = 0.9 in 500 rounds."""
    for rounds, smoothing in ((500, 0.9), (1000, 0.95), (100, 0.5), (60, 1.0 / 6.0), (40, 0.0), (5, 0.0)):
        assert Principle(CONSTANTS, rounds=rounds).smoothing == pytest.approx(smoothing)
    assert Principle(CONSTANTS, rounds=60, smoothing=0.9).smoothing == 0.9
    falls_then_stalls = [*np.linspace(4.0, 1.0, 20), *[1.0] * 40]
    assert rounds_of(Principle(CONSTANTS, rounds=60), falls_then_stalls)[-1] > 5
    assert rounds_of(Principle(CONSTANTS, rounds=60, smoothing=0.9), falls_then_stalls)[-1] == 3


def test_principle_does_not_know_the_deadline() -> None:
    seen = observation([[2e8, 2e8], [4e7, 4e7]], 1200.0, 1200.0)
    policy = Principle(CONSTANTS, rounds=40, initial_bits=6)
    decision = policy.decide(policy.init(seen.statistics), seen, RNG)
    outcome = settle(decision, seen, CONSTANTS)
    assert decision.num_bits.tolist() == [6, 6]
    assert outcome.missed.tolist() == [False, True]
    assert decision.frequencies_hz[1] == 1e9
    assert decision.frequencies_hz[0] < 1e9


def test_a_round_without_losses_leaves_principle_as_it_is() -> None:
    policy = Principle(CONSTANTS, rounds=40)
    seen = observation([[1e8]], 1000.0)
    state = policy.init(seen.statistics)
    assert (
        policy.update(state, policy.decide(state, seen, RNG), settle(policy.decide(state, seen, RNG), seen, CONSTANTS))
        == state
    )


def test_same_size_believes_in_the_largest_dataset_and_pays_for_the_true_one() -> None:
    rates = [[1e8, 1.1e8], [1.05e8, 0.9e8]]
    seen, equal = observation(rates, 600.0, 1500.0), observation(rates, 1500.0, 1500.0)
    same, ours = SameSize(CONSTANTS, rounds=10, cpu="joint"), Qccf(CONSTANTS, rounds=10)
    state = same.init(seen.statistics)
    assert state == ours.init(equal.statistics)
    decision, reference = same.decide(state, seen, RNG), ours.decide(state, equal, RNG)
    np.testing.assert_array_equal(decision.channels, reference.channels)
    np.testing.assert_array_equal(decision.num_bits, reference.num_bits)
    np.testing.assert_array_equal(decision.frequencies_hz, reference.frequencies_hz)
    assert settle(decision, seen, CONSTANTS).energy_j[0] < settle(decision, equal, CONSTANTS).energy_j[0]
    after = same.update(state, decision, settle(decision, seen, CONSTANTS))
    assert after == ours.update(state, reference, settle(reference, equal, CONSTANTS))


@pytest.mark.parametrize("form", ["paper", "scale-free"])
def test_same_size_read_literally_ignores_the_energy_of_the_cpu(form: str) -> None:
    """A CPU that costs a million times as much changes no decision, and its speed is what the deadline needs."""
    rates = [[1e8, 1.1e8], [1.05e8, 0.9e8]]
    seen = observation(rates, 600.0, 1500.0)
    costly = replace(CONSTANTS, energy_coefficient=1e6 * CONSTANTS.energy_coefficient)
    literal, dear = (SameSize(constants, rounds=10, form=form) for constants in (CONSTANTS, costly))
    decision, other = (policy.decide(policy.init(seen.statistics), seen, RNG) for policy in (literal, dear))
    np.testing.assert_array_equal(decision.num_bits, other.num_bits)
    np.testing.assert_array_equal(decision.channels, other.channels)
    if form == "paper":  # the default form's price of error grows with the energy, so that the budget decides the bits
        joint = SameSize(costly, rounds=10, form=form, cpu="joint")
        assert joint.decide(joint.init(seen.statistics), seen, RNG).num_bits.sum() < decision.num_bits.sum()
    upload_s = (246_590 * (decision.num_bits + 1) + 32) / seen.rates_bps[[0, 1], decision.channels]
    needed_hz = 2.0 * 1000.0 * 1500.0 / (0.02 - upload_s)
    np.testing.assert_allclose(decision.frequencies_hz, np.maximum(needed_hz, 2e8))
    assert (settle(decision, seen, costly).compute_energy_j > 0.0).all(), "it is charged all the same"


def test_same_size_names_its_readings() -> None:
    scenario = load_scenario("femnist", ["same_size.cpu=joint", "control.energy_weight=2"])
    policy = build_policy("same-size", scenario)
    assert policy.constants.energy_coefficient == scenario.device.energy_coefficient
    assert policy.options.energy_weight == 2.0, "it takes the options of the controller as well"
    assert build_policy("same-size", load_scenario("femnist")).constants.energy_coefficient < 1e-40
    with pytest.raises(ConfigError, match=r"same_size\.cpu = 'both' is not one of 'follows' or 'joint'"):
        load_scenario("femnist", ["same_size.cpu=both"])


def test_fixed_bits_serves_as_many_as_possible_at_the_least_energy() -> None:
    """Brute force over all ways to give two channels to two clients; the third has no usable channel."""
    rates = [[1e8, 0.95e8], [0.9e8, 1.05e8], [1e6, 1e6]]
    seen = observation(rates, 800.0, 1400.0, 1000.0)
    policy = FixedBits(CONSTANTS, rounds=10, bits=3)
    decision = policy.decide(policy.init(seen.statistics), seen, RNG)
    assert decision.num_bits.tolist() == [3, 3, 0]
    spent = {}
    for channels in ([0, 1, -1], [1, 0, -1]):
        upload_s = (246_590 * 4 + 32) / seen.rates_bps[[0, 1], channels[:2]]
        hz = np.maximum(2.0 * 1000.0 * np.array([800.0, 1400.0]) / (0.02 - upload_s), 2e8)
        way = Decision(np.array(channels), np.array([3, 3, 0]), np.append(hz, 0.0))
        spent[tuple(channels)] = settle(way, seen, CONSTANTS).energy_j.sum()
    assert tuple(decision.channels) == min(spent, key=spent.__getitem__)
    assert settle(decision, seen, CONSTANTS).energy_j.sum() == pytest.approx(min(spent.values()))


def test_fixed_bits_sends_fewer_where_a_link_does_not_carry_them() -> None:
    """17.6 ms are left at 1 GHz: 7e7 b/s carry 3.99 bits beside the sign."""
    seen = observation([[7e7, 1e3], [1e3, 2e8]])
    decision = FixedBits(CONSTANTS, rounds=10, bits=6).decide({"waits": [0, 0]}, seen, RNG)
    assert decision.num_bits.tolist() == [3, 6]
    assert not settle(decision, seen, CONSTANTS).missed.any()


def test_fixed_bits_gives_up_no_bit_for_energy() -> None:
    """Of two channels one carries the six bits, and the other a single bit at less energy."""
    seen = observation([[1e8, 4e7]])
    wanted, cheap = (
        settle(Decision(np.array([channel]), np.array([bits]), np.array([hz])), seen, CONSTANTS)
        for channel, bits, hz in ((0, 6, 9.2e8), (1, 1, 3.2e8))
    )
    assert wanted.arrived.all()
    assert cheap.arrived.all()
    assert cheap.energy_j.sum() < wanted.energy_j.sum()
    decision = FixedBits(CONSTANTS, rounds=10, bits=6).decide({"waits": [0]}, seen, RNG)
    assert (decision.channels.tolist(), decision.num_bits.tolist()) == ([0], [6])


def test_fixed_bits_lets_clients_take_turns() -> None:
    seen = observation([[1e8], [0.9e8], [0.8e8]])
    policy = FixedBits(CONSTANTS, rounds=10)
    state, served = policy.init(seen.statistics), []
    for _ in range(9):
        decision = policy.decide(state, seen, RNG)
        state = policy.update(state, decision, settle(decision, seen, CONSTANTS))
        served.append(int(np.flatnonzero(decision.participates)[0]))
    assert sorted(served) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    long = policy.decide({"waits": [500, 499, 3]}, seen, RNG)
    assert long.participates.tolist() == [True, False, False], "the order of long waits is kept"
    nobody = policy.decide(policy.init(seen.statistics), observation([[1e3], [1e3], [1e3]]), RNG)
    assert not nobody.participates.any()


def test_qccf_measures_its_data_budget_unless_told() -> None:
    seen = observation([[1e8]], 1000.0)
    from qccf.control.bound import data_term

    measured = data_term(np.array([True]), seen.statistics, CONSTANTS)
    assert Qccf(CONSTANTS, rounds=1, form="paper").init(seen.statistics)["data_budget"] == pytest.approx(measured)
    fixed = Qccf(CONSTANTS, rounds=1, form="paper", paper=PaperOptions(data_budget=7.0)).init(seen.statistics)
    assert fixed["data_budget"] == 7.0
    assert fixed["participation_queue"] > 7.0


def test_qccf_remembers_last_bits_and_moves_its_queues() -> None:
    seen = observation([[1e8, 1e8], [0.0, 0.0]], 1000.0, 1000.0)
    policy = Qccf(CONSTANTS, rounds=1, form="paper")
    state = policy.init(seen.statistics)
    decision = policy.decide(state, seen, RNG)
    after = policy.update(state, decision, settle(decision, seen, CONSTANTS))
    assert after["last_num_bits"] == [int(decision.num_bits[0]), 0]
    assert after["last_num_bits"][0] >= 1
    assert after["participation_queue"] > state["participation_queue"], "somebody was missing"
    assert after["quantization_queue"] != state["quantization_queue"]
    empty = replace(decision, channels=np.array([-1, -1]), num_bits=np.array([0, 0]), frequencies_hz=np.zeros(2))
    rested = policy.update(after, empty, settle(empty, seen, CONSTANTS))
    assert rested["last_num_bits"] == after["last_num_bits"], "who sits out keeps its last bits"


def test_qccf_counts_only_what_arrived() -> None:
    seen = observation([[1e8, 1e8], [1e8, 1e8]], 1000.0, 1000.0)
    policy = Qccf(CONSTANTS, rounds=1, form="paper")
    state = policy.init(seen.statistics)
    decision = policy.decide(state, seen, RNG)
    outcome = settle(decision, seen, CONSTANTS)
    lost = replace(outcome, arrived=np.array([True, False]))
    assert (
        policy.update(state, decision, lost)["participation_queue"]
        > policy.update(state, decision, outcome)["participation_queue"]
    )


def participants_while_gradients_shrink(policy: Qccf) -> list[int]:
    """Forty rounds of the same links, with G² and σ² falling to a tenth of their start."""
    problem = typical_problem(10, 10)
    start = problem.observation.statistics
    state, present = policy.init(start), []
    for n in range(40):
        scale = 0.1 ** (n / 39)
        statistics = replace(
            start,
            gradient_norms_sq=scale * start.gradient_norms_sq,
            gradient_variances=scale * start.gradient_variances,
        )
        observation = replace(problem.observation, statistics=statistics)
        decision = policy.decide(state, observation, np.random.default_rng(0))
        state = policy.update(state, decision, settle(decision, observation, policy.constants))
        present.append(int(decision.participates.sum()))
    return present


def test_qccf_goes_on_when_gradients_shrink() -> None:
    """With ε1 held at its first value λ1 sinks below it and nobody takes part any more; one that follows goes on."""
    problem = typical_problem(10, 10)
    following = participants_while_gradients_shrink(Qccf(problem.constants, rounds=40, form="paper"))
    assert np.mean(following) > 9
    assert following[-1] >= 8
    first = Qccf(problem.constants, rounds=40, form="paper").init(problem.observation.statistics)["data_budget"]
    held = Qccf(problem.constants, rounds=40, form="paper", paper=PaperOptions(data_budget=first))
    assert participants_while_gradients_shrink(held)[-30:] == [0] * 30
