"""Participants and channels: every solver compared with brute force and with the others."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qccf.control import channels_assignment, solve
from qccf.control.bits_exact import ExactPairs
from qccf.control.channels_assignment import (
    _best_alone,
    _bound,
    _certify,
    _improve,
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
from qccf.control.channels_genetic import (
    GeneticSettings,
    _cross,
    _decode,
    _first_generation,
    _fitness,
    _mutate,
    _repair,
    _roulette,
    _values,
    solve_genetic,
)
from qccf.control.matching import cheapest_matching, match_everyone
from qccf.control.problem import Allocation, RoundProblem, objective
from qccf.control.solve import solve_round
from qccf.core.contracts import Observation
from qccf.core.errors import ConfigError, SolverError
from support.problems import CONSTANTS, coded_problem, equal_statistics, random_problem, typical_problem
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
    problem = random_problem(np.random.default_rng(0), num_clients=12, num_channels=1)
    assert solve_round(problem, solver="exhaustive").certificate is not None
    with pytest.raises(SolverError, match="at most 12 clients, but this problem has 13"):
        solve_round(random_problem(np.random.default_rng(0), num_clients=13, num_channels=2), solver="exhaustive")


def test_a_round_without_reachable_clients_is_empty() -> None:
    problem = random_problem(np.random.default_rng(1), num_clients=5, num_channels=4)
    problem.observation.rates_bps[:] = 0.0
    for solver in ("assignment", "genetic", "exhaustive"):
        decision = solve_round(problem, solver=solver)
        assert decision.certificate is not None
        assert (decision.channels == -1).all()
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


@pytest.mark.parametrize("known", [0.3, 0.999])
def test_the_proof_does_not_depend_on_the_search(known: float) -> None:
    """Branch and bound without candidates must still end with a bound below the optimum: no branch may be lost.

    The search knows a share of the optimum. Near to the optimum, intervals are split, too.
    """
    rng = np.random.default_rng(16)
    compared = 0
    for _ in range(100):
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
        search.value = known * min(optimum, 0.0)
        bound = _certify(search, relaxation, root, small=True)
        if optimum < 0.0:
            assert bound <= optimum + 1e-9 * abs(optimum)
            compared += 1
    assert compared > 30


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
    many = np.repeat([[0], [1]], 500, axis=0) * np.ones((1, 8), dtype=np.int64)
    for probability in (1.0, 0.4):
        swapped = (_cross(many, probability, np.random.default_rng(0)) != many)[:500]
        assert swapped.mean() == pytest.approx(0.5 * probability, abs=0.05), "half of the genes of those that cross"
        assert swapped.any(axis=1).mean() == pytest.approx(probability, abs=0.08)


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


def test_after_improving_no_client_more_less_or_swapped_is_better() -> None:
    """From any set of participants, on as many channels: often some of them must be swapped."""
    rng = np.random.default_rng(20)
    improved = 0
    for _ in range(40):
        problem = random_problem(rng, num_clients=6, num_channels=3, below=0.0)
        search = _Search(problem, ExactPairs(problem))
        best = {frozenset(members.tolist()): value for _, value, members, _ in all_decisions(problem)}
        search.offer(np.sort(rng.choice(6, 3, replace=False)))
        start = search.value
        _improve(search)
        if start == 0.0:
            assert search.value == 0.0, "there was nothing to improve"
            continue
        members = frozenset(search.members.tolist())
        assert search.value == pytest.approx(best[members])
        others = set(range(6)) - members
        neighbours = [members | {new} for new in others] + [members - {old} for old in members]
        neighbours += [members - {old} | {new} for old in members for new in others]
        assert search.value <= min(best.get(one, 0.0) for one in neighbours) + 1e-12 * abs(search.value)
        improved += search.value < start
    assert improved > 5


def test_the_bonus_of_a_decision_is_what_a_larger_sum_of_samples_would_lower() -> None:
    """μ = -dJ/dS with the participants, their channels and their bits as they are."""
    rng = np.random.default_rng(25)
    compared = 0
    for _ in range(20):
        problem = random_problem(rng, num_clients=4, num_channels=4, below=0.2)
        exact = ExactPairs(problem)
        relaxation = _Relaxation(problem, exact)
        assert relaxation.marginal_bonus(np.array([], dtype=np.int64), np.array([], dtype=np.int64)) == 0.0
        for total, _, members, columns in all_decisions(problem):
            values = [exact.chosen_costs(total * factor, members, columns).sum() for factor in (1 - 1e-6, 1 + 1e-6)]
            slope = (values[0] - values[1]) / (2e-6 * total)
            assert relaxation.marginal_bonus(members, columns) == pytest.approx(slope, rel=1e-3)
            compared += 1
    assert compared > 50


def test_the_relaxation_is_the_best_assignment_with_and_without_the_clients_of_a_node() -> None:
    rng = np.random.default_rng(26)
    forced, impossible = 0, 0
    for _ in range(60):
        problem = random_problem(rng, num_clients=4, num_channels=int(rng.integers(1, 5)), below=0.3)
        relaxation = _Relaxation(problem, ExactPairs(problem))
        fate = rng.choice([0, 1, 2], size=4, p=[0.5, 0.25, 0.25])
        node = _Node(1.0, np.inf, fate == 1, fate == 2)
        total = float(rng.uniform(0.2, 1.0) * problem.dataset_sizes.sum())
        bonus = float(rng.normal() * 1e-3 * abs(problem.empty_objective) / total)
        found = relaxation.match(total, bonus, node)
        costs = relaxation.exact.costs(total) - bonus * problem.dataset_sizes[:, None]
        values = [0.0] if not node.inside.any() else []
        for mask in range(1, 16):
            members = np.flatnonzero([(mask >> i) & 1 for i in range(4)])
            if set(np.flatnonzero(node.inside)) <= set(members) and not node.outside[members].any():
                matched = match_everyone(costs[members])
                values += [matched[0]] if matched is not None else []
        best = min(values, default=np.inf)
        scale = float(np.abs(costs[np.isfinite(costs)]).max(initial=1.0))
        assert found.value == pytest.approx(best, abs=1e-9 * scale)
        if np.isfinite(best):
            assert found.total == problem.dataset_sizes[found.members].sum()
            assert costs[found.members, found.columns].sum() == pytest.approx(best, abs=1e-9 * scale)
        forced += node.inside.any() and np.isfinite(best)
        impossible += best == np.inf
    assert forced > 10
    assert impossible > 5


def test_the_first_generation_has_each_client_once_and_first_as_many_as_possible() -> None:
    for clients, channels in ((5, 3), (3, 5), (4, 4)):
        generation = _first_generation(200, clients, channels, np.random.default_rng(0))
        assert generation.shape == (200, channels)
        assert (generation[0] >= 0).sum() == min(clients, channels)
        for chromosome in generation:
            used = chromosome[chromosome >= 0]
            assert len(set(used)) == len(used)
        assert set(generation.ravel()) == set(range(-1, clients))
        assert set((generation >= 0).sum(axis=1)) == set(range(min(clients, channels) + 1)), "any number of channels"


def test_mutation_follows_its_probability_and_reaches_everybody() -> None:
    children = np.full((400, 5), 7)
    assert (_mutate(children, 3, 0.0, np.random.default_rng(0)) == 7).all()
    assert set(_mutate(children, 3, 1.0, np.random.default_rng(0)).ravel()) == {-1, 0, 1, 2}
    share = (_mutate(children, 3, 0.25, np.random.default_rng(0)) != 7).mean()
    assert share == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / 2000))


def test_parents_are_chosen_in_proportion_to_their_fitness() -> None:
    for unit in (1.0, 1e-9):
        chosen = _roulette(unit * np.array([0.0, 1.0, 3.0]), 4000, np.random.default_rng(0))
        assert np.bincount(chosen, minlength=3) == pytest.approx([0, 1000, 3000], abs=5 * np.sqrt(4000 * 0.25 * 0.75))
    equal = _roulette(np.zeros(4), 4000, np.random.default_rng(0))
    assert np.bincount(equal) == pytest.approx([1000] * 4, abs=5 * np.sqrt(4000 * 0.25 * 0.75))


def test_the_value_of_a_chromosome_is_its_objective_above_the_empty_round() -> None:
    rng = np.random.default_rng(21)
    problem = random_problem(rng, num_clients=4, num_channels=3, below=0.2)
    pairs = ExactPairs(problem)
    generation = _first_generation(60, 4, 3, rng)
    for chromosome, value in zip(generation, _values(problem, pairs, generation), strict=True):
        columns = np.flatnonzero(chromosome >= 0)
        rows = chromosome[columns]
        channels, bits = np.full(4, -1), np.zeros(4, dtype=np.int64)
        channels[rows] = columns
        if len(rows):
            bits[rows] = pairs.bits(float(problem.dataset_sizes[rows].sum()), rows, columns)
        if (bits[rows] == 0).any():
            assert value == np.inf
        else:
            expected = objective(problem, Allocation(channels, bits)) - problem.empty_objective
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9 * abs(problem.empty_objective))


def test_of_many_clients_the_cheapest_are_matched() -> None:
    """All channels want the same clients, so every one of these counts."""
    rng = np.random.default_rng(22)
    for _ in range(20):
        worth = rng.permutation(np.arange(-1000.0, 1000.0))
        value, channels = cheapest_matching(np.tile(-worth[:, None], (1, 4)))
        assert value == -(999.0 + 998.0 + 997.0 + 996.0)
        assert sorted(worth[channels >= 0]) == [996.0, 997.0, 998.0, 999.0]
        _, channels = cheapest_matching(np.tile(-worth[:, None], (1, 30)))
        assert sorted(worth[channels >= 0]) == list(range(970, 1000))
    value, channels = cheapest_matching(np.abs(rng.normal(size=(40, 4))))
    assert (value, channels.max()) == (0.0, -1), "nobody pays to take part"


def test_a_problem_without_clients_has_no_costs() -> None:
    problem = random_problem(np.random.default_rng(23), num_clients=3, num_channels=2)
    nobody = replace(problem, observation=problem.observation.of(np.array([], dtype=np.int64)))
    assert ExactPairs(nobody).costs(1.0).shape == (0, 2)


def test_the_bound_of_a_node_is_the_best_over_all_bonuses() -> None:
    """The greatest value of the tangents over a fine grid of μ, on the best decision's side and beyond."""
    rng = np.random.default_rng(24)
    shares = []
    for _ in range(12):
        problem = random_problem(rng, num_clients=6, num_channels=int(rng.integers(2, 7)), below=0.3)
        relaxation = _Relaxation(problem, ExactPairs(problem))
        root, decisions = relaxation.root(), all_decisions(problem)
        if root is None or min((value for _, value, _, _ in decisions), default=0.0) >= 0.0:
            continue
        _, value, members, columns = min(decisions, key=lambda one: one[1])
        natural = relaxation.marginal_bonus(members, columns)
        search = NeverFindsAnything(problem, relaxation.exact)
        search.value = 1e-3 * value  # far above every bound, so that none is good enough
        found = _bound(search, relaxation, root, natural, 1e-10, 0).value
        grid = natural * np.concatenate([-np.geomspace(1e-2, 10.0, 15), [0.0], np.geomspace(1e-2, 10.0, 40)])
        best = max(_tangent(search, relaxation, root, float(bonus)).value for bonus in grid)
        best = max(best, relaxation.average_bound(root))
        shares.append((found - best) / abs(value))
    assert len(shares) > 5
    assert min(shares) > -1e-3


def test_the_average_bound_of_a_node_by_brute_force() -> None:
    """Each set of clients that the node allows pays for its presence and least energy, and the best average once."""
    rng = np.random.default_rng(27)
    compared = 0
    for _ in range(80):
        problem = random_problem(rng, num_clients=4, num_channels=int(rng.integers(1, 5)), below=0.4)
        relaxation = _Relaxation(problem, ExactPairs(problem))
        fate = rng.choice([0, 1, 2], size=4, p=[0.5, 0.3, 0.2])
        node = relaxation.narrowed(0.0, np.inf, fate == 1, fate == 2)
        if node is None:
            continue
        alone = problem.presence_costs + relaxation.exact.cheapest_energy()
        averages = (problem.spread_costs + np.minimum(problem.error_costs, 0.0)) / problem.dataset_sizes
        sums = [
            alone[members].sum()
            for mask in range(1, 16)
            if len(members := np.flatnonzero([(mask >> i) & 1 for i in range(4)])) <= problem.rates_bps.shape[1]
            and set(np.flatnonzero(fate == 1)) <= set(members)
            and not (fate[members] == 2).any()
        ]
        assert relaxation.average_bound(node) == pytest.approx(min(sums) + averages[fate != 2].min())
        compared += 1
    assert compared > 40


def small_relaxation(*sizes: float, channels: int, usable: int = 9) -> _Relaxation:
    """Clients with these samples and equally fast channels; those after the first `usable` clients reach none."""
    rates_bps = np.full((len(sizes), channels), 1e8)
    rates_bps[usable:] = 0.0
    problem = RoundProblem(Observation(rates_bps, equal_statistics(*sizes)), CONSTANTS, 1.0, 1.0)
    return _Relaxation(problem, ExactPairs(problem))


def test_the_root_reaches_from_the_smallest_client_to_the_largest_that_fit() -> None:
    for channels, high in ((1, 8.0), (2, 12.0), (3, 14.0), (4, 14.25), (5, 14.25)):
        root = small_relaxation(4.0, 0.25, 8.0, 2.0, 64.0, channels=channels, usable=4).root()
        assert root is not None
        assert (root.low, root.high) == (0.25, high)
        assert root.outside.tolist() == [False, False, False, False, True], "the last has no link"
        assert not root.inside.any()
    assert small_relaxation(4.0, 2.0, channels=2, usable=0).root() is None


@pytest.mark.parametrize(
    ("inside", "outside", "given", "narrowed"),
    [
        ([], [], (0.0, np.inf), (1.0, 12.0)),
        ([0], [], (0.0, np.inf), (4.0, 12.0)),
        ([0, 1], [], (0.0, np.inf), (6.0, 6.0)),
        ([0, 1], [], (6.0, 6.0), (6.0, 6.0)),
        ([0, 1, 2], [], (0.0, np.inf), None),
        ([], [0, 2], (0.0, np.inf), (1.0, 3.0)),
        ([], [0, 1, 2, 3], (0.0, np.inf), None),
        ([0, 1], [2, 3], (0.0, np.inf), (6.0, 6.0)),
        ([2], [], (9.0, 11.0), (9.0, 11.0)),
        ([2], [], (12.5, 20.0), None),
        ([2], [], (1.0, 7.5), None),
    ],
)
def test_a_node_is_narrowed_to_the_sums_of_its_clients(
    inside: list[int], outside: list[int], given: tuple[float, float], narrowed: tuple[float, float] | None
) -> None:
    """4, 2, 8 and 1 samples, two channels."""
    masks = [np.isin(np.arange(4), clients) for clients in (inside, outside)]
    node = small_relaxation(4.0, 2.0, 8.0, 1.0, channels=2).narrowed(*given, *masks)
    assert (None if node is None else (node.low, node.high)) == narrowed


def test_with_more_channels_than_clients_repair_leaves_the_rest_idle() -> None:
    rates = np.array([[5.0, 9.0, 1.0, 2.0, 3.0], [2.0] * 5])
    for seed in range(5):
        repaired = _repair(np.zeros((1, 5), dtype=np.int64), rates, np.random.default_rng(seed))
        assert repaired[0, 1] == 0
        assert sorted(repaired[0].tolist()) == [-1, -1, -1, 0, 1]
    alone = _repair(np.zeros((1, 3), dtype=np.int64), rates[:1, :3], np.random.default_rng(0))
    assert alone.tolist() == [[-1, 0, -1]]


def test_the_genetic_solver_has_a_seed_of_its_own() -> None:
    problem = typical_problem(8, 8)
    short = GeneticSettings(population=4, generations=1)
    found = [
        solve_round(problem, solver="genetic", genetic=short, rng=rng).channels.tolist()
        for rng in (None, np.random.default_rng(0), np.random.default_rng(1))
    ]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("inner", ["exact", "closed-form", "printed"])
def test_the_exhaustive_bound_is_the_true_optimum_whatever_finds_the_bits(inner: Any) -> None:
    rng = np.random.default_rng(28)
    worse = 0
    for _ in range(8):
        problem = random_problem(rng, num_clients=3, num_channels=3, below=0.0)
        certificate = solve_round(problem, solver="exhaustive", inner=inner).certificate
        best = objective(problem, solve_exhaustive(problem, ExactPairs(problem)))
        assert certificate is not None
        assert certificate.lower_bound == pytest.approx(best, rel=1e-12)
        worse += certificate.objective > best + 1e-6 * abs(best)
    assert (worse > 0) == (inner == "printed"), "the errata cost something"


def test_the_time_of_a_decision_is_from_its_start_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "perf_counter", iter([5.0, 7.5]).__next__)
    certificate = solve_round(random_problem(np.random.default_rng(0), 3, 2)).certificate
    assert certificate is not None
    assert certificate.wall_time_s == 2.5


def test_the_slope_of_a_tangent_is_how_the_bound_moves_with_the_bonus() -> None:
    """Also where the interval is one point. Where the assignment changes, the bound has a kink and no slope."""
    rng = np.random.default_rng(29)
    kinks, inner = [], 0
    for _ in range(25):
        problem = random_problem(rng, num_clients=5, num_channels=int(rng.integers(2, 6)), below=0.2)
        relaxation = _Relaxation(problem, ExactPairs(problem))
        root, decisions = relaxation.root(), all_decisions(problem)
        if root is None or not decisions:
            continue
        total, _, members, columns = decisions[rng.integers(len(decisions))]
        bonus = relaxation.marginal_bonus(members, columns) * float(rng.lognormal())
        for node in (root, root._replace(low=total, high=total)):
            search = NeverFindsAnything(problem, relaxation.exact)
            tangent = _tangent(search, relaxation, node, bonus)
            step = 1e-5 * abs(bonus)
            low, high = (_tangent(search, relaxation, node, bonus + one).value for one in (-step, step))
            scale = problem.dataset_sizes.sum()
            kinks.append(abs((high - low) / (2.0 * step) - tangent.slope) > 1e-3 * scale)
            inner += node.low < tangent.weakest < node.high
            assert tangent.at_low == pytest.approx(relaxation.match(node.low, bonus, node).value + bonus * node.low)
            assert tangent.at_high == pytest.approx(relaxation.match(node.high, bonus, node).value + bonus * node.high)
    assert len(kinks) > 30
    assert sum(kinks) <= 1
    assert inner > 5


def test_clients_that_cost_more_than_they_bring_are_dropped() -> None:
    """Everybody has a channel, so that nobody can be added or swapped."""
    rng = np.random.default_rng(30)
    dropped = 0
    for _ in range(60):
        problem = random_problem(rng, num_clients=4, num_channels=4, below=0.0)
        search = _Search(problem, ExactPairs(problem))
        search.offer(np.arange(4))
        if search.value == 0.0:
            continue
        _improve(search)
        best = {frozenset(members.tolist()): value for _, value, members, _ in all_decisions(problem)}
        members = frozenset(search.members.tolist())
        fewer = min((best.get(members - {one}, 0.0) for one in members), default=0.0)
        assert search.value <= fewer + 1e-12 * abs(search.value)
        dropped += len(members) == 3
    assert dropped > 3


def test_small_rounds_are_proven_with_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some proofs take 50 nodes, split at sums and at clients, most of them one or two: 548 together."""
    nodes = []

    def counted(*arguments: Any) -> Any:
        nodes.append(_bound(*arguments))
        return nodes[-1]

    monkeypatch.setattr(channels_assignment, "_bound", counted)
    rng = np.random.default_rng(41)
    for _ in range(100):
        problem = random_problem(rng, int(rng.integers(4, 11)), int(rng.integers(2, 8)), below=0.3)
        allocation, bound = solve_assignment(problem, ExactPairs(problem))
        value = objective(problem, allocation)
        assert relative(problem, value - bound, value) <= 1e-9
    assert 400 < len(nodes) < 650


@pytest.mark.parametrize("inner", ["exact", "closed-form"])
def test_nothing_is_left_out_of_what_a_pair_costs(inner: str) -> None:
    """Presence, what depends on S alone, error and energy: together the objective of a round of one client."""
    rng = np.random.default_rng(31)
    for _ in range(10):
        problem = random_problem(rng, num_clients=3, num_channels=2, below=0.2)
        pairs = solve._pair_model(problem, inner, None)  # type: ignore[arg-type]
        for client in range(3):
            total = float(problem.dataset_sizes[client])
            costs = pairs.costs(total, np.array([client]))[0]
            bits = pairs.bits(total, np.full(2, client), np.arange(2))
            chosen = pairs.chosen_costs(np.full(2, total), np.full(2, client), np.arange(2))
            np.testing.assert_allclose(chosen, costs, rtol=1e-12)
            for channel in range(2):
                if bits[channel] == 0:
                    assert costs[channel] == np.inf
                    continue
                channels, num_bits = [-1, -1, -1], [0, 0, 0]
                channels[client], num_bits[client] = channel, int(bits[channel])
                value = brute.objective(problem, channels, num_bits) - problem.empty_objective
                assert costs[channel] == pytest.approx(value, rel=1e-9, abs=1e-9 * abs(problem.empty_objective))


def test_a_decision_with_a_gap_is_improved(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the best single client, with half of it as a gap. Each client has a channel that it cannot use."""
    monkeypatch.setattr(channels_assignment, "_certify", lambda search, *_: 1.5 * search.value)
    monkeypatch.setattr(channels_assignment, "_fixed_point", lambda *_: None)
    rng = np.random.default_rng(32)
    several = 0
    for _ in range(10):
        problem = random_problem(rng, num_clients=4, num_channels=3, below=0.0)
        problem = replace(problem, participation_queue=1e3 * problem.participation_queue)
        problem.rates_bps[np.arange(4), [0, 1, 2, 0]] = 0.0
        allocation, _ = solve_assignment(problem, ExactPairs(problem))
        values = {tuple(members.tolist()): value for _, value, members, _ in all_decisions(problem)}
        alone = min((value for members, value in values.items() if len(members) == 1), default=0.0)
        value = objective(problem, allocation) - problem.empty_objective
        assert value <= min(alone, 0.0) + 1e-9 * abs(alone)
        several += alone < 0.0 and value < 1.1 * alone
    assert several > 5


def test_every_assignment_on_the_way_is_a_candidate() -> None:
    """Those at both ends of an interval."""
    rng = np.random.default_rng(33)
    ends = {"low": 0, "high": 0}
    for _ in range(30):
        problem = random_problem(rng, num_clients=5, num_channels=3, below=0.1)
        relaxation = _Relaxation(problem, ExactPairs(problem))
        root = relaxation.root()
        if root is None:
            continue
        search, reference = (_Search(problem, relaxation.exact) for _ in range(2))
        _tangent(search, relaxation, root, 0.0)
        reference.offer(relaxation.match(root.low, 0.0, root).members)
        ends["low"] += reference.value < 0.0
        at_low = reference.value
        reference.offer(relaxation.match(root.high, 0.0, root).members)
        ends["high"] += reference.value < at_low
        assert search.value == reference.value
        at_one_sum = _Search(problem, relaxation.exact)
        _tangent(at_one_sum, relaxation, root._replace(high=root.low), 0.0)
        assert at_one_sum.value == at_low
    assert min(ends.values()) > 2


def test_the_genetic_solver_finds_participants_where_channels_stay_idle() -> None:
    """Two clients that are worth their energy on four channels."""
    problem = typical_problem(2, 4)
    best = solve_round(problem).certificate
    found = solve_round(problem, solver="genetic", rng=np.random.default_rng(0))
    assert best is not None
    assert found.certificate is not None
    assert found.participates.all()
    assert found.certificate.objective == pytest.approx(best.objective, rel=1e-9)


def test_the_search_alone_mostly_finds_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without candidates from the proof and without improvement."""
    monkeypatch.setattr(channels_assignment, "_certify", lambda *_: 0.0)
    monkeypatch.setattr(channels_assignment, "_improve", lambda *_: None)
    rng = np.random.default_rng(34)
    found, tried = 0, 0
    for _ in range(40):
        problem = random_problem(rng, num_clients=5, num_channels=4, below=0.1)
        best = min((value for _, value, _, _ in all_decisions(problem)), default=0.0)
        allocation, _ = solve_assignment(problem, ExactPairs(problem))
        value = objective(problem, allocation) - problem.empty_objective
        if best < 0.0:
            tried += 1
            found += value <= best * (1.0 - 1e-9)
    assert tried > 20
    assert found > 0.9 * tried


def test_a_chromosome_is_decoded_gene_by_gene() -> None:
    """Three channels: the genes are clients, -1 is none."""
    problem = random_problem(np.random.default_rng(35), num_clients=3, num_channels=3, below=0.0)
    problem.rates_bps[:] = 3e8
    pairs = ExactPairs(problem)
    for genes in ([-1, 0, -1], [2, -1, 0], [1, 2, 0], [-1, -1, 1]):
        clients = [client for client in genes if client >= 0]
        total = float(problem.dataset_sizes[clients].sum())
        found = _decode(problem, pairs, np.array(genes))
        assert found.channels.tolist() == [genes.index(client) if client in genes else -1 for client in range(3)]
        bits = [int(pairs.bits(total, np.array([c]), np.array([genes.index(c)]))[0]) for c in clients]
        assert [int(found.num_bits[client]) for client in clients] == bits
        assert found.num_bits.sum() == sum(bits)
    for nothing in (None, np.full(3, -1)):
        empty = _decode(problem, pairs, nothing)
        assert (empty.channels.tolist(), empty.num_bits.tolist()) == ([-1, -1, -1], [0, 0, 0])


def test_the_best_single_client_is_the_one_with_the_least_objective() -> None:
    """By trying each on each channel."""
    rng = np.random.default_rng(36)
    chosen = set()
    for _ in range(20):
        problem = random_problem(rng, num_clients=4, num_channels=3, below=0.2)
        pairs = ExactPairs(problem)
        alone = [min(pairs.costs(float(problem.dataset_sizes[i]), np.array([i]))[0]) for i in range(4)]
        if not np.isfinite(alone).any():
            continue
        best = _best_alone(_Search(problem, pairs)).tolist()
        assert best == [alone.index(min(alone))]
        chosen |= set(best)
    assert len(chosen) > 2


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_genetic_solver_prefers_an_empty_round_to_one_that_costs_anything(unit: float) -> None:
    """Queues below their budgets: whoever takes part makes it worse, in whatever unit. Every gene mutates."""
    problem = typical_problem(3, 3)
    constants = replace(problem.constants, energy_weight=unit, data_budget=1.0, quantization_budget=0.0)
    problem = replace(problem, constants=constants, participation_queue=1.0 - 1e-3 * unit, quantization_queue=0.0)
    restless = GeneticSettings(population=2, generations=1, mutation_probability=1.0)
    for seed in range(4):
        found = solve_genetic(problem, ExactPairs(problem), np.random.default_rng(seed), restless)
        assert not found.participates.any()


def test_the_bound_of_a_node_is_the_same_in_any_unit_of_the_objective() -> None:
    rng = np.random.default_rng(37)
    inner = 0
    for _ in range(12):
        problem = random_problem(rng, num_clients=5, num_channels=4, below=0.0)
        decisions = all_decisions(problem)
        if not decisions:
            continue
        natural = _Relaxation(problem, ExactPairs(problem)).marginal_bonus(*decisions[-1][2:])
        found = []
        for unit in (1.0, 1e-6):
            c = problem.constants
            scaled = replace(
                problem,
                constants=replace(c, energy_weight=unit * c.energy_weight),
                participation_queue=c.data_budget + unit * problem.participation_pressure,
                quantization_queue=c.quantization_budget + unit * problem.quantization_pressure,
            )
            relaxation = _Relaxation(scaled, ExactPairs(scaled))
            root = relaxation.root()
            assert root is not None
            bonus = unit * natural
            tangent = _tangent(_Search(scaled, relaxation.exact), relaxation, root, bonus)
            found.append((tangent.value / unit, tangent.weakest, tangent.slope))
            inner += root.low < tangent.weakest < root.high
        assert found[1] == pytest.approx(found[0], rel=1e-6)
    assert inner > 3
