"""The default form of a round's problem: every solver compared with brute force and with the others."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qccf.control.bits_closed_form import ClosedFormPairs
from qccf.control.bits_exact import ExactPairs, useful_levels
from qccf.control.channels_assignment import solve_assignment
from qccf.control.problem import Allocation, Problem, objective
from qccf.control.scale_free import ScaleFreeProblem, most_participants, usable_pairs
from qccf.control.solve import solve_round
from qccf.core.contracts import MAX_NUM_BITS, Decision
from qccf.core.errors import ConfigError
from support.problems import coded_problem, random_problem, random_scale_free_problem
from tests.helpers import brute

SOLVERS = ("assignment", "exhaustive", "genetic")


def tiny_problem(rng: np.random.Generator, share: float) -> ScaleFreeProblem:
    return random_scale_free_problem(rng, int(rng.integers(1, 4)), int(rng.integers(1, 4)), share=share)


def cost(problem: ScaleFreeProblem, decision: Decision) -> float:
    return brute.scale_free_cost(problem, decision.channels.tolist(), decision.num_bits.tolist())


def stake(problem: ScaleFreeProblem, decision: Decision) -> float:
    """Energy and error of a decision in units of J."""
    return cost(problem, decision) + float(problem.debt_prices[decision.participates].sum())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_exhaustive_and_assignment_find_the_brute_force_optimum_and_the_bound_is_below_it(share: float) -> None:
    rng = np.random.default_rng(51)
    empty = 0
    for _ in range(40):
        problem = tiny_problem(rng, share)
        best, least = brute.scale_free_optimum(problem)
        decisions = [solve_round(problem, solver=solver) for solver in SOLVERS]
        assert all(decision.participates.any() == (least > 0) for decision in decisions), "idle only if nobody is able"
        if not least:
            empty += 1
            continue
        best_members = [int(decision.participates.sum()) for decision in decisions]
        assert best_members[0] == best_members[1] >= least
        scale = stake(problem, decisions[0])
        for decision in decisions[:2]:
            assert decision.certificate is not None
            assert abs(cost(problem, decision) - best) <= 1e-9 * scale
            assert 0.0 <= decision.certificate.gap <= 1e-9 * scale
        absolute = problem.missing_price * (problem.wanted - best_members[0]) + best
        assert decisions[0].certificate.lower_bound <= absolute + 1e-9 * scale  # type: ignore[union-attr]
        if best_members[2] >= least:
            assert cost(problem, decisions[2]) >= best - 1e-9 * scale
    assert empty > 0, "some rounds must have nobody who is able"


def test_objective_is_the_formula_of_the_module() -> None:
    rng = np.random.default_rng(52)
    for share in (1.0, 0.5):
        for _ in range(25):
            problem = random_scale_free_problem(rng, share=share)
            decision = solve_round(problem)
            missing = problem.wanted - int(decision.participates.sum()) if problem.wanted else 0
            by_hand = problem.missing_price * missing + cost(problem, decision)
            assert decision.certificate is not None
            scale = problem.missing_price * problem.wanted + abs(by_hand)
            assert decision.certificate.objective == pytest.approx(by_hand, abs=1e-12 * scale)
            assert objective(problem, Allocation(decision.channels, decision.num_bits)) == (
                decision.certificate.objective
            )


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_assignment_is_exhaustive(share: float) -> None:
    rng = np.random.default_rng(53)
    positive = 0
    for _ in range(60):
        problem = random_scale_free_problem(rng, int(rng.integers(2, 9)), int(rng.integers(1, 9)), share=share)
        found, best = solve_round(problem).certificate, solve_round(problem, solver="exhaustive")
        assert found is not None
        assert best.certificate is not None
        scale = stake(problem, best)
        assert abs(found.objective - best.certificate.objective) <= 1e-9 * scale
        assert found.lower_bound <= best.certificate.objective + 1e-9 * scale
        assert found.gap <= 1e-9 * scale
        positive += best.certificate.objective > problem.empty_objective
    assert share == 1.0 or positive > 5, "some rounds must take place although the empty one would be cheaper"


@pytest.mark.parametrize(("clients", "channels"), [(50, 20), (30, 5)])
def test_gaps_of_larger_rounds_are_a_thousandth_of_the_stake(clients: int, channels: int) -> None:
    rng = np.random.default_rng(54)
    for share in (1.0, 0.5):
        for _ in range(6):
            problem = random_scale_free_problem(rng, clients, channels, share=share)
            decision = solve_round(problem)
            assert decision.certificate is not None
            assert 0.0 <= decision.certificate.gap <= 1e-3 * stake(problem, decision)


def test_as_many_take_part_as_channels_and_links_allow() -> None:
    rng = np.random.default_rng(55)
    binding = 0
    for _ in range(60):
        problem = random_scale_free_problem(rng, int(rng.integers(1, 5)), int(rng.integers(1, 5)), dead=0.6)
        most = brute.most_participants(problem)
        assert most_participants(problem.observation, problem.constants) == most == problem.wanted
        assert problem.least_members == max(most, 1)
        for solver in ("assignment", "exhaustive"):
            assert solve_round(problem, solver=solver).participates.sum() == most
        able = usable_pairs(problem.observation, problem.constants).any(axis=1).sum()
        binding += most < min(able, problem.rates_bps.shape[1])
    assert binding > 2, "in some rounds two clients must share their only channel"


def test_the_missing_price_exceeds_every_difference_in_cost() -> None:
    """The dearest decision with one participant more is cheaper than the cheapest with one fewer."""
    rng = np.random.default_rng(56)
    compared = 0
    for _ in range(150):
        problem = random_scale_free_problem(rng, 3, int(rng.integers(1, 4)), dead=0.0)
        by_count: dict[int, list[float]] = {}
        for channels in brute.allocations(problem):
            members = sum(channel >= 0 for channel in channels)
            for bits in (1, 5, 12):
                value = brute.scale_free_cost(problem, channels, [bits] * len(channels))
                if members and math.isfinite(value):
                    by_count.setdefault(members, []).append(value)
        if problem.wanted in by_count and problem.wanted - 1 in by_count:
            dearest, cheapest = max(by_count[problem.wanted]), min(by_count[problem.wanted - 1])
            assert dearest < cheapest + problem.missing_price
            compared += 1
    assert compared > 20
    assert replace(problem, wanted=0).missing_price == 0.0


def test_usable_pairs_and_most_participants_by_hand() -> None:
    """2,000 samples need 4 ms at 1 GHz; one bit and a sign for 246,590 parameters in 16 ms need 30.8 Mb/s."""
    problem = random_scale_free_problem(np.random.default_rng(0), 3, 2, tables=False, dead=0.0)
    statistics = replace(problem.observation.statistics, dataset_sizes=np.full(3, 2000.0))
    rates = np.array([[30.9e6, 30.7e6], [40e6, 0.0], [1e6, 1e6]])
    seen = replace(problem.observation, rates_bps=rates, statistics=statistics)
    assert usable_pairs(seen, problem.constants).tolist() == [[True, False], [True, False], [False, False]]
    assert most_participants(seen, problem.constants) == 1
    seen = replace(seen, rates_bps=np.array([[30.9e6, 31e6], [40e6, 0.0], [1e6, 1e6]]))
    assert most_participants(seen, problem.constants) == 2
    assert most_participants(replace(seen, rates_bps=np.zeros((3, 2))), problem.constants) == 0


def pair_cost(problem: Problem, client: int, channel: int, total: float) -> float:
    """The least cost of a pair over all 32 bits, straight from the terms of the problem."""
    shared = problem.presence_costs[client] + problem.spread_costs[client] / total
    values = []
    for bits in range(1, MAX_NUM_BITS + 1):
        frequency = brute.slowest_frequency(problem, client, channel, bits)
        if frequency is not None:
            spent = problem.energy_price * brute.energy(problem, client, channel, bits, frequency)
            values.append(shared + spent + problem.level_costs[client, bits - 1] / total**problem.weight_power)
    return min(values, default=math.inf)


@pytest.mark.parametrize("form", ["paper", "paper, listed sizes", "all wanted", "share"])
def test_useful_levels_never_cut_the_optimum(form: str) -> None:
    """Every pair at the least S that it can have: there an upload's error counts most."""
    rng = np.random.default_rng(57)
    tight, largest = 0, 0
    for _ in range(60):
        if form.startswith("paper"):
            problem: Problem = random_problem(rng, below=0.3)
            if form != "paper":
                problem = coded_problem(problem, rng, listed=True)  # type: ignore[arg-type]
        else:
            problem = random_scale_free_problem(rng, share=1.0 if form == "all wanted" else 0.5)
        sizes = problem.dataset_sizes
        pairs = ExactPairs(problem)
        for client in range(len(sizes)):
            others = np.sort(np.delete(sizes, client))[: problem.least_members - 1]
            total = float(sizes[client] + others.sum())
            costs = pairs.costs(total, np.array([client]))[0]
            for channel in range(problem.rates_bps.shape[1]):
                best = pair_cost(problem, client, channel, total)
                assert costs[channel] == pytest.approx(best, rel=1e-9, abs=1e-9 * abs(problem.presence_costs[client]))
            bits = pairs.bits(total, np.full(len(costs), client), np.arange(len(costs)))
            tight += int((bits == useful_levels(problem)).any())
            largest = max(largest, int(bits.max()))
    assert tight > 10, "the limit must be attained in some rounds"
    assert largest > 5


def test_closed_form_is_the_exact_optimum_without_tables() -> None:
    rng = np.random.default_rng(58)
    compared, distinct = 0, set()
    for _ in range(40):
        problem = random_scale_free_problem(rng, 12, 12, tables=False)
        members = int(rng.integers(problem.least_members, 13))
        total = float(np.sort(problem.dataset_sizes)[-members:].sum())
        rows, columns = (index.ravel() for index in np.indices(problem.rates_bps.shape))
        exact, closed = ExactPairs(problem), ClosedFormPairs(problem)
        bits = exact.bits(total, rows, columns)
        np.testing.assert_array_equal(closed.bits(total, rows, columns), bits)
        np.testing.assert_allclose(closed.costs(total), exact.costs(total), rtol=1e-9)
        compared += len(rows)
        distinct |= set(bits.tolist())
    assert compared > 5000
    assert len(distinct) > 8
    problem = random_scale_free_problem(rng, 8, 6, tables=False, dead=0.0)
    ours, exact_decision = solve_round(problem, inner="closed-form"), solve_round(problem)
    np.testing.assert_array_equal(ours.channels, exact_decision.channels)
    np.testing.assert_array_equal(ours.num_bits, exact_decision.num_bits)


def test_closed_forms_refuse_listed_errors() -> None:
    problem = random_scale_free_problem(np.random.default_rng(1), 4, 4, tables=True)
    statistics = replace(problem.observation.statistics, upload_bits=None)
    problem = replace(problem, observation=replace(problem.observation, statistics=statistics))
    for inner in ("closed-form", "closed-form-taylor", "printed"):
        with pytest.raises(ConfigError, match=f'control.inner = "{inner}" knows only the bound of Lemma 1'):
            solve_round(problem, inner=inner)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_genetic_solver_never_idles_and_is_never_better(share: float) -> None:
    """Most links are dead, so that a random chromosome is infeasible almost surely."""
    rng = np.random.default_rng(59)
    regrets = []
    for _ in range(25):
        problem = random_scale_free_problem(
            rng, int(rng.integers(2, 10)), int(rng.integers(1, 9)), share=share, dead=0.8
        )
        rough = solve_round(problem, solver="genetic", rng=rng)
        assert rough.participates.any() == usable_pairs(problem.observation, problem.constants).any()
        if not rough.participates.any():
            continue
        best = solve_round(problem)
        assert rough.certificate is not None
        assert best.certificate is not None
        assert rough.certificate.objective >= best.certificate.objective - 1e-9 * stake(problem, best)
        assert math.isfinite(rough.certificate.objective)
        regrets.append(rough.participates.sum() - best.participates.sum())
    if share == 1.0:
        assert np.mean(np.array(regrets) == 0) > 0.8, "it mostly finds as many participants as possible"


def test_ten_thousand_clients_on_ten_channels() -> None:
    problem = random_scale_free_problem(np.random.default_rng(60), 10_000, 10, tables=False, dead=0.0)
    allocation, bound = solve_assignment(problem, ExactPairs(problem))
    value = objective(problem, allocation)
    assert allocation.participates.sum() == problem.wanted == 10
    decision = Decision(allocation.channels, allocation.num_bits, np.zeros(10_000))
    assert value - bound <= 1e-3 * stake(problem, decision)
