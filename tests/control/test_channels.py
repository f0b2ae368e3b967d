"""Participants and channels: every solver compared with brute force and with the others."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qccf.control.bits_exact import ExactPairs
from qccf.control.channels_assignment import (
    _certify,
    _Node,
    _pivot,
    _Relaxation,
    _Search,
    _split,
    _Tangent,
    _tangent,
    solve_assignment,
)
from qccf.control.channels_exhaustive import solve_exhaustive
from qccf.control.channels_genetic import GeneticSettings, _cross, _fitness, _repair
from qccf.control.matching import match_everyone
from qccf.control.problem import Allocation, RoundProblem, objective
from qccf.control.solve import solve_round
from qccf.core.errors import ConfigError, SolverError
from support.problems import coded_problem, random_problem, typical_problem
from tests.helpers import brute


def relative(problem: RoundProblem, difference: float, value: float) -> float:
    return difference / max(abs(value), abs(problem.empty_objective - value), 1e-12)


def test_exhaustive_is_the_brute_force_optimum() -> None:
    rng = np.random.default_rng(11)
    for _ in range(25):
        problem = random_problem(
            rng, num_clients=int(rng.integers(1, 4)), num_channels=int(rng.integers(1, 4)), below=0.3
        )
        found = objective(problem, solve_exhaustive(problem, ExactPairs(problem)))
        true = brute.optimum(problem, most_bits=9)
        assert relative(problem, found - true, true) <= 1e-9


def test_listed_sizes_are_solved_exactly() -> None:
    rng = np.random.default_rng(15)
    for _ in range(15):
        problem = random_problem(rng, num_clients=int(rng.integers(1, 4)), num_channels=int(rng.integers(1, 4)))
        problem = coded_problem(problem, rng, listed=True)
        found = objective(problem, solve_exhaustive(problem, ExactPairs(problem)))
        true = brute.optimum(problem, most_bits=9)
        assert relative(problem, found - true, true) <= 1e-9
    for _ in range(150):
        problem = coded_problem(random_problem(rng), rng, listed=True)
        pairs = ExactPairs(problem)
        allocation, bound = solve_assignment(problem, pairs)
        best = objective(problem, solve_exhaustive(problem, pairs))
        assert relative(problem, objective(problem, allocation) - best, best) <= 1e-9
        assert relative(problem, bound - best, best) <= 1e-9


def test_closed_forms_refuse_listed_sizes() -> None:
    rng = np.random.default_rng(16)
    problem = coded_problem(random_problem(rng), rng, listed=True)
    with pytest.raises(ConfigError, match="needs a codec whose payload bits are affine"):
        solve_round(problem, inner="closed-form")


def test_objective_is_the_papers_formula() -> None:
    rng = np.random.default_rng(12)
    for _ in range(50):
        problem = random_problem(rng)
        decision = solve_round(problem)
        by_hand = brute.objective(problem, decision.channels.tolist(), decision.num_bits.tolist())
        assert decision.certificate is not None
        assert decision.certificate.objective == pytest.approx(by_hand, rel=1e-12)
        allocation = Allocation(decision.channels, decision.num_bits)
        assert objective(problem, allocation) == decision.certificate.objective


@pytest.mark.slow
def test_assignment_equals_exhaustive_on_a_thousand_rounds() -> None:
    rng = np.random.default_rng(13)
    wrong, worst, proven = 0, 0.0, 0
    for _ in range(1000):
        problem = random_problem(rng)
        pairs = ExactPairs(problem)
        allocation, bound = solve_assignment(problem, pairs)
        value = objective(problem, allocation)
        best = objective(problem, solve_exhaustive(problem, pairs))
        gap = relative(problem, value - best, best)
        wrong += gap > 1e-9
        worst = max(worst, gap)
        assert relative(problem, bound - best, best) <= 1e-9, "the lower bound is above the optimum"
        proven += relative(problem, value - bound, value) <= 1e-8
    assert wrong <= 1
    assert worst <= 1e-4
    assert proven >= 990


@pytest.mark.parametrize("below", [0.0, 1.0])
def test_bound_holds_above_and_below_the_budgets(below: float) -> None:
    rng = np.random.default_rng(14)
    for _ in range(60):
        problem = random_problem(rng, below=below)
        pairs = ExactPairs(problem)
        _, bound = solve_assignment(problem, pairs)
        best = objective(problem, solve_exhaustive(problem, pairs))
        assert relative(problem, bound - best, best) <= 1e-9


def test_large_rounds_are_certified() -> None:
    problem = typical_problem(300, 40)
    decision = solve_round(problem)
    assert decision.certificate is not None
    gain = problem.empty_objective - decision.certificate.objective
    assert decision.participates.sum() == 40
    assert 0.0 <= decision.certificate.gap <= 1e-3 * gain


def test_genetic_is_close_and_never_better() -> None:
    gaps = []
    for seed in range(10):
        problem = typical_problem(10, 10, seed)
        exact = solve_round(problem).certificate
        rough = solve_round(problem, solver="genetic", rng=np.random.default_rng(seed)).certificate
        assert exact is not None
        assert rough is not None
        assert rough.objective >= exact.objective - 1e-9 * abs(exact.objective)
        assert rough.lower_bound <= exact.objective + 1e-9 * abs(exact.objective)
        gaps.append((rough.objective - exact.objective) / (problem.empty_objective - exact.objective))
    assert np.median(gaps) < 0.01


def test_elitism_never_hurts_on_average() -> None:
    plain, elite = [], []
    for seed in range(8):
        problem = typical_problem(10, 10, seed)
        for values, keep in ((plain, 0), (elite, 2)):
            settings = GeneticSettings(population=20, generations=15, elitism=keep)
            decision = solve_round(problem, solver="genetic", rng=np.random.default_rng(seed), genetic=settings)
            assert decision.certificate is not None
            values.append(decision.certificate.objective)
    assert np.mean(elite) <= np.mean(plain)


def test_exhaustive_refuses_too_many_clients() -> None:
    with pytest.raises(SolverError, match="at most 12 clients, but this problem has 13"):
        solve_round(random_problem(np.random.default_rng(0), num_clients=13, num_channels=2), solver="exhaustive")


def test_a_round_without_reachable_clients_is_empty() -> None:
    problem = random_problem(np.random.default_rng(1), num_clients=5, num_channels=4)
    problem.observation.rates_bps[:] = 0.0
    for solver in ("assignment", "genetic", "exhaustive"):
        decision = solve_round(problem, solver=solver)
        assert decision.certificate is not None
        assert not decision.participates.any()
        assert decision.certificate.objective == pytest.approx(problem.empty_objective)
        assert decision.certificate.gap == 0.0


def all_decisions(problem: RoundProblem) -> list[tuple[float, float, np.ndarray, np.ndarray]]:
    """Every feasible set of participants: S, best value minus that of the empty round, members and their channels."""
    pairs = ExactPairs(problem)
    num_clients = len(problem.dataset_sizes)
    found = []
    for mask in range(1, 2**num_clients):
        members = np.flatnonzero([(mask >> i) & 1 for i in range(num_clients)])
        total = float(problem.dataset_sizes[members].sum())
        matched = match_everyone(pairs.costs(total, members))
        if matched is not None:
            found.append((total, matched[0], members, matched[1]))
    return found


def test_no_decision_of_a_node_is_below_the_nodes_bound() -> None:
    """A node's bound holds for any interval of S, any clients in or out, and any μ."""
    rng = np.random.default_rng(15)
    compared, tight = 0, 0
    for _ in range(60):
        problem = random_problem(
            rng, num_clients=int(rng.integers(2, 7)), num_channels=int(rng.integers(1, 7)), below=0.4
        )
        decisions = all_decisions(problem)
        relaxation = _Relaxation(problem, ExactPairs(problem))
        root = relaxation.root()
        if root is None:
            assert not decisions
            continue
        for _ in range(20):
            low, high = np.sort(rng.uniform(root.low * 0.9, root.high * 1.1, 2))
            fate = rng.choice([0, 1, 2], size=len(problem.dataset_sizes), p=[0.7, 0.15, 0.15])
            inside, outside = (fate == 1) & ~root.outside, (fate == 2) | root.outside
            node = relaxation.narrowed(float(low), float(high), inside, outside)
            values = [
                value
                for total, value, members, _ in decisions
                if low <= total <= high and set(np.flatnonzero(inside)) <= set(members) and not outside[members].any()
            ]
            if node is None:
                assert not values, "a node that contains a decision was dropped"
                continue
            natural = relaxation.marginal_bonus(*decisions[rng.integers(len(decisions))][2:])
            bonus = float(natural * rng.lognormal(0.0, 1.0) * rng.choice([1.0, 1.0, -1.0]))
            bound = _tangent(_Search(problem, relaxation.exact), relaxation, node, bonus).value
            if values:
                scale = max(abs(min(values)), abs(bound) * 1e-3)
                assert bound <= min(values) + 1e-9 * scale
                tight += bound >= min(values) - 0.5 * scale
                compared += 1
    assert compared > 300
    assert tight > 30, "some bounds must be tight"


class NeverFindsAnything(_Search):
    """A search that ignores all candidates."""

    def offer(self, members: np.ndarray) -> None:
        pass


def test_the_proof_does_not_depend_on_the_search() -> None:
    """Branch and bound without candidates must still end with a bound below the optimum: no branch may be lost."""
    rng = np.random.default_rng(16)
    compared = 0
    for _ in range(150):
        problem = random_problem(
            rng, num_clients=int(rng.integers(2, 7)), num_channels=int(rng.integers(1, 7)), below=0.5
        )
        exact = ExactPairs(problem)
        relaxation = _Relaxation(problem, exact)
        root = relaxation.root()
        if root is None:
            continue
        optimum = min((value for _, value, _, _ in all_decisions(problem)), default=0.0)
        search = NeverFindsAnything(problem, exact)
        search.value = 0.3 * min(optimum, 0.0)
        bound = _certify(search, relaxation, root, small=True)
        if optimum < 0.0:
            assert bound <= optimum + 1e-9 * abs(optimum)
            compared += 1
    assert compared > 50


@pytest.mark.parametrize(("clients", "channels"), [(40, 30), (101, 10), (200, 50)])
def test_large_decisions_are_no_worse_than_one_client_alone_or_an_empty_round(clients: int, channels: int) -> None:
    rng = np.random.default_rng(17)
    for _ in range(12):
        problem = random_problem(rng, clients, channels, below=0.5)
        allocation, bound = solve_assignment(problem, ExactPairs(problem))
        value = objective(problem, allocation)
        all_clients = np.arange(clients)
        alone = ExactPairs(problem).chosen_costs(problem.dataset_sizes, all_clients, problem.rates_bps.argmax(axis=1))
        best = problem.empty_objective + min(float(alone.min()), 0.0)
        assert relative(problem, value - best, best) <= 1e-9
        assert bound <= value


def test_the_average_bound_holds_and_is_exact_for_a_single_client() -> None:
    rng = np.random.default_rng(18)
    for _ in range(60):
        problem = random_problem(
            rng, num_clients=int(rng.integers(1, 6)), num_channels=int(rng.integers(1, 6)), below=0.6
        )
        relaxation = _Relaxation(problem, ExactPairs(problem))
        root = relaxation.root()
        decisions = all_decisions(problem)
        if root is None or not decisions:
            continue
        bound, best = relaxation.average_bound(root), min(value for _, value, _, _ in decisions)
        assert bound <= best + 1e-9 * abs(best)
        if len(decisions) == 1 and problem.quantization_pressure < 0.0:
            assert bound == pytest.approx(best)


def test_fitness_follows_its_exponent() -> None:
    values = np.array([4.0, 1.0, np.inf, 2.0])
    np.testing.assert_allclose(_fitness(values, 1.0), [0.0, 3.0, 0.0, 2.0])
    np.testing.assert_allclose(_fitness(values, 2.0), [0.0, 9.0, 0.0, 4.0])
    assert _fitness(np.array([np.inf, np.inf]), 1.0).tolist() == [0.0, 0.0]


def test_crossover_follows_its_probability_and_keeps_the_genes_of_a_pair() -> None:
    parents = np.arange(40).reshape(4, 10)
    assert (_cross(parents, 0.0, np.random.default_rng(0)) == parents).all()
    children = _cross(parents, 1.0, np.random.default_rng(0))
    assert (children != parents).any(axis=1).all()
    assert (np.sort(children[[0, 2]], axis=0) == parents[[0, 2]]).all()


def test_repair_keeps_the_fastest_channel_and_reassigns_the_others() -> None:
    rates = np.array([[5.0, 9.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    repaired = _repair(np.array([[0, 0, 0], [-1, 1, -1], [2, 1, 0]]), rates, np.random.default_rng(0))
    assert repaired[0, 1] == 0
    assert sorted(repaired[0].tolist()) == [0, 1, 2]
    assert repaired[1].tolist() == [-1, 1, -1]
    assert repaired[2].tolist() == [2, 1, 0]


def test_a_tangent_touches_the_least_value_of_its_chord_and_is_nowhere_below_the_bound() -> None:
    """The bound is concave in μ, so at any other μ it is at most what the tangent says."""
    rng = np.random.default_rng(19)
    inner = 0
    for _ in range(12):
        problem = random_problem(rng, num_clients=5, num_channels=int(rng.integers(2, 6)), below=0.3)
        relaxation = _Relaxation(problem, ExactPairs(problem))
        root = relaxation.root()
        decisions = all_decisions(problem)
        if root is None or not decisions or root.low == root.high:
            continue
        natural = relaxation.marginal_bonus(*decisions[rng.integers(len(decisions))][2:])
        tangents = []
        for bonus in natural * np.array([-1.0, 0.0, 0.1, 0.5, 1.0, 2.0, 5.0]):
            tangent = _tangent(_Search(problem, relaxation.exact), relaxation, root, float(bonus))
            first, last = (relaxation.match(total, bonus, root).value for total in (root.low, root.high))
            assert (tangent.bonus, tangent.at_low) == (bonus, first + bonus * root.low)
            assert tangent.at_high == last + bonus * root.high
            totals = np.geomspace(root.low, root.high, 500)
            share = (1.0 / totals - 1.0 / root.high) / (1.0 / root.low - 1.0 / root.high)
            chord = share * first + (1.0 - share) * last + bonus * totals
            scale = np.abs(chord).max()
            assert chord.min() - 1e-4 * scale <= tangent.value <= chord.min() + 1e-12 * scale
            assert tangent.weakest == pytest.approx(totals[chord.argmin()], rel=0.02)
            inner += root.low < tangent.weakest < root.high
            tangents.append(tangent)
        for one in tangents:
            for other in tangents:
                above = one.value + one.slope * (other.bonus - one.bonus)
                assert other.value <= above + 1e-9 * max(abs(one.value), abs(other.value))
    assert inner > 5, "some have their least value between the ends"


NOBODY = np.zeros(4, dtype=bool)
NODE = _Node(2.0, 6.0, NOBODY, NOBODY)


def made_tangent(weakest: float, at_low: float, at_high: float, *members: int) -> _Tangent:
    return _Tangent(0.5, -9.0, 0.0, weakest, np.array(members, dtype=np.int64), at_low, at_high)


def test_an_interval_is_split_at_its_weakest_sum_or_in_the_middle_of_its_inverse() -> None:
    """With μ = 0.5 and a relaxation of -3 the weakest sum 4 has the bound -3 + 0.5·4 = -1."""
    relaxation: Any = SimpleNamespace(match=lambda *_: SimpleNamespace(value=-3.0))
    between = made_tangent(4.0, -9.0, -9.0)
    assert _split(relaxation, NODE, [between], between, -1.0) == 4.0
    assert _split(relaxation, NODE, [between], between, -0.9) is None
    ends = [made_tangent(2.0, -1.0, -5.0), made_tangent(6.0, -5.0, -1.0)]
    for best in ends:
        assert _split(relaxation, NODE, ends, best, -1.0) == pytest.approx(3.0), "each end is good enough at its own μ"
        assert _split(relaxation, NODE, ends, best, -0.9) is None
        assert _split(relaxation, NODE, [best], best, -1.0) is None
        assert _split(relaxation, NODE._replace(high=2.0), ends, best, -1.0) is None


def test_a_node_branches_on_the_largest_free_client_that_is_in_doubt() -> None:
    relaxation: Any = SimpleNamespace(sizes=np.array([4.0, 3.0, 2.0, 1.0]))
    below, above = made_tangent(4.0, 0.0, 0.0, 0, 1), made_tangent(4.0, 0.0, 0.0, 0, 2)
    first, second = np.arange(4) == 0, np.arange(4) == 1
    assert _pivot(relaxation, NODE, below, above) == 1, "client 0 is in both"
    assert _pivot(relaxation, NODE._replace(inside=second), below, above) == 2
    assert _pivot(relaxation, NODE._replace(outside=second), below, above) == 2
    assert _pivot(relaxation, NODE, below, below) == 0, "no difference"
    assert _pivot(relaxation, NODE._replace(inside=first), below, None) == 1
    assert _pivot(relaxation, NODE, None, above) == 0
    assert _pivot(relaxation, NODE._replace(inside=first | second, outside=~(first | second)), below, above) is None
