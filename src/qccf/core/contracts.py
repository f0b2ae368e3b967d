"""What passes between the rooms: constants, observations, decisions, outcomes, and the policy protocol.

Axes are client, then channel. Everything is linear SI. Arrays that describe clients have one entry for each client
of the federation, those that sit out included.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

PolicyState = dict[str, Any]
"""A policy's whole memory: plain values that survive ``json.dumps`` and ``json.loads`` unchanged."""

MAX_NUM_BITS = 32
"""More index bits than a 32-bit weight has carry nothing; the wire format stops here as well."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What stays the same through a run; ``docs/notation.md`` gives each symbol of the paper."""

    num_parameters: int
    deadline_s: float
    cycles_per_sample: float
    energy_coefficient: float
    transmit_power_w: float
    frequency_min_hz: float
    frequency_max_hz: float
    local_updates: int
    local_epochs: int
    learning_rate: float
    smoothness: float
    energy_weight: float
    data_budget: float
    quantization_budget: float
    bits_per_index: float | None = None
    overhead_bits: float | None = None
    """Payload bits are bits_per_index·q + overhead_bits; None stands for those of the paper's quantizer."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the server last heard of each client.

    ``gradient_norms_sq`` is G², ``gradient_variances`` σ², ``weight_ranges`` θ_max of the paper. The rest is what a
    codec forecasts from a client's last upload: ``error_scales`` is c, with which an upload of q bits errs by at most
    c/(2^q - 1)²; without it c follows from θ_max as the paper has it. ``upload_bits`` [client, q - 1] is the payload's
    size where it is not affine in q.
    """

    dataset_sizes: FloatArray
    gradient_norms_sq: FloatArray
    gradient_variances: FloatArray
    weight_ranges: FloatArray
    error_scales: FloatArray | None = None
    upload_bits: FloatArray | None = None

    @property
    def num_clients(self) -> int:
        return len(self.dataset_sizes)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the server knows when it decides: this round's rates [client, channel], the last known statistics."""

    rates_bps: FloatArray
    statistics: Statistics

    @property
    def num_clients(self) -> int:
        return len(self.rates_bps)

    @property
    def num_channels(self) -> int:
        return len(self.rates_bps[0])


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good a decision is: its J, and a proven bound below the J of every admissible decision."""

    objective: float
    lower_bound: float
    solver: str
    wall_time_s: float

    @property
    def gap(self) -> float:
        """How far J can be from the optimum at most, in J's own unit."""
        return self.objective - self.lower_bound


@dataclass(frozen=True, slots=True)
class Decision:
    """Who takes part, where, how fast and with how many bits.

    ``channels`` is -1, and bits and frequency are 0, for a client that sits out. ``raw`` uploads are 32-bit floats
    with no quantizer. ``deadline_exempt`` uploads arrive however late they are; their lateness is still counted.
    """

    channels: IntArray
    num_bits: IntArray
    frequencies_hz: FloatArray
    raw: bool = False
    deadline_exempt: bool = False
    certificate: Certificate | None = None

    @property
    def participates(self) -> BoolArray:
        return self.channels >= 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round came to, client by client, and what the server knows after it.

    ``losses`` are the local losses before training, NaN where none was measured.
    """

    arrived: BoolArray
    missed: BoolArray
    compute_energy_j: FloatArray
    upload_energy_j: FloatArray
    latency_s: FloatArray
    statistics: Statistics
    losses: FloatArray = field(default_factory=lambda: np.empty(0))

    @property
    def energy_j(self) -> FloatArray:
        return self.compute_energy_j + self.upload_energy_j


class Policy(Protocol):
    """Decides each round. State goes in and comes out; a policy object itself never changes.

    A policy is built as ``Class(constants, rounds=…, **options)``.
    """

    def init(self, statistics: Statistics) -> PolicyState:
        """The state before the first round, from the statistics probed at the initial model."""
        ...

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        """The decision for one round."""
        ...

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        """The state after the round."""
        ...
