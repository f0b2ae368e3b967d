"""The default form of a round's problem: every term is a ratio, so that no unit and no scale changes a decision.

It serves given clients, those whose turn it is, at the least cost:

    J = Σ over participants i of [ energy/reference + error price·w_i²·e_i(q_i)/budget ]
        + missing price · (clients - participants)

w_i = D_i/S is the client's weight in the aggregate and e_i(q) the expected squared error of its upload. Errors of
different clients are independent and unbiased, so the aggregate errs by the sum of w²·e. The missing price exceeds
everything else, so every client takes part. `docs/controller.md` derives it.

Deviates: E11 to E16.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qccf.control.problem import Problem
from qccf.core.contracts import BoolArray, Constants, FloatArray, IntArray, Observation
from qccf.devices import cost
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
    may_idle = False

    @property
    def least_members(self) -> int:
        return len(self.dataset_sizes)

    @cached_property
    def missing_price(self) -> float:
        """More than all participants together can cost, on whichever channels.

        A participant spends at most what full speed and sending until the deadline spend, and errs at most by its
        error with one bit.
        """
        c = self.constants
        most_j = cost.compute_energy_j(self.cycles, c.frequency_max_hz, c) + c.transmit_power_w * c.deadline_s
        errors = self.level_costs[:, 0] / self.dataset_sizes.sum() ** 2
        return 1.0 + float((self.energy_price * most_j + errors).sum())

    @cached_property
    def empty_objective(self) -> float:
        return self.missing_price * self.least_members

    @cached_property
    def presence_costs(self) -> FloatArray:
        return np.full(len(self.dataset_sizes), -self.missing_price)

    @cached_property
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

    def average_floor(self, allowed: BoolArray) -> float:
        return 0.0

    def stake(self, value: float, members: IntArray) -> float:
        """Energy and error: J without the prices of presence."""
        return value - float(self.presence_costs[members].sum())
