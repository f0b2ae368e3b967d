"""The default form of a round's problem: every term is a ratio, so that no unit and no scale changes a decision.

It serves given clients, those whose turn it is, at the least cost:

    J = Σ over these clients i of [ energy/reference + error price·w_i²·e_i(q_i)/budget ]

w_i = D_i/S is the client's weight in the aggregate and e_i(q) the expected squared error of its upload. Errors of
different clients are independent and unbiased, so the aggregate errs by the sum of w²·e. `docs/controller.md` derives
it.

Deviates: E11 to E16.
"""

from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import numpy as np

from qccf.control.bits_exact import ExactPairs
from qccf.control.matching import match_everyone
from qccf.control.problem import Problem
from qccf.core.contracts import Certificate, Constants, Decision, FloatArray, Observation
from qccf.core.errors import SolverError
from qccf.quantization import costs


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
    """Channels, bits and frequencies with the least J: S is known, so one assignment problem is the exact optimum."""
    started = perf_counter()
    pairs = ExactPairs(problem)
    rows = np.arange(len(problem.dataset_sizes))
    matched = match_everyone(pairs.costs(problem.total, rows))
    if matched is None:
        raise SolverError(f"the {len(rows)} clients of this round cannot all be served at once.")
    least, channels = matched
    num_bits = pairs.bits(problem.total, rows, channels)
    frequencies_hz = problem.frequencies_hz(num_bits, rows, channels)
    powers_w = problem.transmission(num_bits, rows, channels).power_w if problem.constants.adapt_power else None
    errors = problem.level_costs[rows, num_bits - 1].sum() / problem.total**2
    objective = float(problem.energy_costs(num_bits, rows, channels).sum() + errors)
    certificate = Certificate(objective, min(least, objective), "assignment/exact", perf_counter() - started)
    return Decision(channels, num_bits, frequencies_hz, certificate=certificate, powers_w=powers_w)
