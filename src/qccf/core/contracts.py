"""The types that pass between packages: constants, observations, decisions, outcomes, and the policy protocol.

Axes are client, then channel. Everything is linear SI. Arrays that describe clients have one entry per client of the
federation, also for clients that sit out.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

PerClient = Any
"""A number that holds for all clients, or an array with one for each."""

PolicyState = dict[str, Any]
"""A policy's whole memory: plain values that survive ``json.dumps`` and ``json.loads`` unchanged."""

MAX_NUM_BITS = 32
"""The most bits per index. More than the 32 bits of a weight carry no information."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of a run; ``docs/notation.md`` gives each symbol of the paper.

    What describes a device is one number for all clients, or an array [client] where devices differ. `of` takes some
    clients of such arrays, and `aligned` lets them broadcast with arrays whose first axis is the client.
    """

    num_parameters: int
    deadline_s: float
    cycles_per_sample: PerClient
    energy_coefficient: PerClient
    transmit_power_w: PerClient
    frequency_min_hz: PerClient
    frequency_max_hz: PerClient
    local_updates: int
    local_epochs: int
    learning_rate: float
    smoothness: float
    energy_weight: float
    data_budget: float
    quantization_budget: float
    bits_per_index: float | None = None
    overhead_bits: float | None = None
    """A payload has bits_per_index·q + overhead_bits bits; None means those of the paper's quantizer."""
    num_buffers: int = 0
    """Values of buffers, which are sent as 32-bit floats beside the parameters and are part of overhead_bits."""
    bandwidth_hz: float = 0.0
    transmit_power_min_w: PerClient = 0.0
    adapt_power: bool = False
    """Whether transmit power is a decision, between transmit_power_min_w and transmit_power_w; needs bandwidth_hz."""
    circuit_power_w: PerClient = 0.0
    """What the radio takes besides its transmit power while it sends."""
    power_per_radiated: float = 1.0
    """What the radio takes for each watt that it radiates."""
    wake_energy_j: float = 0.0
    """Energy of waking the radio for an upload."""
    coding_cycles: float = 0.0
    """CPU cycles of encoding an upload and forecasting the next one."""
    receive_energy_j: float = 0.0
    """Energy of receiving the global model once."""
    idle_power_w: PerClient = 0.0
    """What a participant takes at rest, charged for its whole round; computing and sending come on top."""
    batch_size: int = 0
    """Samples of a local step; 0 where `local_updates` states the steps. `local_updates` is then the mean client's."""
    step_frequencies_hz: FloatArray | None = None
    """The frequencies that devices offer [step] or [client, step], rising, with their energy per cycle rising, too.

    Infinite after a device's last step, and throughout for a device that has none and follows energy_coefficient."""
    step_energies_j: FloatArray | None = None
    """The energy of one cycle at each step; infinite where the frequency is."""

    @property
    def upload_power_w(self) -> PerClient:
        """What an upload at full power takes."""
        return self.power_per_radiated * self.transmit_power_w + self.circuit_power_w

    @property
    def differ(self) -> bool:
        """Whether devices differ, so that there is a number for each client."""
        return any(self._has_clients(name) for name in PER_CLIENT)

    def of(self, clients: Any) -> "Constants":
        """The constants of some clients; an index of any shape gives arrays of that shape."""
        if not self.differ:
            return self
        return replace(self, **{n: getattr(self, n)[clients] for n in PER_CLIENT if self._has_clients(n)})

    def aligned(self, *operands: Any) -> "Constants":
        """The constants with as many axes as the operands; the first is the client, the others are of length 1."""
        if not self.differ:
            return self
        axes = max(np.ndim(one) for one in operands)
        changed = {}
        for name in PER_CLIENT:
            if self._has_clients(name):
                values = getattr(self, name)
                own = values.ndim - (name in STEPS)
                changed[name] = values.reshape(values.shape[:own] + (1,) * (axes - own) + values.shape[own:])
        return replace(self, **changed)

    def typical(self) -> "Constants":
        """The constants of a client in the middle: the median of each, at any frequency between the limits."""
        if not self.differ:
            return self
        medians = {n: None if n in STEPS else float(np.median(getattr(self, n))) for n in PER_CLIENT}
        return replace(self, **medians)  # type: ignore[arg-type]

    def _has_clients(self, name: str) -> bool:
        return np.ndim(getattr(self, name)) > (name in STEPS)


STEPS = ("step_frequencies_hz", "step_energies_j")
PER_CLIENT = (
    "cycles_per_sample",
    "energy_coefficient",
    "transmit_power_w",
    "frequency_min_hz",
    "frequency_max_hz",
    "transmit_power_min_w",
    "circuit_power_w",
    "idle_power_w",
    *STEPS,
)
"""The constants that may have a number for each client."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the server knows of each client from its last report.

    ``gradient_norms_sq`` is G², ``gradient_variances`` σ², ``weight_ranges`` θ_max of the paper. A codec forecasts the
    rest from a client's last upload. ``error_scales`` is c: the expected squared error of an upload with q bits is at
    most c/(2^q - 1)²; without it c follows from θ_max as in the paper. ``upload_errors`` [client, q - 1] is the
    expected squared error itself, where the codec knows it. ``upload_bits`` [client, q - 1] is the size of the payload
    where it is not affine in q.
    """

    dataset_sizes: FloatArray
    gradient_norms_sq: FloatArray
    gradient_variances: FloatArray
    weight_ranges: FloatArray
    error_scales: FloatArray | None = None
    upload_bits: FloatArray | None = None
    upload_errors: FloatArray | None = None

    @property
    def num_clients(self) -> int:
        return len(self.dataset_sizes)

    def of(self, clients: IntArray) -> "Statistics":
        """The statistics of some clients, in this order."""
        taken: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        taken = {name: None if values is None else values[clients] for name, values in taken.items()}
        return Statistics(**taken)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the server knows when it decides: this round's rates [client, channel] and the last known statistics.

    ``charges`` is the share of its first charge that each client's battery holds, 1 on mains; None if nobody has one.
    """

    rates_bps: FloatArray
    statistics: Statistics
    charges: FloatArray | None = None

    @property
    def num_clients(self) -> int:
        return len(self.rates_bps)

    @property
    def num_channels(self) -> int:
        return len(self.rates_bps[0])

    def of(self, clients: IntArray) -> "Observation":
        """The same round with only some clients, in this order."""
        charges = None if self.charges is None else self.charges[clients]
        return Observation(self.rates_bps[clients], self.statistics.of(clients), charges)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The quality of a decision: its J, and a proven lower bound on the J of every admissible decision."""

    objective: float
    lower_bound: float
    solver: str
    wall_time_s: float

    @property
    def gap(self) -> float:
        """The largest possible distance of J from the optimum, in the unit of J."""
        return self.objective - self.lower_bound


@dataclass(frozen=True, slots=True)
class Targets:
    """What a decision was measured against: the error budget of its round and each client's fair share.

    ``errors`` is the expected squared error of each participant's upload, ``least_errors`` the same with as many bits
    as its channel carries in time. The aggregate of a round errs by the sum of squared weights times errors; its budget
    is ``slack`` times the same sum with the least errors, or ``tolerated_error`` if that is more. ``turns`` is the
    share of this round that is owed to each client. ``error_price`` is what an error of a whole budget cost.
    """

    errors: FloatArray
    least_errors: FloatArray
    slack: float
    tolerated_error: float
    turns: FloatArray
    error_price: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The participating clients with their channel, bits and CPU frequency.

    A client that sits out has channel -1, and bits, frequency and power 0. ``raw`` uploads are 32-bit floats without a
    quantizer. ``deadline_exempt`` uploads arrive however late they are; they still count as missed. ``powers_w`` is
    the transmit power of each participant; None is the fixed power of the run.
    """

    channels: IntArray
    num_bits: IntArray
    frequencies_hz: FloatArray
    raw: bool = False
    deadline_exempt: bool = False
    certificate: Certificate | None = None
    targets: Targets | None = None
    powers_w: FloatArray | None = None

    @property
    def participates(self) -> BoolArray:
        return self.channels >= 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a round for each client, and what the server knows after it.

    ``losses`` are the local losses before training, NaN where none was measured. The energies of coding, receiving and
    idle waiting are zero unless a run charges for them.
    """

    arrived: BoolArray
    missed: BoolArray
    compute_energy_j: FloatArray
    upload_energy_j: FloatArray
    latency_s: FloatArray
    statistics: Statistics
    losses: FloatArray = field(default_factory=lambda: np.empty(0))
    coding_energy_j: FloatArray | float = 0.0
    receive_energy_j: FloatArray | float = 0.0
    idle_energy_j: FloatArray | float = 0.0

    @property
    def energy_j(self) -> FloatArray:
        return (
            self.compute_energy_j
            + self.upload_energy_j
            + self.coding_energy_j
            + self.receive_energy_j
            + self.idle_energy_j
        )


class Policy(Protocol):
    """Decides each round. The state is passed in and returned; a policy object itself never changes.

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
