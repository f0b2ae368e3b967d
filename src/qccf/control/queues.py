"""The two virtual queues: what convergence is still owed.

Paper: Section V-A. Deviates: E6, the paper gives no start.
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
    """Queues from which the first round is sensible.

    At or below its budget a queue asks for the opposite of learning: nobody takes part (λ1), one bit each (λ2). So λ1
    starts a margin above ε1, as a part of the data term with everybody present, and high enough that every client is
    worth what it spends: its cycles at the lowest frequency and a whole deadline of transmitting. λ2 starts a margin
    above ε2 that sets the bits of the first round.
    """
    everybody = np.ones(statistics.num_clients, dtype=bool)
    scale = bound.data_term(everybody, statistics, constants)
    margin = max(participation_margin * scale, _worthwhile_pressure(statistics, constants))
    return Queues(
        participation=constants.data_budget + margin,
        quantization=constants.quantization_budget + quantization_margin,
    )


def _worthwhile_pressure(statistics: Statistics, constants: Constants) -> float:
    """The λ1 - ε1 at which the presence of the least useful client outweighs its energy."""
    cycles = cost.training_cycles(statistics.dataset_sizes, constants)
    spent_j = cost.compute_energy_j(cycles, constants.frequency_min_hz, constants)
    spent_j = spent_j + constants.transmit_power_w * constants.deadline_s
    shares = statistics.dataset_sizes / statistics.dataset_sizes.sum()
    worth = 4.0 * constants.local_updates * shares * statistics.gradient_norms_sq
    useful = worth > 0.0
    return float(np.max(constants.energy_weight * spent_j[useful] / worth[useful], initial=0.0))


def advance(
    queues: Queues, arrived: BoolArray, num_bits: IntArray, statistics: Statistics, constants: Constants
) -> Queues:
    """The queues after a round: each grows by its term, shrinks by its budget, and stops at zero.

    Deviates: E8, an empty round counts with all weights zero.
    """
    data = bound.data_term(arrived, statistics, constants)
    error = bound.quantization_term(arrived, num_bits, statistics, constants)
    return Queues(
        participation=max(queues.participation + data - constants.data_budget, 0.0),
        quantization=max(queues.quantization + error - constants.quantization_budget, 0.0),
    )
