"""The two virtual queues. They measure by how much past rounds exceeded the budgets of the convergence bound.

Paper: Section V-A. Deviates: E6, the paper gives no initial values.
"""

from typing import NamedTuple

import numpy as np

from qccf.control import bound
from qccf.core.contracts import BoolArray, Constants, IntArray, Statistics
from qccf.devices import cost


class Queues(NamedTuple):
    """λ1 and λ2."""

    participation: float
    quantization: float


def warm_start(
    statistics: Statistics, constants: Constants, *, participation_margin: float, quantization_margin: float
) -> Queues:
    """Initial queues that lead to a sensible first round.

    A queue at or below its budget works against learning: no client participates (λ1), or every client gets one bit
    (λ2). So λ1 starts above ε1 by a fraction of the data term with all clients, and at least so high that every client
    is worth its energy: its cycles at the lowest frequency and transmitting for the whole deadline. λ2 starts above ε2
    by a margin that determines the bits of the first round.
    """
    all_clients = np.ones(statistics.num_clients, dtype=bool)
    scale = bound.data_term(all_clients, statistics, constants)
    margin = max(participation_margin * scale, _worthwhile_pressure(statistics, constants))
    return Queues(
        participation=constants.data_budget + margin,
        quantization=constants.quantization_budget + quantization_margin,
    )


def _worthwhile_pressure(statistics: Statistics, constants: Constants) -> float:
    """The value of λ1 - ε1 at which even the least useful client is worth its energy."""
    cycles = cost.training_cycles(statistics.dataset_sizes, constants)
    spent_j = cost.compute_energy_j(cycles, constants.frequency_min_hz, constants)
    spent_j = spent_j + constants.wake_energy_j + constants.upload_power_w * constants.deadline_s
    shares = statistics.dataset_sizes / statistics.dataset_sizes.sum()
    worth = 4.0 * constants.local_updates * shares * statistics.gradient_norms_sq
    useful = worth > 0.0
    return float(np.max(constants.energy_weight * spent_j[useful] / worth[useful], initial=0.0))


def advance(
    queues: Queues, arrived: BoolArray, num_bits: IntArray, statistics: Statistics, constants: Constants
) -> Queues:
    """The queues after a round: each grows by its term, shrinks by its budget, and never falls below zero.

    Deviates: E8, in an empty round all weights are zero.
    """
    data = bound.data_term(arrived, statistics, constants)
    error = bound.quantization_term(arrived, num_bits, statistics, constants)
    return Queues(
        participation=max(queues.participation + data - constants.data_budget, 0.0),
        quantization=max(queues.quantization + error - constants.quantization_budget, 0.0),
    )
