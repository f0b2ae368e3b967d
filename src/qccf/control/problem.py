"""The problem of one round, with its terms arranged by how they depend on the decision.

S is the number of samples of all participants (D^n in the paper). The objective is

    J = empty + Σ over participants i of [ presence_i + (spread_i + level_i(q_i))/S^k + price·energy(i, channel, q_i) ]

For a known S every client-channel pair has its own cost. `RoundProblem` is the paper's P2 (k = 1), and all solvers use
this. `scale_free.ScaleFreeProblem` is the default form (k = 2); it knows S.

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
    """What the pairs of a round cost. A form of the problem is a subclass that gives these values."""

    observation: Observation
    constants: Constants

    weight_power: int
    """k: the error of an upload counts with the k-th power of its client's weight."""
    energy_price: Any
    """What a joule costs in J."""
    least_totals: Any
    """The least S that a round with each client can have."""
    presence_costs: Any
    """The part of each client's contribution to J that depends on nothing else."""
    spread_costs: Any
    """The part of each client's contribution to J that depends on S alone, times S^k."""
    error_costs: Any
    """The contribution of each client's bounded quantization error to J, times S^k and (2^q - 1)²."""
    level_costs: Any
    """The contribution of each client's quantization error to J for every q [client, q - 1], times S^k."""

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
        upload_s = self.transmission(num_bits, rows, columns).upload_s
        return np.asarray(cost.slowest_frequency_hz(self.cycles[rows], upload_s, self.constants.of(rows)))

    def transmission(self, num_bits: Any, rows: Any, columns: Any) -> cost.Transmission:
        """Upload times and transmit powers of the pairs (rows, columns)."""
        bits = costs.payload_bits(num_bits, rows, self.observation.statistics, self.constants)
        return cost.transmission(bits, self.rates_bps[rows, columns], self.cycles[rows], self.constants.of(rows))

    def energy_costs(self, num_bits: Any, rows: Any, columns: Any) -> FloatArray:
        """The price of the energy of the pairs (rows, columns); infinite where the deadline cannot be met."""
        c = self.constants.of(rows)
        sent = self.transmission(num_bits, rows, columns)
        frequency_hz = cost.slowest_frequency_hz(self.cycles[rows], sent.upload_s, c)
        spent_j = cost.compute_energy_j(self.cycles[rows], frequency_hz, c) + cost.upload_energy_j(sent, c)
        return np.asarray(self.energy_price * spent_j)


@dataclass(frozen=True)
class RoundProblem(Problem):
    """The paper's P2: the observation, the constants and the two queues."""

    observation: Observation
    constants: Constants
    participation_queue: float
    quantization_queue: float

    weight_power = 1

    @property
    def least_totals(self) -> FloatArray:
        """A client may be alone."""
        return self.dataset_sizes

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
