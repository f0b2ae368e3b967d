"""The default form of a round's problem: every term is a ratio, so that no unit and no scale changes a decision.

It serves given clients, those whose turn it is, at the least cost:

    J = Σ over these clients i of [ energy/reference + error price·w_i²·e_i(q_i)/budget ]

The energy is that of computing and sending, and of resting until the last upload has ended where a run charges for it.

w_i = D_i/S is the client's weight in the aggregate and e_i(q) the expected squared error of its upload. Errors of
different clients are independent and unbiased, so the aggregate errs by the sum of w²·e. `docs/controller.md` derives
it.

Deviates: E11 to E16.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from time import perf_counter
from typing import NamedTuple

import numpy as np

from qccf.control.bits_exact import ExactPairs
from qccf.control.matching import match_everyone
from qccf.control.problem import Problem
from qccf.core.contracts import Certificate, Constants, Decision, FloatArray, IntArray, Observation
from qccf.core.errors import SolverError
from qccf.devices.cost import Transmission
from qccf.quantization import costs

END_GAP = 5e-3
"""Share of J at which the search for the end of a round stops."""
MOST_ENDS = 40
"""Ends of a round that are tried at most."""


@dataclass(frozen=True)
class ScaleFreeProblem(Problem):
    """The input of a decision, for clients that can all be served at once.

    `energy_price` is per joule, `error_price` per unit of the aggregate's squared error.
    """

    observation: Observation
    constants: Constants
    energy_price: float
    error_price: float

    weight_power = 2

    @property
    def total(self) -> float:
        """S."""
        return float(self.dataset_sizes.sum())

    @property
    def least_totals(self) -> FloatArray:
        return np.full(len(self.dataset_sizes), self.total)

    @property
    def presence_costs(self) -> FloatArray:
        return np.zeros(len(self.dataset_sizes))

    @property
    def spread_costs(self) -> FloatArray:
        return np.zeros(len(self.dataset_sizes))

    @cached_property
    def error_costs(self) -> FloatArray:
        s = self.observation.statistics
        return self.error_price * np.square(s.dataset_sizes) * costs.error_scales(s, self.constants)

    @cached_property
    def level_costs(self) -> FloatArray:
        s = self.observation.statistics
        return self.error_price * np.square(s.dataset_sizes)[:, None] * costs.expected_errors(s, self.constants)


def serve(problem: ScaleFreeProblem) -> Decision:
    """Channels, bits and frequencies with the least J: S is known, so one assignment problem is the exact optimum.

    Where resting is charged, everybody rests until the last upload has ended, and that end is decided, too.
    """
    started = perf_counter()
    c = problem.constants
    rest_price = problem.energy_price * float(np.sum(np.broadcast_to(c.idle_power_w, problem.dataset_sizes.shape)))
    best = _served_by(problem, c.deadline_s)
    if best is None:
        raise SolverError(f"the {len(problem.dataset_sizes)} clients of this round cannot all be served at once.")
    bound, method = best.least, "assignment/exact"
    if rest_price > 0.0:
        best, bound = _with_the_best_end(problem, best, rest_price)
        method = "assignment/ends"
    objective = best.objective + rest_price * best.end_s
    certificate = Certificate(objective, min(bound, objective), method, perf_counter() - started)
    powers_w = best.sent.power_w if c.adapt_power else None
    return Decision(best.channels, best.num_bits, best.frequencies_hz, certificate=certificate, powers_w=powers_w)


class _Served(NamedTuple):
    """The cheapest way to serve all clients before a given end, without resting; `end_s` is when the last one ends."""

    least: float
    objective: float
    channels: IntArray
    num_bits: IntArray
    frequencies_hz: FloatArray
    sent: Transmission
    end_s: float


def _served_by(problem: ScaleFreeProblem, end_s: float) -> _Served | None:
    """None if not all clients can be served in that time."""
    early = replace(problem, constants=replace(problem.constants, deadline_s=end_s))
    pairs = ExactPairs(early)
    rows = np.arange(len(problem.dataset_sizes))
    matched = match_everyone(pairs.costs(problem.total, rows))
    if matched is None:
        return None
    least, channels = matched
    num_bits = pairs.bits(problem.total, rows, channels)
    frequencies_hz = early.frequencies_hz(num_bits, rows, channels)
    sent = early.transmission(num_bits, rows, channels)
    errors = problem.level_costs[rows, num_bits - 1].sum() / problem.total**2
    objective = float(early.energy_costs(num_bits, rows, channels).sum() + errors)
    last_s = float(np.max(problem.cycles / frequencies_hz + sent.upload_s))
    return _Served(least, objective, channels, num_bits, frequencies_hz, sent, last_s)


def _with_the_best_end(problem: ScaleFreeProblem, latest: _Served, rest_price: float) -> tuple[_Served, float]:
    """When the round ends, by branch and bound over that time, and a lower bound of J.

    An earlier end saves rest and costs faster clocks and fewer bits. If the round ends between a and b, the rest costs
    at least what it does until a, and everything else at least what it does with time until b. `latest` is what is
    decided for the deadline.
    """
    first_s = float((problem.cycles / np.broadcast_to(problem.constants.frequency_max_hz, problem.cycles.shape)).max())
    best, least = latest, latest.objective + rest_price * latest.end_s
    queue = [(rest_price * first_s + latest.least, first_s, latest.end_s, latest.least)]
    for _ in range(MOST_ENDS):
        bound, low_s, high_s, high_cost = queue[0]
        if bound >= least * (1.0 - END_GAP):
            break
        middle_s = 0.5 * (low_s + high_s)
        served = _served_by(problem, middle_s)
        heappop(queue)
        heappush(queue, (rest_price * middle_s + high_cost, middle_s, high_s, high_cost))
        if served is None:
            continue
        heappush(queue, (rest_price * low_s + served.least, low_s, min(middle_s, served.end_s), served.least))
        if served.objective + rest_price * served.end_s < least:
            best, least = served, served.objective + rest_price * served.end_s
    return best, min(queue[0][0], least)
