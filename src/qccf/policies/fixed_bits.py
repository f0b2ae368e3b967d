"""Fixed bits: every upload has the same number of bits in every round. Adaptive policies must beat the best of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.control.matching import match_everyone
from qccf.control.scale_free import ScaleFreeProblem
from qccf.control.turns import most_bits_in_time, whose_turn
from qccf.core.contracts import Constants, Decision, FloatArray, Observation, Outcome, PolicyState, Statistics
from qccf.core.options import option

LONGEST_WAIT = 12.0
"""Waits are scaled to at most this many rounds, because turns are worth e^wait; their order is kept."""


@dataclass(frozen=True)
class FixedBitsOptions:
    """Options of the policy fixed-bits."""

    bits: int = option(
        4,
        "bits per parameter of every upload; fewer where a link does not carry them in time",
        unit="bits",
        ge=1,
        le=32,
    )


class FixedBits:
    """As many clients as channels and links allow, those that waited longest first, at the least energy.

    A channel that carries fewer bits would be cheap: the bits come first, then the energy. Channels and frequencies are
    the best for these bits: what differs from QCCF is only that the bits do not adapt.
    State: how many rounds each client has waited.
    """

    Options = FixedBitsOptions
    section = "fixed_bits"
    colour, marker = "#CC79A7", "v"

    def __init__(self, constants: Constants, *, rounds: int, **options: Any) -> None:
        self.constants = constants
        self.bits = FixedBitsOptions(**options).bits

    def init(self, statistics: Statistics) -> PolicyState:
        return {"waits": [0] * statistics.num_clients}

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        count = observation.num_clients
        waits = np.array(state["waits"], dtype=float)
        debts = waits * min(1.0, LONGEST_WAIT / max(float(waits.max()), 1.0))
        wanted = np.full(count, self.bits, dtype=np.int64)
        clients = np.flatnonzero(whose_turn(observation, self.constants, wanted, debts, 1.0).channels >= 0)
        channels, num_bits = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
        frequencies_hz = np.zeros(count)
        if len(clients):
            part, constants = observation.of(clients), self.constants.of(clients)
            problem = ScaleFreeProblem(part, constants, energy_price=1.0, error_price=0.0)
            rows, columns = np.arange(len(clients)), np.arange(observation.num_channels)
            fitting = np.minimum(most_bits_in_time(part, constants), self.bits)
            costs = problem.energy_costs(fitting, rows[:, None], columns)
            matched = match_everyone(costs + _price_of_missing_bits(costs) * (self.bits - fitting))
            assert matched is not None, "these clients were matched before"
            chosen = matched[1]
            channels[clients], num_bits[clients] = chosen, fitting[rows, chosen]
            frequencies_hz[clients] = problem.frequencies_hz(fitting[rows, chosen], rows, chosen)
        return Decision(channels, num_bits, frequencies_hz)

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        return {"waits": np.where(decision.participates, 0, np.array(state["waits"]) + 1).tolist()}


def _price_of_missing_bits(costs: FloatArray) -> float:
    """More than any assignment can save in energy, so that no bit is given up for it."""
    known = costs[np.isfinite(costs)]
    return float(1.0 + costs.shape[0] * known.max()) if len(known) else 1.0
