"""P3.2 solved exactly: the best integer number of bits of every client-channel pair, from a table over q.

For a fixed q the optimal frequency is known (the slowest that meets the deadline), so a pair's cost is a constant plus
error(q)/S^k. The table of these constants is computed once per round, and the best cost for any S takes one pass over
it. This cost is the minimum of several straight lines in 1/S^k and therefore concave in 1/S^k; the certificate of
`channels_assignment` depends on that.
"""

from typing import Any

import numpy as np

from qccf.control.problem import Problem
from qccf.core.contracts import MAX_NUM_BITS, BoolArray, FloatArray, IntArray
from qccf.devices import power
from qccf.quantization import costs

_BLOCK_ELEMENTS = 1 << 15
"""Table entries processed at once: few enough for the cache, many enough to make the interpreter's cost negligible."""


class ExactPairs:
    """Costs and bits of all pairs [client, channel] as functions of S, the samples of all participants."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        client_levels = useful_levels(problem)
        num_levels = int(client_levels.max(initial=1))
        if not problem.constants.adapt_power:  # few levels more are cheap at full power, and tighten the certificate
            client_levels = np.full_like(client_levels, num_levels)
        num_clients, num_channels = problem.rates_bps.shape
        self._levels = problem.level_costs[:, :num_levels]
        self._power = problem.weight_power
        self._block_rows = max(1, _BLOCK_ELEMENTS // (num_levels * num_channels))
        self._fixed = np.full((num_clients, num_levels, num_channels), np.inf)
        columns = np.arange(num_channels)
        similar = np.argsort(client_levels, kind="stable")
        for start in range(0, num_clients, self._block_rows):
            rows = similar[start : start + self._block_rows]
            levels = np.arange(1, client_levels[rows[-1]] + 1)
            self._fixed[rows, : len(levels)] = problem.energy_costs(levels[:, None], rows[:, None, None], columns)

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
        weighted = self._levels[rows] / total**self._power
        best = np.empty((len(rows), self._fixed.shape[2]))
        for start in range(0, len(rows), self._block_rows):
            part = slice(start, start + self._block_rows)
            block = self._fixed[rows[part]]
            block += weighted[part, :, None]
            block.min(axis=1, out=best[part])
        best += (p.presence_costs[rows] + p.spread_costs[rows] / total**self._power)[:, None]
        return best

    def chosen_costs(self, totals: Any, rows: IntArray, columns: IntArray) -> FloatArray:
        """Contribution to J of the pairs (rows, columns) only, each with its own S."""
        p = self.problem
        shared = p.presence_costs[rows] + p.spread_costs[rows] / totals**self._power
        return np.asarray(self._lines(totals, rows, columns).min(axis=1) + shared)

    def bits(self, total: float, rows: IntArray, columns: IntArray) -> IntArray:
        """The best bits of the pairs (rows, columns) when S = total; 0 where no q meets the deadline."""
        lines = self._lines(total, rows, columns)
        return np.where(np.isfinite(lines.min(axis=1)), 1 + lines.argmin(axis=1), 0)

    def _lines(self, totals: Any, rows: IntArray, columns: IntArray) -> FloatArray:
        """Cost of each pair for each number of bits, shape [pair, bits]."""
        weights = np.broadcast_to(np.asarray(totals, dtype=float) ** -self._power, rows.shape)
        return self._fixed[rows, :, columns] + self._levels[rows] * weights[:, None]


def useful_levels(problem: Problem) -> IntArray:
    """The largest number of bits of each client that can be optimal on any channel and with any participants.

    The last bit of an optimal q is worth its price: the error falls by at least what sending that bit costs on the
    client's fastest channel. The error counts most where S is least. Bits beyond what the fastest channel carries
    within the deadline cannot be used.
    """
    c = problem.constants
    count = len(problem.dataset_sizes)
    if problem.rates_bps.size == 0:
        return np.ones(count, dtype=np.int64)
    rows = np.arange(count)[:, None]
    bits = costs.payload_bits(np.arange(1, MAX_NUM_BITS + 1), rows, problem.observation.statistics, c)
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.broadcast_to(bits, (count, MAX_NUM_BITS)) / problem.rates_bps.max(axis=1)[:, None]
        price = problem.energy_price * c.aligned(seconds).upload_power_w * np.diff(seconds, axis=1)
    if c.adapt_power:  # with the best power a bit costs less than at full power
        per_bit_j = power.least_energy_per_bit_j(problem.rates_bps.max(axis=1), c)[:, None]
        price = problem.energy_price * per_bit_j * np.diff(np.broadcast_to(bits, (count, MAX_NUM_BITS)), axis=1)
    gain = -np.diff(problem.level_costs, axis=1) / (problem.least_totals**problem.weight_power)[:, None]
    worth_it = (gain >= price) & (gain > 0.0) & (seconds[:, 1:] <= c.deadline_s)
    return 1 + (worth_it * np.arange(1, MAX_NUM_BITS)).max(axis=1)
