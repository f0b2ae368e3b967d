"""The default form of a round's problem: every solver compared with brute force and with the others."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qccf.control.bits_closed_form import ClosedFormPairs
from qccf.control.bits_exact import ExactPairs, useful_levels
from qccf.control.problem import Allocation, Problem, empty_allocation, objective
from qccf.control.scale_free import ScaleFreeProblem
from qccf.control.solve import solve_round
from qccf.core.contracts import MAX_NUM_BITS, Decision, Observation
from qccf.core.errors import ConfigError
from support.problems import CONSTANTS, coded_problem, equal_statistics, random_problem, random_scale_free_problem
from tests.helpers import brute


def cost(problem: ScaleFreeProblem, decision: Decision) -> float:
    """Energy and error of a decision in units of J."""
    return brute.scale_free_cost(problem, decision.channels.tolist(), decision.num_bits.tolist())


def test_every_solver_serves_everybody_at_the_least_cost_and_the_bound_is_below_it() -> None:
    rng = np.random.default_rng(51)
    sizes = set()
    for _ in range(40):
        problem = random_scale_free_problem(rng, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        best = brute.scale_free_optimum(problem)
        for solver in ("assignment", "exhaustive"):
            decision = solve_round(problem, solver=solver)
            assert decision.participates.all()
            assert decision.certificate is not None
            assert cost(problem, decision) == pytest.approx(best, rel=1e-9)
            assert decision.certificate.lower_bound <= best * (1.0 + 1e-9)
            assert 0.0 <= decision.certificate.gap <= 1e-9 * best
        sizes.add(problem.rates_bps.shape)
    assert len(sizes) > 6


def test_objective_is_the_formula_of_the_module() -> None:
    rng = np.random.default_rng(52)
    for _ in range(40):
        problem = random_scale_free_problem(rng)
        decision = solve_round(problem)
        absent = replace_first(decision)
        for one in (decision, absent):
            missing = int((~one.participates).sum())
            by_hand = problem.missing_price * missing + cost(problem, one)
            found = objective(problem, Allocation(one.channels, one.num_bits))
            assert found == pytest.approx(by_hand, abs=1e-12 * problem.empty_objective)
        assert decision.certificate is not None
        assert decision.certificate.objective == objective(problem, Allocation(decision.channels, decision.num_bits))
        nobody = empty_allocation(len(problem.dataset_sizes))
        assert objective(problem, nobody) == problem.missing_price * len(problem.dataset_sizes)


def replace_first(decision: Decision) -> Decision:
    """The decision without its first client."""
    channels, num_bits = decision.channels.copy(), decision.num_bits.copy()
    channels[0], num_bits[0] = -1, 0
    return replace(decision, channels=channels, num_bits=num_bits)


def test_assignment_is_exhaustive() -> None:
    rng = np.random.default_rng(53)
    for _ in range(60):
        problem = random_scale_free_problem(rng, int(rng.integers(2, 9)), int(rng.integers(1, 9)))
        found, best = solve_round(problem), solve_round(problem, solver="exhaustive")
        assert found.certificate is not None
        assert cost(problem, found) == pytest.approx(cost(problem, best), rel=1e-9)
        assert found.participates.all()
        assert 0.0 <= found.certificate.gap <= 1e-9 * cost(problem, best)


@pytest.mark.parametrize(("clients", "channels"), [(50, 20), (30, 5), (60, 90), (300, 200)])
def test_larger_rounds_are_proven(clients: int, channels: int) -> None:
    rng = np.random.default_rng(54)
    for _ in range(4):
        problem = random_scale_free_problem(rng, clients, channels)
        decision = solve_round(problem)
        assert decision.certificate is not None
        assert decision.participates.all()
        assert 0.0 <= decision.certificate.gap <= 1e-6 * cost(problem, decision)


def test_the_missing_price_exceeds_every_difference_in_cost() -> None:
    """The dearest decision with everybody is cheaper than the cheapest without one client."""
    rng = np.random.default_rng(56)
    dominant = 0
    for _ in range(100):
        problem = random_scale_free_problem(rng, int(rng.integers(2, 4)), 3, dead=0.0)
        values: dict[bool, list[float]] = {True: [], False: []}
        for channels in brute.feasible_allocations(problem):
            for bits in (1, 5, 12):
                value = brute.scale_free_cost(problem, channels, [bits] * len(channels))
                if max(channels) >= 0 and math.isfinite(value):
                    values[min(channels) >= 0].append(value)
        assert max(values[True]) < min(values[False], default=math.inf) + problem.missing_price
        dominant += max(values[True]) > 0.1 * problem.missing_price
    assert dominant > 5, "in some rounds a decision comes close to the price"


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


@pytest.mark.parametrize("form", ["paper", "paper, listed sizes", "scale-free"])
def test_useful_levels_never_cut_the_optimum(form: str) -> None:
    """Every pair at the least S that it can have: there an upload's error counts most."""
    rng = np.random.default_rng(57)
    tight, largest = 0, 0
    for _ in range(60):
        problem: Problem = random_scale_free_problem(rng) if form == "scale-free" else random_problem(rng, below=0.3)
        if form == "paper, listed sizes":
            problem = coded_problem(problem, rng, listed=True)  # type: ignore[arg-type]
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
        total = float(problem.dataset_sizes.sum())
        rows, columns = (index.ravel() for index in np.indices(problem.rates_bps.shape))
        exact, closed = ExactPairs(problem), ClosedFormPairs(problem)
        bits = exact.bits(total, rows, columns)
        np.testing.assert_array_equal(closed.bits(total, rows, columns), bits)
        np.testing.assert_allclose(closed.costs(total), exact.costs(total), rtol=1e-9)
        compared += len(rows)
        distinct |= set(bits.tolist())
    assert compared > 3000
    assert len(distinct) > 8
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


def test_the_genetic_solver_never_idles_and_is_never_better() -> None:
    """Most links are dead, so that a random chromosome is infeasible almost surely."""
    rng = np.random.default_rng(59)
    complete = []
    for _ in range(30):
        problem = random_scale_free_problem(rng, int(rng.integers(2, 10)), int(rng.integers(1, 9)), dead=0.8)
        rough, best = solve_round(problem, solver="genetic", rng=rng), solve_round(problem)
        assert rough.participates.any()
        assert rough.certificate is not None
        assert best.certificate is not None
        assert rough.certificate.objective >= best.certificate.objective - 1e-9 * cost(problem, best)
        assert rough.certificate.lower_bound <= best.certificate.objective + 1e-9 * cost(problem, best)
        complete.append(rough.participates.all())
    assert np.mean(complete) > 0.8, "it mostly serves everybody"


def test_a_problem_of_one_client_by_hand() -> None:
    """1,000 samples: 2e6 cycles at 200 MHz take 10 ms and 0.8 mJ. At 1e8 b/s three bits take 9.86 ms and 1.97 mJ."""
    statistics = equal_statistics(1000.0, weight_range=0.5)
    problem = ScaleFreeProblem(Observation(np.array([[1e8]]), statistics), CONSTANTS, 1000.0, 3e-4)
    errors = 246_590 * 0.25 / 4 / (2.0 ** np.arange(1, 5) - 1) ** 2
    sent_j = 0.2 * (246_590 * np.arange(2, 6) + 32) / 1e8
    compute_j = np.array([0.8e-3] * 3 + [1e-26 * 2e6 * (2e6 / (0.02 - sent_j[3] / 0.2)) ** 2])
    by_hand = 1000.0 * (sent_j + compute_j) + 3e-4 * errors
    decision = solve_round(problem)
    assert decision.num_bits.tolist() == [1 + int(by_hand.argmin())] == [2]
    assert decision.certificate is not None
    assert cost(problem, decision) == pytest.approx(by_hand.min())
    assert decision.certificate.objective == pytest.approx(by_hand.min(), rel=1e-9)
