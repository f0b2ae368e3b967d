"""P3.1 solved by assignment problems, with a certificate. This is the default solver.

Let S be the number of samples of all participants and u = 1/S. For a given S the whole of P3.1 is one assignment
problem. The difficulty is only that the solution must have exactly this S. There are three steps:

*Fixed point.* Guess S and solve the assignment problem with a bonus μ = -dJ/dS per sample: one more sample reduces the
weights of all others. The S of the solution is the next guess. A few starting points suffice.

*Certify.* Let Φ_μ(u) be the value of the assignment with the costs at u minus μ·D_i. For any μ, Φ_μ(1/S) + μ·S is at
most the value of every decision with this S. Each pair's cost is concave in u (see `bits_exact`), so Φ_μ is also
concave and lies above its chord on any interval. The minimum of chord + μ·S is known in closed form. So two
assignments give a lower bound of J on an interval of S for any signs of λ - ε, and the best μ for an interval is found
by a one-dimensional concave search. Branch and bound then splits the interval with the lowest bound. Where splitting S
no longer helps, it branches on one client instead: in or out. Every assignment found on the way is a candidate
decision. While a queue is below its budget, terms that are weighted averages have a negative sign. They are then
bounded by the best single client, which is tighter than any chord.

*Improve.* Each client is tried alone. If a gap remains, clients are also added, dropped and swapped.

Values in this file are J minus J of the empty round, so the best value is never above zero.
"""

import heapq
from itertools import count, pairwise
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from qccf.control.bits_exact import ExactPairs
from qccf.control.matching import cheapest_matching, match_everyone
from qccf.control.pairs import PairModel
from qccf.control.problem import Allocation, RoundProblem, empty_allocation, objective
from qccf.core.contracts import BoolArray, FloatArray, IntArray

TOLERANCE = 1e-10
"""A gap below this fraction of the gain over the empty round is a rounding error, and the proof is complete."""

GAP_GOAL = 1e-4
"""Beyond `SMALL_PAIRS`, the proof stops when the gap is below this fraction of the gain over the empty round."""

SMALL_PAIRS = 1_000
"""Up to this many client-channel pairs an assignment takes microseconds, and the proof continues to `TOLERANCE`."""

NODE_BUDGET = 60_000
MIN_NODES = 12
"""Limits of the proof: the number of pairs over all nodes, but at least this many nodes."""

MAX_BONUS_STEPS = 8

IMPROVEMENT_BUDGET = 3_000_000
MAX_MOVES = 400
"""Limits of the improvement: the number of matched pairs over all sets tried, and the number of sets."""


def solve_assignment(problem: RoundProblem, pairs: PairModel) -> tuple[Allocation, float]:
    """The best decision found, and a lower bound of J over all decisions."""
    search = _Search(problem, pairs)
    relaxation = _Relaxation(problem, pairs if isinstance(pairs, ExactPairs) else ExactPairs(problem))
    root = relaxation.root()
    if root is None:
        return search.allocation(), problem.empty_objective
    small = problem.rates_bps.size <= SMALL_PAIRS
    for start in (root.high, sqrt(root.low * root.high), root.low) if small else (root.high,):
        _fixed_point(search, relaxation, start)
    search.offer(_best_alone(search))
    bound = _certify(search, relaxation, root, small)
    if bound < search.value * (1.0 + (TOLERANCE if small else GAP_GOAL)):
        _improve(search)
    allocation = search.allocation()
    return allocation, min(problem.empty_objective + bound, objective(problem, allocation))


class _Search:
    """The best decision so far."""

    def __init__(self, problem: RoundProblem, pairs: PairModel) -> None:
        self.problem = problem
        self.pairs = pairs
        self.value = 0.0
        self.members: IntArray = np.empty(0, dtype=np.int64)
        self.columns: IntArray = np.empty(0, dtype=np.int64)
        self._tried: set[bytes] = set()

    @property
    def total(self) -> float:
        return float(self.problem.dataset_sizes[self.members].sum())

    def offer(self, members: IntArray) -> None:
        """Evaluate one set of participants with its best channels; keep it if it is the best so far."""
        key = members.tobytes()
        if len(members) == 0 or key in self._tried:
            return
        self._tried.add(key)
        total = float(self.problem.dataset_sizes[members].sum())
        matched = match_everyone(self.pairs.costs(total, members))
        if matched is not None and matched[0] < self.value:
            self.value, self.columns = matched
            self.members = members

    def allocation(self) -> Allocation:
        best = empty_allocation(len(self.problem.dataset_sizes))
        if len(self.members):
            best.channels[self.members] = self.columns
            best.num_bits[self.members] = self.pairs.bits(self.total, self.members, self.columns)
        return best


class _Node(NamedTuple):
    """A subset of the decisions: S in [low, high], some clients certainly in, some certainly out."""

    low: float
    high: float
    inside: BoolArray
    outside: BoolArray


class _Matched(NamedTuple):
    value: float
    members: IntArray
    columns: IntArray
    total: float


class _Relaxation:
    """Φ_μ(1/S): the assignment problem at S, whose solution may have a different S."""

    def __init__(self, problem: RoundProblem, exact: ExactPairs) -> None:
        self.problem = problem
        self.exact = exact
        self.sizes = problem.dataset_sizes
        self._recent: dict[float, FloatArray] = {}

    def root(self) -> _Node | None:
        """All decisions with at least one participant; None if no client can participate."""
        infeasible = np.logical_not(self.exact.feasible().any(axis=1))
        return self.narrowed(0.0, inf, np.zeros_like(infeasible), infeasible)

    def narrowed(self, low: float, high: float, inside: BoolArray, outside: BoolArray) -> _Node | None:
        """The node with its interval reduced to the sums that its clients can have; None if it is empty."""
        num_channels = self.problem.rates_bps.shape[1]
        free = np.sort(self.sizes[~inside & ~outside])
        free_channels = num_channels - int(inside.sum())
        if free_channels < 0 or (not inside.any() and len(free) == 0):
            return None
        certain = float(self.sizes[inside].sum())
        low = max(low, certain or float(free[0]))
        high = min(high, certain + float(free[max(0, len(free) - free_channels) :].sum()))
        return _Node(low, high, inside, outside) if low <= high else None

    def costs(self, total: float) -> FloatArray:
        if total not in self._recent:
            if len(self._recent) >= 4:
                self._recent.pop(next(iter(self._recent)))
            self._recent[total] = self.exact.costs(total)
        return self._recent[total]

    def match(self, total: float, bonus: float, node: _Node) -> _Matched:
        """The best assignment of the node at S = total with μ = bonus; its value is infinite if there is none.

        Clients that must be in get a reward so large that an assignment includes them whenever possible.
        """
        costs = self.costs(total) - bonus * self.sizes[:, None]
        costs[node.outside] = inf
        reward = 0.0
        wanted = int(node.inside.sum())
        if wanted:
            magnitudes = np.abs(costs, where=np.isfinite(costs), out=np.zeros_like(costs))
            reward = 1.0 + 2.0 * float(magnitudes.max(axis=1).sum())
            costs[node.inside] -= reward
        value, channels = cheapest_matching(costs)
        members = np.flatnonzero(channels >= 0)
        if wanted and int(node.inside[members].sum()) < wanted:
            value = inf
        return _Matched(value + reward * wanted, members, channels[members], float(self.sizes[members].sum()))

    def average_bound(self, node: _Node) -> float:
        """A lower bound from weighted averages: the terms that J divides by S are at least those of the best client.

        Presence and energy are sums over clients, each at its least possible cost (one bit, fastest channel).
        """
        p = self.problem
        allowed = ~node.outside
        averages = (p.spread_costs + np.minimum(p.error_costs, 0.0)) / self.sizes
        alone = p.presence_costs + self.exact.cheapest_energy()
        free_channels = p.rates_bps.shape[1] - int(node.inside.sum())
        optional = np.sort(alone[allowed & ~node.inside])[: max(free_channels, 0)]
        if node.inside.any():
            added = float(alone[node.inside].sum() + np.minimum(optional, 0.0).sum())
        else:
            added = float(optional[0] + np.minimum(optional[1:], 0.0).sum())
        return added + float(averages[allowed].min())

    def marginal_bonus(self, members: IntArray, columns: IntArray) -> float:
        """μ = -dJ/dS of a decision: the sum of the terms that J divides by S, divided by S²."""
        if len(members) == 0:
            return 0.0
        p = self.problem
        total = float(self.sizes[members].sum())
        level_errors = 1.0 / np.square(np.exp2(self.exact.bits(total, members, columns)) - 1.0)
        return float((p.spread_costs[members] + p.error_costs[members] * level_errors).sum()) / total**2


def _best_alone(search: _Search) -> IntArray:
    """The best single client, on its fastest channel."""
    p = search.problem
    clients = np.arange(len(p.dataset_sizes))
    alone = search.pairs.chosen_costs(p.dataset_sizes, clients, p.rates_bps.argmax(axis=1))
    return np.array([int(np.argmin(alone))])


def _improve(search: _Search) -> None:
    """Add, drop and swap clients as long as that lowers J.

    Clients to add are tried in increasing order of their cost at the present S, clients to drop in decreasing order.
    """
    p = search.problem
    value = np.inf
    while search.value < value and len(search.members):
        value = search.value
        costs = search.pairs.costs(search.total)
        ranked = np.argsort(costs.min(axis=1), kind="stable")
        newcomers = ranked[np.isfinite(costs.min(axis=1))[ranked] & ~np.isin(ranked, search.members)]
        leavers = search.members[np.argsort(-costs[search.members, search.columns], kind="stable")]
        moves = min(MAX_MOVES, IMPROVEMENT_BUDGET // ((len(search.members) + 1) * p.rates_bps.shape[1]))
        side = max(1, int(sqrt(moves)))
        best = search.members
        for newcomer in newcomers[:moves]:
            search.offer(np.sort(np.append(best, newcomer)))
        for leaver in leavers[:moves]:
            search.offer(best[best != leaver])
        for leaver in leavers[:side]:
            for newcomer in newcomers[:side]:
                search.offer(np.sort(np.append(best[best != leaver], newcomer)))


def _fixed_point(search: _Search, relaxation: _Relaxation, total: float) -> None:
    """Iterate S and μ until the decision repeats."""
    everything = relaxation.root()
    assert everything is not None
    bonus, seen = 0.0, set()
    for _ in range(10):
        matched = relaxation.match(total, bonus, everything)
        search.offer(matched.members)
        key = matched.members.tobytes()
        if len(matched.members) == 0 or key in seen:
            return
        seen.add(key)
        total, bonus = matched.total, relaxation.marginal_bonus(matched.members, matched.columns)


class _Bound(NamedTuple):
    """A node with its bound, the μ of that bound, and where to split it: at an S or on a client."""

    value: float
    order: int
    node: _Node
    bonus: float
    split: float | None
    pivot: int | None


def _certify(search: _Search, relaxation: _Relaxation, root: _Node, small: bool) -> float:
    """Branch and bound over S and clients. Returns a lower bound of the value of every decision."""
    tolerance = TOLERANCE if small else GAP_GOAL
    order = count()

    def explore(low: float, high: float, inside: BoolArray, outside: BoolArray, bonus: float) -> None:
        node = relaxation.narrowed(low, high, inside, outside)
        if node is not None:
            bound = _bound(search, relaxation, node, bonus, tolerance, next(order))
            if bound.value < inf:
                heapq.heappush(leaves, bound)

    leaves: list[_Bound] = []
    first_bonus = relaxation.marginal_bonus(search.members, search.columns)
    cuts = [root.low, search.total, root.high] if root.low < search.total < root.high else [root.low, root.high]
    for low, high in pairwise(cuts):
        explore(low, high, root.inside, root.outside, first_bonus)
    for _ in range(max(MIN_NODES, NODE_BUDGET // relaxation.problem.rates_bps.size)):
        if not leaves or leaves[0].value >= search.value * (1.0 + tolerance):
            break
        _, _, node, bonus, split, pivot = leaves[0]
        if split is None and pivot is None:
            break
        heapq.heappop(leaves)
        if split is not None:
            explore(node.low, split, node.inside, node.outside, bonus)
            explore(split, node.high, node.inside, node.outside, bonus)
        else:
            chosen = np.arange(len(relaxation.sizes)) == pivot
            explore(node.low, node.high, node.inside | chosen, node.outside, bonus)
            explore(node.low, node.high, node.inside, node.outside | chosen, bonus)
    return leaves[0].value if leaves else 0.0


class _Tangent(NamedTuple):
    """A node's bound at one μ: its value, its slope in μ, and the S where it is attained. The bound is concave in μ.

    `at_low` and `at_high` are lower bounds for decisions whose S is exactly that end of the interval.
    """

    bonus: float
    value: float
    slope: float
    weakest: float
    members: IntArray
    at_low: float
    at_high: float


def _bound(search: _Search, relaxation: _Relaxation, node: _Node, bonus: float, tolerance: float, order: int) -> _Bound:
    """The best lower bound over all μ for the decisions of a node."""
    average = relaxation.average_bound(node)
    if average >= search.value * (1.0 + tolerance):
        return _Bound(average, order, node, bonus, None, None)
    tangents: list[_Tangent] = []
    below: _Tangent | None = None
    above: _Tangent | None = None
    step = max(abs(bonus), -search.value / node.high) or 1.0
    for _ in range(MAX_BONUS_STEPS):
        tangent = _tangent(search, relaxation, node, bonus)
        tangents.append(tangent)
        best = max(tangents, key=lambda t: t.value)
        if best.value >= search.value * (1.0 + tolerance):
            return _Bound(best.value, order, node, best.bonus, None, None)
        if tangent.slope > 0.0:
            below = tangent
        elif tangent.slope < 0.0:
            above = tangent
        else:
            break
        if below is None or above is None:
            bonus += step if tangent.slope > 0.0 else -step
            step *= 4.0
            continue
        crossing = below.value - above.value + above.slope * above.bonus - below.slope * below.bonus
        bonus = crossing / (above.slope - below.slope)
        if below.value + below.slope * (bonus - below.bonus) <= best.value - tolerance * search.value:
            break
    split = _split(relaxation, node, tangents, best, search.value * (1.0 + tolerance))
    pivot = _pivot(relaxation, node, below, above) if split is None else None
    return _Bound(max(best.value, average), order, node, best.bonus, split, pivot)


def _split(
    relaxation: _Relaxation, node: _Node, tangents: list[_Tangent], best: _Tangent, target: float
) -> float | None:
    """The S at which to split the interval, or None if a narrower interval would not help.

    It helps if the bound is weak because of the chord (the relaxation at the chord's minimum is good enough), or
    because the two ends need different μ (each end alone is good enough).
    """
    if node.low < best.weakest < node.high:
        good = relaxation.match(best.weakest, best.bonus, node).value + best.bonus * best.weakest >= target
        return best.weakest if good else None
    good = max(t.at_low for t in tangents) >= target and max(t.at_high for t in tangents) >= target
    return 2.0 / (1.0 / node.low + 1.0 / node.high) if good and node.low < node.high else None


def _pivot(relaxation: _Relaxation, node: _Node, below: _Tangent | None, above: _Tangent | None) -> int | None:
    """The largest client on which the assignments on both sides of the best μ differ, else the largest free client."""
    free = ~node.inside & ~node.outside
    differing = (
        np.setxor1d(below.members, above.members) if below is not None and above is not None else np.flatnonzero(free)
    )
    differing = differing[free[differing]]
    candidates = differing if len(differing) else np.flatnonzero(free)
    return int(candidates[np.argmax(relaxation.sizes[candidates])]) if len(candidates) else None


def _tangent(search: _Search, relaxation: _Relaxation, node: _Node, bonus: float) -> _Tangent:
    """The minimum over the node's interval of the chord of Φ_μ plus μ·S."""
    low, high = node.low, node.high
    first = relaxation.match(low, bonus, node)
    search.offer(first.members)
    at_low = first.value + bonus * low
    if low == high or at_low == inf:
        return _Tangent(bonus, at_low, low - first.total, low, first.members, at_low, at_low)
    last = relaxation.match(high, bonus, node)
    search.offer(last.members)
    rise = (first.value - last.value) / (1.0 / low - 1.0 / high)

    def chord(total: float) -> float:
        return last.value + rise * (1.0 / total - 1.0 / high) + bonus * total

    candidates = [low, high]
    if rise * bonus > 0.0 and low < sqrt(rise / bonus) < high:
        candidates.append(sqrt(rise / bonus))
    weakest = min(candidates, key=chord)
    share_low = (1.0 / weakest - 1.0 / high) / (1.0 / low - 1.0 / high)
    slope = weakest - (share_low * first.total + (1.0 - share_low) * last.total)
    members = first.members if share_low > 0.5 else last.members
    return _Tangent(bonus, chord(weakest), slope, weakest, members, at_low, last.value + bonus * high)
