"""The problem of one round, with its terms arranged by how they depend on the decision.

S is the number of samples of all participants (D^n in the paper). The objective is

    J = empty + Σ over participants i of [ presence_i + (spread_i + level_i(q_i))/S^k + price·energy(i, channel, q_i) ]

For a known S every client-channel pair has its own cost. All solvers use this. `RoundProblem` is the paper's P2
(k = 1); `scale_free.ScaleFreeProblem` is the default (k = 2).

Paper: Eq. of P2, Section V-A. Deviates: E8 (an empty round has no S).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from qccf.control import bound
from qccf.core.contracts import MAX_NUM_BITS, BoolArray, Constants, FloatArray, IntArray, Observation
from qccf.devices import cost
from qccf.quantization import costs

LEVEL_ERRORS = 1.0 / np.square(np.exp2(np.arange(1, MAX_NUM_BITS + 1, dtype=float)) - 1.0)
"""1/(2^q - 1)² for q = 1 … 32."""


class Problem:
    """What every solver needs to know of a round. A form of the problem is a subclass that gives these values."""

    observation: Observation
    constants: Constants

    weight_power: int
    """k: the error of an upload counts with the k-th power of its client's weight."""
    energy_price: Any
    """What a joule costs in J."""
    empty_objective: Any
    """J of the round without participants."""
    may_idle: bool
    """Whether the empty round is admissible where somebody can upload."""
    least_members: Any
    """The least number of participants of an optimal decision that has any."""
    presence_costs: Any
    """The part of each client's contribution to J that depends on nothing else."""
    spread_costs: Any
    """The part of each client's contribution to J that depends on S alone, times S^k."""
    error_costs: Any
    """The contribution of each client's bounded quantization error to J, times S^k and (2^q - 1)²."""
    level_costs: Any
    """The contribution of each client's quantization error to J for every q [client, q - 1], times S^k."""

    def average_floor(self, allowed: BoolArray) -> float:
        """A lower bound of the terms that J divides by S, for participants among `allowed`."""
        raise NotImplementedError

    def stake(self, value: float, members: IntArray) -> float:
        """The size of what a decision decides on; gaps are judged relative to it. `value` is J minus J of empty."""
        raise NotImplementedError

    @property
    def rates_bps(self) -> FloatArray:
        return self.observation.rates_bps

    @property
    def dataset_sizes(self) -> FloatArray:
        return self.observation.statistics.dataset_sizes

    @cached_property
    def cycles(self) -> FloatArray:
        return cost.training_cycles(self.dataset_sizes, self.constants)

    @property
    def slope_bits(self) -> float:
        """Payload bits that one more bit per index costs."""
        return costs.slope_bits(self.constants)

    @property
    def overhead_bits(self) -> float:
        return costs.overhead_bits(self.constants)

    def frequencies_hz(self, num_bits: Any, rows: Any, columns: Any) -> FloatArray:
        """The slowest frequency that meets the deadline, for the pairs (rows, columns); infinite where none does."""
        upload_s = self._upload_s(num_bits, rows, columns)
        return np.asarray(cost.slowest_frequency_hz(self.cycles[rows], upload_s, self.constants))

    def _upload_s(self, num_bits: Any, rows: Any, columns: Any) -> Any:
        with np.errstate(divide="ignore"):
            bits = costs.payload_bits(num_bits, rows, self.observation.statistics, self.constants)
            return bits / self.rates_bps[rows, columns]

    def energy_costs(self, num_bits: Any, rows: Any, columns: Any) -> FloatArray:
        """The price of the energy of the pairs (rows, columns); infinite where the deadline cannot be met."""
        c = self.constants
        upload_s = self._upload_s(num_bits, rows, columns)
        frequency_hz = cost.slowest_frequency_hz(self.cycles[rows], upload_s, c)
        spent_j = cost.compute_energy_j(self.cycles[rows], frequency_hz, c) + c.transmit_power_w * upload_s
        return np.asarray(self.energy_price * spent_j)


@dataclass(frozen=True)
class RoundProblem(Problem):
    """The paper's P2: the observation, the constants and the two queues."""

    observation: Observation
    constants: Constants
    participation_queue: float
    quantization_queue: float

    weight_power = 1
    may_idle = True
    least_members = 1

    @property
    def participation_pressure(self) -> float:
        """λ1 - ε1."""
        return self.participation_queue - self.constants.data_budget

    @property
    def quantization_pressure(self) -> float:
        """λ2 - ε2."""
        return self.quantization_queue - self.constants.quantization_budget

    @property
    def energy_price(self) -> float:
        return self.constants.energy_weight

    @cached_property
    def empty_objective(self) -> float:
        norms_sq = self.observation.statistics.gradient_norms_sq
        return float(self.participation_pressure * 4.0 * self.constants.local_updates * norms_sq.sum())

    @cached_property
    def presence_costs(self) -> FloatArray:
        """Negative while λ1 > ε1."""
        shares = self.dataset_sizes / self.dataset_sizes.sum()
        norms_sq = self.observation.statistics.gradient_norms_sq
        return -self.participation_pressure * 4.0 * self.constants.local_updates * shares * norms_sq

    @cached_property
    def spread_costs(self) -> FloatArray:
        """From each client's gradient norm and variance."""
        c, s = self.constants, self.observation.statistics
        a1 = bound.gradient_norm_coefficient(c.learning_rate, c.smoothness, c.local_updates)
        a2 = bound.gradient_variance_coefficient(c.learning_rate, c.smoothness, c.local_updates)
        return self.participation_pressure * (a1 * s.gradient_norms_sq + a2 * s.gradient_variances) * s.dataset_sizes

    @cached_property
    def error_costs(self) -> FloatArray:
        c, s = self.constants, self.observation.statistics
        return 0.5 * self.quantization_pressure * c.smoothness * costs.error_scales(s, c) * s.dataset_sizes

    @cached_property
    def level_costs(self) -> FloatArray:
        return self.error_costs[:, None] * LEVEL_ERRORS

    def average_floor(self, allowed: BoolArray) -> float:
        averages = (self.spread_costs + np.minimum(self.error_costs, 0.0)) / self.dataset_sizes
        return float(averages[allowed].min())

    def stake(self, value: float, members: IntArray) -> float:
        return -value


@dataclass(frozen=True)
class Allocation:
    """A solver's result: channel and bits of each client; -1 and 0 for clients that sit out."""

    channels: IntArray
    num_bits: IntArray

    @property
    def participates(self) -> BoolArray:
        return self.channels >= 0


def empty_allocation(num_clients: int) -> Allocation:
    return Allocation(np.full(num_clients, -1, dtype=np.int64), np.zeros(num_clients, dtype=np.int64))


def objective(problem: Problem, allocation: Allocation) -> float:
    """J of an allocation. Paper: P2, with all terms except A0."""
    rows = np.flatnonzero(allocation.participates)
    if len(rows) == 0:
        return problem.empty_objective
    bits = allocation.num_bits[rows]
    total = problem.dataset_sizes[rows].sum()
    energy = problem.energy_costs(bits, rows, allocation.channels[rows]).sum()
    shared = (problem.spread_costs[rows] + problem.level_costs[rows, bits - 1]).sum() / total**problem.weight_power
    return float(problem.empty_objective + problem.presence_costs[rows].sum() + shared + energy)
