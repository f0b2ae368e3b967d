"""Channel-Allocate: as many bits as the channels allow."""

import numpy as np

from qccf.contracts import MAX_NUM_BITS, Constants, Decision, FloatArray, Observation, Outcome, State, Statistics
from qccf.control.matching import cheapest_matching
from qccf.cost import slowest_frequency_hz, training_cycles
from qccf.quantization.codecs import payload_bits, payload_overhead_bits


class ChannelAllocate:
    """Channels so that the total of the largest feasible bits is greatest; then those bits, as slowly as possible.

    Paper: Section VI, baseline (b). Between allocations with the same total the faster links are taken.
    """

    def __init__(self, constants: Constants, *, rounds: int) -> None:
        self.constants = constants

    def init(self, statistics: Statistics) -> State:
        return {}

    def decide(self, state: State, observation: Observation, rng: np.random.Generator) -> Decision:
        c = self.constants
        cycles = training_cycles(observation.statistics.dataset_sizes, c)
        most_bits = self._largest_bits(observation.rates_bps, cycles)
        tie_break = observation.rates_bps / (1.0 + observation.rates_bps.sum())
        _, channels = cheapest_matching(np.where(most_bits > 0.0, -most_bits - tie_break, 0.0))
        on = channels >= 0
        rows = np.flatnonzero(on)
        num_bits = np.zeros(len(channels), dtype=np.int64)
        num_bits[rows] = most_bits[rows, channels[rows]]
        upload_s = payload_bits(num_bits[rows], c.num_parameters) / observation.rates_bps[rows, channels[rows]]
        frequencies_hz = np.zeros(len(channels))
        frequencies_hz[rows] = slowest_frequency_hz(cycles[rows], upload_s, c)
        return Decision(channels, num_bits, frequencies_hz)

    def update(self, state: State, decision: Decision, outcome: Outcome) -> State:
        return state

    def _largest_bits(self, rates_bps: FloatArray, cycles: FloatArray) -> FloatArray:
        """The most bits of each pair [client, channel] that meet the deadline at the highest frequency; 0 for none."""
        c = self.constants
        time_left_s = c.deadline_s - cycles / c.frequency_max_hz
        room_bits = rates_bps * time_left_s[:, None] - payload_overhead_bits(c.num_parameters)
        most = np.clip(np.floor(room_bits / c.num_parameters * (1.0 - 1e-12)), 0, MAX_NUM_BITS)
        return np.asarray(most)
