"""QCCF in its default form: what changes no decision, and rounds at the edge of what is possible."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import log10
from pathlib import Path

import numpy as np
import pytest

from qccf.control.bound import error_and_budget
from qccf.control.turns import usable_pairs
from qccf.core.contracts import MAX_NUM_BITS, Decision, Observation, PolicyState, Statistics
from qccf.core.errors import PolicyError
from qccf.devices.cost import settle
from qccf.policies.checks import checked_decision
from qccf.policies.qccf import Qccf
from qccf.policies.same_size import SameSize
from qccf.quantization import costs
from qccf.rounds.run import Run
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan, plan_run
from qccf.settings.loading import load_scenario
from support.problems import CONSTANTS, equal_statistics, typical_problem

RNG = np.random.default_rng(0)
DECISIONS = ("channel", "num_bits")
CONSTANT = ("codec.name=model", "statistics.model=constant")


def planned(*settings: str) -> Run:
    """50 rounds with fewer channels than clients."""
    scenario = load_scenario("femnist", ["federation.rounds=50", "radio.num_channels=6", *CONSTANT, *settings])
    return plan_run(build_world(scenario, 0), "qccf")


def trace(path: Path, *, weights: float = 1.0, gradients: float = 1.0) -> tuple[str, str]:
    """Weights grow and gradients fall by a thousand, so that both parts of the error budget count in their turn."""
    rows = [(0, 0.2 * weights, 30.0 * gradients), (49, 0.65 * weights, 0.03 * gradients)]
    lines = ["round,weight_range,gradient_norm_sq", *(",".join(map(repr, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return "statistics.model=trace", f"statistics.trace={path}"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = planned(*trace(tmp_path_factory.mktemp("trace") / "trace.csv"))
    bits = run.by_round("num_bits")
    assert len(np.unique(bits[bits > 0])) > 3, "decisions must vary"
    assert len(np.unique(run.round_columns["error_price"])) > 20
    budget = run.round_columns["error_budget"]
    assert budget[0] == pytest.approx(3.0 * 0.36 * 30.0), "what learning tolerates comes first"
    assert budget[-1] > 2.0 * 3.0 * 0.36 * 0.03, "what the links carry comes last"
    return run


def same_decisions(one: Run, other: Run) -> None:
    for name in DECISIONS:
        np.testing.assert_array_equal(one.by_round(name), other.by_round(name))
    np.testing.assert_allclose(one.by_round("frequency_hz"), other.by_round("frequency_hz"), rtol=1e-9)
    np.testing.assert_allclose(one.round_columns["error_price"], other.round_columns["error_price"], rtol=1e-6)


@pytest.mark.parametrize("smoothness", [1e-4, 1.0])
def test_smoothness_changes_no_decision(reference: Run, tmp_path: Path, smoothness: float) -> None:
    same_decisions(reference, planned(f"learning.smoothness={smoothness}", *trace(tmp_path / "trace.csv")))


@pytest.mark.parametrize("factor", [0.01, 4.0, 37.0])
def test_the_unit_of_energy_changes_no_decision(reference: Run, tmp_path: Path, factor: float) -> None:
    """CPU energy, transmit power and noise times a factor: the rates stay, and every joule is multiplied."""
    other = planned(
        f"device.energy_coefficient={1e-26 * factor!r}",
        f"radio.transmit_power_w={0.2 * factor!r}",
        f"radio.noise_dbm_per_hz={-174.0 + 10.0 * log10(factor)!r}",
        *trace(tmp_path / "trace.csv"),
    )
    same_decisions(reference, other)
    np.testing.assert_allclose(other.energy_j, factor * reference.energy_j, rtol=1e-9)


@pytest.mark.parametrize("factor", [0.01, 4.0, 3.7])
def test_the_scale_of_weights_changes_no_decision(reference: Run, tmp_path: Path, factor: float) -> None:
    """Weights and updates times a factor; an update grows with the learning rate or with the gradients."""
    faster = planned(f"learning.learning_rate={0.1 * factor!r}", *trace(tmp_path / "a.csv", weights=factor))
    same_decisions(reference, faster)
    steeper = planned(*trace(tmp_path / "b.csv", weights=factor, gradients=factor**2))
    same_decisions(reference, steeper)
    error, other = (run.round_columns["aggregate_error"] for run in (reference, steeper))
    np.testing.assert_allclose(other, factor**2 * error, rtol=1e-9)


def test_the_paper_form_is_not_invariant(tmp_path: Path) -> None:
    """The same changes do change its decisions, so that these tests can fail."""
    paper = "control.form=paper"
    first = planned(paper, *trace(tmp_path / "a.csv"))
    for other in (
        planned(paper, "learning.smoothness=1.0", *trace(tmp_path / "a.csv")),
        planned(paper, *trace(tmp_path / "b.csv", weights=4.0, gradients=16.0)),
    ):
        assert (first.by_round("num_bits") != other.by_round("num_bits")).any()


def listed(statistics: Statistics, rng: np.random.Generator) -> Statistics:
    """Statistics with irregular tables of sizes and errors."""
    shape = (statistics.num_clients, MAX_NUM_BITS)
    sizes = np.cumsum(CONSTANTS.num_parameters * rng.lognormal(-0.5, 0.5, shape), axis=1)
    errors = costs.expected_errors(statistics, CONSTANTS) * rng.uniform(0.2, 1.0, (statistics.num_clients, 1))
    return replace(statistics, upload_bits=sizes, upload_errors=errors)


Change = Callable[[int, Observation], Observation]


def rounds_of(
    policy: Qccf, statistics: Statistics, rates: Callable[[int], np.ndarray], rounds: int, lost: Change | None = None
) -> tuple[list[Decision], list[PolicyState]]:
    """Decisions and states. `lost(index, participates)` says whose upload fails."""
    state = policy.init(statistics)
    decisions, states = [], []
    for index in range(rounds):
        seen = Observation(rates(index), statistics)
        decision = checked_decision(policy.decide(state, seen, RNG), seen, policy.constants, policy)
        failed = None if lost is None else lost(index, decision.participates)
        outcome = settle(decision, seen, policy.constants, failed=failed)
        state = policy.update(state, decision, outcome)
        decisions.append(decision)
        states.append(state)
        assert np.isfinite(state["debts"]).all()
        assert np.isfinite(state.get("error_price", 1.0))
        assert np.isfinite(decision.frequencies_hz).all()
    return decisions, states


def fading(seed: int, clients: int, channels: int, typical_bps: float = 1.2e8) -> Callable[[int], np.ndarray]:
    place = np.random.default_rng(seed).lognormal(0.0, 0.5, (clients, 1))

    def rates(index: int) -> np.ndarray:
        return typical_bps * place * np.random.default_rng([seed, index]).lognormal(0.0, 0.3, (clients, channels))

    return rates


def test_the_scale_of_listed_errors_changes_no_decision() -> None:
    rng = np.random.default_rng(81)
    statistics = listed(equal_statistics(*rng.uniform(500, 2000, 8), norm_sq=1e-3), rng)
    assert statistics.upload_errors is not None
    scaled = replace(
        statistics,
        gradient_norms_sq=statistics.gradient_norms_sq * 13.0,
        upload_errors=statistics.upload_errors * 13.0,
    )
    policy, rates = Qccf(CONSTANTS, rounds=50), fading(1, 8, 5)
    for one, other in zip(
        rounds_of(policy, statistics, rates, 50)[0], rounds_of(policy, scaled, rates, 50)[0], strict=True
    ):
        np.testing.assert_array_equal(one.channels, other.channels)
        np.testing.assert_array_equal(one.num_bits, other.num_bits)


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_a_share_takes_part_on_average_and_everybody_in_turn(share: float) -> None:
    statistics = equal_statistics(*np.random.default_rng(82).uniform(500, 2000, 10))
    decisions, _ = rounds_of(Qccf(CONSTANTS, rounds=200, share=share), statistics, fading(2, 10, 6), 200)
    on = np.array([decision.participates for decision in decisions])
    assert (on.sum(axis=1) >= 1).all()
    assert on.sum(axis=1).mean() == pytest.approx(6 * share, rel=0.05)
    turns = on.sum(axis=0)
    assert turns.min() > 0.7 * turns.mean()


@pytest.mark.parametrize("typical_bps", [5e7, 1e8, 2e8])
@pytest.mark.parametrize("spread", [0.1, 0.3, 0.6])
def test_errors_meet_their_budgets_on_average(typical_bps: float, spread: float) -> None:
    """Links that carry between 1 and 32 bits, and a channel more or less makes a difference of many bits."""
    sizes = np.random.default_rng(84).uniform(500, 2000, 12)
    statistics = equal_statistics(*sizes, norm_sq=1e-9)

    def rates(index: int) -> np.ndarray:
        return typical_bps * np.random.default_rng([84, index]).lognormal(0.0, spread, (12, 12))

    decisions, states = rounds_of(Qccf(CONSTANTS, rounds=150), statistics, rates, 150)
    ratios = []
    for decision in decisions:
        assert decision.targets is not None
        error, budget = error_and_budget(decision.targets, decision.participates, sizes)
        ratios.append(error / budget)
    assert np.mean(ratios) < 1.1
    assert np.mean(ratios[50:]) > 0.8, "and no energy is wasted on errors below the budget"
    assert max(state["error_price"] for state in states) < 1e6


def test_one_client_and_one_channel() -> None:
    alone, _ = rounds_of(Qccf(CONSTANTS, rounds=20), equal_statistics(1e3), fading(3, 1, 1), 20)
    assert all(decision.participates.tolist() == [True] for decision in alone)
    many, _ = rounds_of(Qccf(CONSTANTS, rounds=60), equal_statistics(*[1e3] * 6), fading(4, 6, 1), 60)
    on = np.array([decision.participates for decision in many])
    assert (on.sum(axis=1) == 1).all()
    assert on.sum(axis=0).min() >= 7, "ten each on average"


def test_a_round_is_empty_only_where_nobody_is_able_and_then_nothing_moves() -> None:
    """Rates are 0 in rounds 0 to 4 and 10 to 14."""
    good = fading(5, 4, 3)
    decisions, states = rounds_of(
        Qccf(CONSTANTS, rounds=20),
        equal_statistics(*[1e3] * 4),
        lambda index: good(index) * (index % 10 >= 5),
        20,
    )
    assert [int(decision.participates.sum()) for decision in decisions] == ([0] * 5 + [3] * 5) * 2
    assert states[0] == {"debts": [0.0] * 4, "last_num_bits": [0] * 4}
    assert states[9] == states[14]
    for decision in decisions:
        assert decision.certificate is not None
        assert decision.certificate.gap <= 1e-12 * max(decision.certificate.objective, 1.0)


def test_without_gradients_and_without_errors() -> None:
    quiet = equal_statistics(*[1e3] * 4, norm_sq=0.0)
    decisions, _ = rounds_of(Qccf(CONSTANTS, rounds=30), quiet, fading(6, 4, 4), 30)
    assert all(decision.participates.all() for decision in decisions)
    for decision in decisions:
        assert decision.targets is not None
        assert decision.targets.tolerated_error == 0.0
    zero = replace(quiet, upload_errors=np.zeros((4, MAX_NUM_BITS)))
    decisions, states = rounds_of(Qccf(CONSTANTS, rounds=30), zero, fading(6, 4, 4), 30)
    assert all((decision.num_bits == 1).all() for decision in decisions)
    assert states[-1]["error_price"] == states[0]["error_price"]


def test_one_zero_vector_among_others() -> None:
    statistics = equal_statistics(*[1e3] * 4, norm_sq=1e-6)
    errors = costs.expected_errors(statistics, CONSTANTS).copy()
    errors[2] = 0.0
    decisions, _ = rounds_of(Qccf(CONSTANTS, rounds=30), replace(statistics, upload_errors=errors), fading(7, 4, 4), 30)
    bits = np.array([decision.num_bits for decision in decisions])
    assert (bits[:, 2] == 1).all()
    assert (bits[:, [0, 1, 3]].mean(axis=0) > 1.5).all()


@pytest.mark.parametrize("lost_share", [0.02, 0.3, 1.0])
def test_lost_uploads_move_debts_but_not_the_price(lost_share: float) -> None:
    """Where only good links arrive, their least error is small; a price that followed it would grow without end."""
    statistics, rates = equal_statistics(*[1e3] * 4, norm_sq=1e-6), fading(8, 4, 2)
    drawn = np.random.default_rng(1).random((80, 4)) < lost_share
    decisions, states = rounds_of(
        Qccf(CONSTANTS, rounds=80), statistics, rates, 80, lambda index, on: on & drawn[index]
    )
    _, lossless = rounds_of(Qccf(CONSTANTS, rounds=80), statistics, rates, 80)
    assert [one["error_price"] for one in states] == [one["error_price"] for one in lossless]
    on = np.array([decision.participates for decision in decisions])
    assert (on.sum(axis=1) == 2).all(), "nobody gives up"
    assert np.ptp(on.sum(axis=0)) <= 10, "a client whose uploads are lost had its turns"


def test_a_client_that_is_able_only_sometimes_gets_its_share_of_these_rounds() -> None:
    good = fading(9, 6, 2)

    def rates(index: int) -> np.ndarray:
        shown = good(index)
        if index % 5:
            shown[0] = 0.0
        return shown

    decisions, states = rounds_of(Qccf(CONSTANTS, rounds=200), equal_statistics(*[1e3] * 6), rates, 200)
    on = np.array([decision.participates for decision in decisions])
    owed = 40 * 2 / 6
    assert on[:, 0].sum() == pytest.approx(owed, abs=3)
    assert (on.sum(axis=1) == 2).all()
    assert np.abs([state["debts"] for state in states]).max() < 4.0


@pytest.mark.parametrize("what", ["gradient_norms_sq", "gradient_variances", "weight_ranges", "dataset_sizes"])
def test_one_absurd_report_leaves_the_others_scheduled(what: str) -> None:
    """With 1e30 samples a client cannot finish in time; with the rest it can, and everything stays finite."""
    statistics = equal_statistics(*[1e3] * 5)
    values = getattr(statistics, what).copy()
    values[0] = 1e30
    decisions, _ = rounds_of(Qccf(CONSTANTS, rounds=40), replace(statistics, **{what: values}), fading(10, 5, 3), 40)
    on = np.array([decision.participates for decision in decisions])
    assert (on.sum(axis=1) == 3).all()
    assert on[:, 1:].sum(axis=0).min() >= 15
    assert on[:, 0].any() == (what != "dataset_sizes")


def test_ten_thousand_clients_on_ten_channels() -> None:
    rng = np.random.default_rng(83)
    statistics = equal_statistics(*rng.uniform(500, 2000, 10_000))
    decisions, _ = rounds_of(Qccf(CONSTANTS, rounds=5), statistics, fading(11, 10_000, 10), 5)
    on = np.array([decision.participates for decision in decisions])
    assert (on.sum(axis=1) == 10).all()
    assert on.sum(axis=0).max() == 1, "the debt of those who waited counts"


def test_gradients_that_vanish_make_nobody_stay_at_home() -> None:
    """G² falls from 1e3 to 1e-9 within 60 rounds: the paper's form ends with empty rounds."""
    state: PolicyState = {}
    policy, rates = Qccf(CONSTANTS, rounds=60), fading(12, 6, 6)
    bits = []
    for index in range(60):
        statistics = equal_statistics(*[1e3] * 6, norm_sq=10.0 ** (3.0 - 12.0 * index / 59))
        state = state or policy.init(statistics)
        seen = Observation(rates(index), statistics)
        decision = policy.decide(state, seen, RNG)
        state = policy.update(state, decision, settle(decision, seen, CONSTANTS))
        assert decision.participates.all()
        bits.append(decision.num_bits.mean())
    assert np.mean(bits[-10:]) > np.mean(bits[:10]), "smaller updates need finer uploads"


@pytest.mark.parametrize("seed", range(24))
def test_any_cell(seed: int) -> None:
    """Models of 1e4 to 1e8 parameters, deadlines of 10 ms to 60 s, any CPU, any slack and share, gradients that fall.

    Warnings are errors here. No round is empty while somebody is able, nobody is late, and budgets are met.
    """
    rng = np.random.default_rng([85, seed])
    clients, channels = int(rng.integers(1, 20)), int(rng.integers(1, 20))
    slowest_hz = 10 ** rng.uniform(6, 9)
    constants = replace(
        CONSTANTS,
        num_parameters=int(10 ** rng.uniform(4, 8)),
        deadline_s=float(10 ** rng.uniform(-2, 1.8)),
        frequency_min_hz=float(slowest_hz),
        frequency_max_hz=float(slowest_hz * 10 ** rng.uniform(0, 2)),
        cycles_per_sample=float(10 ** rng.uniform(1, 6)),
    )
    sizes = 10 ** rng.uniform(2.0, 3.5, clients)
    computing_s = 2 * constants.cycles_per_sample * np.median(sizes) / constants.frequency_max_hz
    needed_bps = 2 * constants.num_parameters / max(constants.deadline_s - computing_s, 0.1 * constants.deadline_s)
    typical_bps = needed_bps * 10 ** rng.uniform(-0.5, 1.5) * rng.lognormal(0.0, 0.5, (clients, 1))
    statistics = Statistics(
        sizes,
        10 ** rng.uniform(-6, 6) * rng.lognormal(0.0, 1.0, clients),
        np.ones(clients),
        10 ** rng.uniform(-3, 2) * rng.lognormal(0.0, 1.0, clients),
    )
    options = {"share": float(rng.choice([0.4, 1.0])), "slack": float(rng.choice([1.01, 4.0, 50.0]))}
    policy = Qccf(constants, rounds=50, energy_weight=float(rng.choice([0.02, 1.0, 50.0])), **options)
    state = policy.init(statistics)
    ratios = []
    for index in range(50):
        now = replace(statistics, gradient_norms_sq=statistics.gradient_norms_sq * 10 ** (-3.0 * index / 49))
        rates = typical_bps * rng.lognormal(0.0, 0.5, (clients, channels)) * (rng.random((clients, channels)) > 0.1)
        seen = Observation(rates, now)
        decision = checked_decision(policy.decide(state, seen, RNG), seen, constants, policy)
        outcome = settle(decision, seen, constants)
        assert decision.participates.any() == usable_pairs(seen, constants).any()
        assert not outcome.missed.any()
        if outcome.arrived.any():
            assert decision.targets is not None
            error, budget = error_and_budget(decision.targets, outcome.arrived, sizes)
            ratios.append(error / budget)
        state = policy.update(state, decision, outcome)
    assert np.mean(ratios or [0.0]) < 1.15


def test_same_size_takes_the_same_form() -> None:
    statistics = equal_statistics(600.0, 1500.0)
    decisions, states = rounds_of(SameSize(CONSTANTS, rounds=5, cpu="joint"), statistics, fading(13, 2, 2), 5)
    equal, same = rounds_of(Qccf(CONSTANTS, rounds=5), equal_statistics(1500.0, 1500.0), fading(13, 2, 2), 5)
    assert states == same
    assert [one.num_bits.tolist() for one in decisions] == [one.num_bits.tolist() for one in equal]


@pytest.mark.parametrize(("clients", "channels", "share"), [(50, 20, 0.5), (20, 20, 0.3), (6, 6, 0.5)])
def test_a_share_is_kept_in_every_round(clients: int, channels: int, share: float) -> None:
    """Not only on average: a round with one participant would replace the model by one client's."""
    decisions, _ = rounds_of(
        Qccf(CONSTANTS, rounds=40, share=share), equal_statistics(*[1e3] * clients), fading(6, clients, channels), 40
    )
    counts = [int(decision.participates.sum()) for decision in decisions]
    assert max(counts) - min(counts) <= 1
    assert np.mean(counts) == pytest.approx(share * channels, abs=0.5)


def test_equal_clients_keep_their_share() -> None:
    decisions, _ = rounds_of(
        Qccf(CONSTANTS, rounds=20, share=0.5), equal_statistics(*[1e3] * 6), lambda _: np.full((6, 6), 1e8), 20
    )
    assert {int(decision.participates.sum()) for decision in decisions} == {3}


def test_clients_that_share_their_only_channel_take_turns() -> None:
    """Three clients reach only channel 0, one only channel 1: debts reach their limit, and their order still counts."""
    links = np.array([[1.2e8, 0.0], [1.0e8, 0.0], [0.9e8, 0.0], [0.0, 1.0e8]])
    decisions, _ = rounds_of(Qccf(CONSTANTS, rounds=400), equal_statistics(*[1e3] * 4), lambda _: links, 400)
    turns = np.array([decision.participates for decision in decisions])[-200:].sum(axis=0)
    assert turns[3] == 200
    assert turns[:3].min() > 60


@pytest.mark.parametrize("settings", [[], ["radio.gain_db=10.0"], ["radio.num_channels=5"]])
def test_a_looser_budget_costs_no_more_energy(settings: list[str]) -> None:
    for knob, values in (("energy_weight", (0.02, 0.1, 0.3, 1.0, 4.0, 10.0)), ("slack", (1.5, 3.0, 6.0, 12.0))):
        spent = []
        for value in values:
            scenario = load_scenario(
                "femnist", ["federation.rounds=60", f"control.{knob}={value}", *CONSTANT, *settings]
            )
            spent.append(plan(scenario, ["qccf"], 1)[0].energy_j[-1])
        assert all(after <= 1.01 * before for before, after in pairwise(spent)), (knob, spent)
        assert settings or spent[-1] < 0.9 * spent[0], knob


def test_last_bits_are_the_scheduled_ones_although_an_upload_is_lost() -> None:
    """The Taylor step of Case 5 starts at the client's last decision; whether its upload arrived does not matter."""
    policy = Qccf(CONSTANTS, rounds=3)
    statistics = equal_statistics(1200.0, 1000.0)
    state = policy.init(statistics)
    observation = Observation(np.full((2, 2), 1e9), statistics)
    decision = Decision(np.array([0, 1]), np.array([3, 5]), np.array([1e9, 1e9]))
    lost = settle(decision, observation, CONSTANTS, failed=np.array([True, False]))
    assert lost.arrived.tolist() == [False, True]
    state = policy.update(state, decision, replace(lost, statistics=statistics))
    assert state["last_num_bits"] == [3, 5]
    idle = Decision(np.array([-1, 0]), np.array([0, 7]), np.array([0.0, 1e9]))
    outcome = replace(settle(idle, observation, CONSTANTS), statistics=statistics)
    assert policy.update(state, idle, outcome)["last_num_bits"] == [3, 7]


def test_a_policy_with_impossible_powers_is_refused() -> None:
    problem = typical_problem(3, 3)
    policy = Qccf(problem.constants, rounds=1)
    decision = policy.decide(policy.init(problem.observation.statistics), problem.observation, RNG)
    for powers_w, words in (
        (np.array([0.1, 0.1]), "powers_w must be None or an array of 3 floats"),
        (np.array([1, 1, 1]), "powers_w must be None or an array of 3 floats"),
        (np.array([0.1, 0.1, 0.3]), "powers_w must be above 0 and at most 0.2"),
        (np.array([0.1, 0.0, 0.1]), "powers_w must be above 0 and at most 0.2"),
    ):
        with pytest.raises(PolicyError, match=words):
            checked_decision(replace(decision, powers_w=powers_w), problem.observation, problem.constants, policy)
