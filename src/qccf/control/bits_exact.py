"""P3.2 solved exactly: the best integer number of bits of every client-channel pair, from a table over q.

For a fixed q the optimal frequency is known (the slowest that meets the deadline), so a pair's cost is a constant plus
error·e(q)/S. The table of these constants is computed once per round, and the best cost for any S takes one pass over
it. This cost is the minimum of several straight lines in 1/S and therefore concave in 1/S; the certificate of
`channels_assignment` depends on that.
"""

from typing import Any

import numpy as np

from qccf.control.problem import RoundProblem
from qccf.core.contracts import MAX_NUM_BITS, BoolArray, FloatArray, IntArray

_BLOCK_ELEMENTS = 1 << 16
"""Table entries processed at once: few enough for the cache, many enough to make the interpreter's cost negligible."""


class ExactPairs:
    """Costs and bits of all pairs [client, channel] as functions of S, the samples of all participants."""

    def __init__(self, problem: RoundProblem) -> None:
        self.problem = problem
        num_levels = useful_levels(problem)
        num_clients, num_channels = problem.rates_bps.shape
        self._level_errors = 1.0 / np.square(np.exp2(np.arange(1, num_levels + 1, dtype=float)) - 1.0)
        self._block_rows = max(1, _BLOCK_ELEMENTS // (num_levels * num_channels))
        self._fixed = np.empty((num_clients, num_levels, num_channels))
        columns = np.arange(num_channels)
        levels = np.arange(1, num_levels + 1)[:, None]
        for start in range(0, num_clients, self._block_rows):
            rows = np.arange(start, min(start + self._block_rows, num_clients))[:, None, None]
            self._fixed[rows[:, 0, 0]] = problem.energy_costs(levels, rows, columns)

    def feasible(self) -> BoolArray:
        """Which pairs [client, channel] can deliver one bit per parameter within the deadline."""
        return np.isfinite(self._fixed[:, 0, :])

    def cheapest_energy(self) -> FloatArray:
        """V times the least energy with which each client can participate; infinite where it cannot."""
        return np.asarray(self._fixed[:, 0, :].min(axis=1))

    def costs(self, total: float, rows: Any = None) -> FloatArray:
        """Each pair's contribution to J when S = total; infinite where no bits meet the deadline."""
        p = self.problem
        rows = np.arange(len(self._fixed)) if rows is None else rows
        weighted = (p.error_costs[rows, None] / total) * self._level_errors
        best = np.empty((len(rows), self._fixed.shape[2]))
        for start in range(0, len(rows), self._block_rows):
            part = slice(start, start + self._block_rows)
            block = self._fixed[rows[part]]
            block += weighted[part, :, None]
            block.min(axis=1, out=best[part])
        best += (p.presence_costs[rows] + p.spread_costs[rows] / total)[:, None]
        return best

    def chosen_costs(self, totals: Any, rows: IntArray, columns: IntArray) -> FloatArray:
        """Contribution to J of the pairs (rows, columns) only, each with its own S."""
        p = self.problem
        return self._lines(totals, rows, columns).min(axis=1) + p.presence_costs[rows] + p.spread_costs[rows] / totals

    def bits(self, total: float, rows: IntArray, columns: IntArray) -> IntArray:
        """The best bits of the pairs (rows, columns) when S = total; 0 where no q meets the deadline."""
        lines = self._lines(total, rows, columns)
        return np.where(np.isfinite(lines.min(axis=1)), 1 + lines.argmin(axis=1), 0)

    def _lines(self, totals: Any, rows: IntArray, columns: IntArray) -> FloatArray:
        """Cost of each pair for each number of bits, shape [pair, bits]."""
        return self._fixed[rows, :, columns] + (self.problem.error_costs[rows] / totals)[:, None] * self._level_errors


def useful_levels(problem: RoundProblem) -> int:
    """The largest number of bits that can be optimal for any pair and any set of participants.

    While λ2 ≤ ε2 an error costs nothing, so one bit is optimal. Otherwise the optimum without a deadline (Case 2) for
    the largest possible weight of a client, 1, is an upper limit: with x = 2^q - 1 it solves x³ = A4·(x + 1), hence
    x < sqrt(2·A4) or x ≤ 1.
    """
    if problem.quantization_pressure <= 0.0 or problem.rates_bps.size == 0:
        return 1
    c = problem.constants
    best_rates = problem.rates_bps.max(axis=1)
    sizes = problem.observation.statistics.upload_bits
    if sizes is not None:
        return _useful_levels_of_table(problem, sizes, best_rates)
    a4 = (
        2.0
        * np.log(2.0)
        * best_rates
        * (problem.error_costs / problem.dataset_sizes)
        / (problem.slope_bits * c.transmit_power_w * c.energy_weight)
    )
    relaxed = np.log2(1.0 + np.sqrt(2.0 * a4.max()))
    affordable = problem.overhead_bits + MAX_NUM_BITS * problem.slope_bits
    reachable = min(affordable, best_rates.max() * c.deadline_s) - problem.overhead_bits
    return int(np.clip(min(np.ceil(relaxed), reachable // problem.slope_bits), 1, MAX_NUM_BITS))


def _useful_levels_of_table(problem: RoundProblem, sizes: FloatArray, best_rates: FloatArray) -> int:
    """`useful_levels` for listed sizes. One bit more than q gains at most the whole error at q, and it costs energy."""
    c = problem.constants
    errors = 1.0 / np.square(np.exp2(np.arange(1, MAX_NUM_BITS, dtype=float)) - 1.0)
    gains = (problem.error_costs / problem.dataset_sizes)[:, None] * errors
    with np.errstate(divide="ignore"):
        prices = c.energy_weight * c.transmit_power_w * np.diff(sizes, axis=1) / best_rates[:, None]
    worth = np.flatnonzero((gains > prices).any(axis=0))
    return int(worth[-1]) + 2 if len(worth) else 1
