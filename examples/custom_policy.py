"""A policy of your own: every client on its fastest free channel, with a fixed number of bits.
Try it: qccf plan quick --policy qccf,examples.custom_policy:BestLinks --set "policy.options={num_bits = 4}"
"""

import numpy as np

from qccf import Constants, Decision, Observation, Outcome, Statistics
from qccf.control.matching import fastest_channels
from qccf.devices.cost import slowest_frequency_hz, training_cycles
from qccf.quantization import payload_bits


class BestLinks:
    def __init__(self, constants: Constants, *, rounds: int, num_bits: int = 4) -> None:
        self.constants, self.num_bits = constants, num_bits

    def init(self, statistics: Statistics) -> dict:
        return {"rounds_decided": 0}

    def decide(self, state: dict, observation: Observation, rng: np.random.Generator) -> Decision:
        cycles = training_cycles(observation.statistics.dataset_sizes, self.constants)[:, None]
        clients = np.arange(observation.num_clients)[:, None]
        bits = payload_bits(self.num_bits, clients, observation.statistics, self.constants)
        upload_s = bits / observation.rates_bps
        frequencies_hz = slowest_frequency_hz(cycles, upload_s, self.constants)  # infinite: cannot make it
        channels = fastest_channels(observation.rates_bps, np.isfinite(frequencies_hz))
        on = channels >= 0
        mine_hz = np.where(on, frequencies_hz[np.arange(len(channels)), channels], 0.0)
        return Decision(channels, np.where(on, self.num_bits, 0), mine_hz)

    def update(self, state: dict, decision: Decision, outcome: Outcome) -> dict:
        return {"rounds_decided": state["rounds_decided"] + 1}
