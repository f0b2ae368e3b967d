"""The default form of a round's problem: every term is a ratio, so that no unit and no scale changes a decision.

    J = Σ over participants i of [ energy/reference - debt price + error price·w_i²·e_i(q_i)/budget ]
        + missing price · (participants that the channels allow - participants)

w_i = D_i/S is the client's weight in the aggregate and e_i(q) the expected squared error of its upload. Errors of
different clients are independent and unbiased, so the aggregate errs by the sum of w²·e. With full participation as
the aim, the missing price exceeds everything else, so as many clients as possible take part; otherwise it is zero and
the debt prices decide. `docs/controller.md` derives it.

Deviates: E11 to E16.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from qccf.control.problem import Problem
from qccf.core.contracts import BoolArray, Constants, FloatArray, IntArray, Observation
from qccf.devices import cost
from qccf.quantization import costs


@dataclass(frozen=True)
class ScaleFreeProblem(Problem):
    """The input of a decision. `error_price` is per unit of the aggregate's squared error.

    `wanted` is the number of participants below which every missing one costs the missing price; 0 for none.
    `relative_price` and `turns` are recorded with the decision.
    """

    observation: Observation
    constants: Constants
    energy_price: float
    error_price: float
    debt_prices: FloatArray
    wanted: int
    relative_price: float
    turns: FloatArray

    weight_power = 2
    may_idle = False

    @property
    def least_members(self) -> int:
        return max(self.wanted, 1)

    @cached_property
    def missing_price(self) -> float:
        """More than all participants together can cost, whichever of them take part on whichever channels.

        A participant spends at most what full speed and sending until the deadline spend, and errs at most by its
        error with one bit at the least S that `wanted` clients have.
        """
        if not self.wanted:
            return 0.0
        c = self.constants
        most_j = cost.compute_energy_j(self.cycles, c.frequency_max_hz, c) + c.transmit_power_w * c.deadline_s
        able = usable_pairs(self.observation, c).any(axis=1)
        least_total = float(np.sort(self.dataset_sizes[able])[: self.wanted].sum())
        dearest = self.energy_price * most_j + self.level_costs[:, 0] / least_total**2 + np.abs(self.debt_prices)
        return 1.0 + float(dearest[able].sum())

    @cached_property
    def empty_objective(self) -> float:
        return self.missing_price * self.wanted

    @cached_property
    def presence_costs(self) -> FloatArray:
        return -self.missing_price - self.debt_prices

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
        errors = costs.expected_errors(s, self.constants)
        return self.error_price * np.square(s.dataset_sizes)[:, None] * errors

    def average_floor(self, allowed: BoolArray) -> float:
        return 0.0

    def stake(self, value: float, members: IntArray) -> float:
        """Energy and error: J without the prices of presence."""
        return value - float(self.presence_costs[members].sum())


def most_participants(observation: Observation, constants: Constants) -> int:
    """The most clients that can take part at once: a maximum matching of clients and channels that serve them."""
    usable = usable_pairs(observation, constants)
    able = usable.any(axis=1)
    if usable[able].all():
        return min(int(able.sum()), observation.num_channels)
    matched = maximum_bipartite_matching(csr_matrix(usable[able]), perm_type="column")
    return int((matched >= 0).sum())


def usable_pairs(observation: Observation, constants: Constants) -> BoolArray:
    """Which pairs [client, channel] carry one bit per parameter within the deadline at the highest frequency."""
    statistics = observation.statistics
    least_bits = costs.payload_bits(1, np.arange(observation.num_clients), statistics, constants)
    cycles = cost.training_cycles(statistics.dataset_sizes, constants)
    with np.errstate(divide="ignore"):
        upload_s = np.broadcast_to(least_bits, (observation.num_clients,))[:, None] / observation.rates_bps
    return np.isfinite(cost.slowest_frequency_hz(cycles[:, None], upload_s, constants))
