"""Channel-Allocate: as many bits as the channels can carry."""

import numpy as np

from qccf.control.matching import cheapest_matching
from qccf.core.contracts import Constants, Decision, FloatArray, Observation, Outcome, PolicyState, Statistics
from qccf.devices.cost import slowest_frequency_hz, training_cycles
from qccf.quantization.costs import most_bits, payload_bits


class ChannelAllocate:
    """Maximises the total of the largest feasible bits, then runs each CPU as slowly as the deadline allows.

    Paper: Section VI, baseline (b). Among allocations with the same total it prefers faster links.
    """

    colour, marker = "#E69F00", "s"

    def __init__(self, constants: Constants, *, rounds: int) -> None:
        self.constants = constants

    def init(self, statistics: Statistics) -> PolicyState:
        return {}

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        c = self.constants
        cycles = training_cycles(observation.statistics.dataset_sizes, c)
        most = most_bits(self._room_bits(observation.rates_bps, cycles), observation.statistics, c)
        tie_break = observation.rates_bps / (1.0 + observation.rates_bps.sum())
        _, channels = cheapest_matching(np.where(most > 0.0, -most - tie_break, 0.0))
        on = channels >= 0
        rows = np.flatnonzero(on)
        num_bits = np.zeros(len(channels), dtype=np.int64)
        num_bits[rows] = most[rows, channels[rows]]
        bits = payload_bits(num_bits[rows], rows, observation.statistics, c)
        upload_s = bits / observation.rates_bps[rows, channels[rows]]
        frequencies_hz = np.zeros(len(channels))
        frequencies_hz[rows] = slowest_frequency_hz(cycles[rows], upload_s, c.of(rows))
        return Decision(channels, num_bits, frequencies_hz)

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        return state

    def _room_bits(self, rates_bps: FloatArray, cycles: FloatArray) -> FloatArray:
        """Bits that each pair [client, channel] can carry in the time left after training at the highest frequency."""
        c = self.constants
        return np.asarray(rates_bps * (c.deadline_s - cycles / c.frequency_max_hz)[:, None])
