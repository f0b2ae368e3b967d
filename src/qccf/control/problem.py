"""The problem P2 of one round, with its terms arranged by how they depend on the decision.

S is the number of samples of all participants (D^n in the paper) and e(q) = 1/(2^q - 1)². The objective is

    J = empty + Σ over participants i of [ presence_i + spread_i/S + error_i·e(q_i)/S + V·energy(i, channel, q_i) ]

For a known S every client-channel pair has its own cost. All solvers use this.

Paper: Eq. of P2, Section V-A. Deviates: E8 (an empty round has no S).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from qccf.control import bound
from qccf.core.contracts import BoolArray, Constants, FloatArray, IntArray, Observation
from qccf.devices import cost
from qccf.quantization import costs


@dataclass(frozen=True)
class RoundProblem:
    """The input of a decision: the observation, the constants and the two queues."""

    observation: Observation
    constants: Constants
    participation_queue: float
    quantization_queue: float

    @property
    def rates_bps(self) -> FloatArray:
        return self.observation.rates_bps

    @property
    def dataset_sizes(self) -> FloatArray:
        return self.observation.statistics.dataset_sizes

    @property
    def participation_pressure(self) -> float:
        """λ1 - ε1."""
        return self.participation_queue - self.constants.data_budget

    @property
    def quantization_pressure(self) -> float:
        """λ2 - ε2."""
        return self.quantization_queue - self.constants.quantization_budget

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

    @cached_property
    def empty_objective(self) -> float:
        """J of the round without participants."""
        norms_sq = self.observation.statistics.gradient_norms_sq
        return float(self.participation_pressure * 4.0 * self.constants.local_updates * norms_sq.sum())

    @cached_property
    def presence_costs(self) -> FloatArray:
        """The part of a client's contribution to J that depends on nothing else; negative while λ1 > ε1."""
        shares = self.dataset_sizes / self.dataset_sizes.sum()
        norms_sq = self.observation.statistics.gradient_norms_sq
        return -self.participation_pressure * 4.0 * self.constants.local_updates * shares * norms_sq

    @cached_property
    def spread_costs(self) -> FloatArray:
        """The contribution of a client's gradient norm and variance to J, times S."""
        c, s = self.constants, self.observation.statistics
        a1 = bound.gradient_norm_coefficient(c.learning_rate, c.smoothness, c.local_updates)
        a2 = bound.gradient_variance_coefficient(c.learning_rate, c.smoothness, c.local_updates)
        return self.participation_pressure * (a1 * s.gradient_norms_sq + a2 * s.gradient_variances) * s.dataset_sizes

    @cached_property
    def error_costs(self) -> FloatArray:
        """The contribution of a client's quantization error to J, times S and (2^q - 1)²."""
        c, s = self.constants, self.observation.statistics
        return 0.5 * self.quantization_pressure * c.smoothness * costs.error_scales(s, c) * s.dataset_sizes

    def frequencies_hz(self, num_bits: Any, rows: Any, columns: Any) -> FloatArray:
        """The slowest frequency that meets the deadline, for the pairs (rows, columns); infinite where none does."""
        upload_s = self._upload_s(num_bits, rows, columns)
        return np.asarray(cost.slowest_frequency_hz(self.cycles[rows], upload_s, self.constants))

    def _upload_s(self, num_bits: Any, rows: Any, columns: Any) -> Any:
        with np.errstate(divide="ignore"):
            bits = costs.payload_bits(num_bits, rows, self.observation.statistics, self.constants)
            return bits / self.rates_bps[rows, columns]

    def energy_costs(self, num_bits: Any, rows: Any, columns: Any) -> FloatArray:
        """V times the energy of the pairs (rows, columns); infinite where the deadline cannot be met."""
        c = self.constants
        upload_s = self._upload_s(num_bits, rows, columns)
        frequency_hz = cost.slowest_frequency_hz(self.cycles[rows], upload_s, c)
        spent_j = cost.compute_energy_j(self.cycles[rows], frequency_hz, c) + c.transmit_power_w * upload_s
        return np.asarray(c.energy_weight * spent_j)


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


def objective(problem: RoundProblem, allocation: Allocation) -> float:
    """J of P2 as the paper writes it, with all terms except A0. Paper: P2."""
    on = allocation.participates
    statistics = problem.observation.statistics
    rows = np.flatnonzero(on)
    energy = problem.energy_costs(allocation.num_bits[rows], rows, allocation.channels[rows]).sum()
    return float(
        problem.participation_pressure * bound.data_term(on, statistics, problem.constants)
        + problem.quantization_pressure
        * bound.quantization_term(on, allocation.num_bits, statistics, problem.constants)
        + energy
    )
