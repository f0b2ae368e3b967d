"""No Quantization: every model goes up as 32-bit floats."""

import numpy as np

from qccf.core.contracts import Constants, Decision, Observation, Outcome, State, Statistics
from qccf.devices.cost import slowest_frequency_hz, training_cycles
from qccf.policies.fastest_channels import fastest_channels
from qccf.quantization.costs import raw_payload_bits

RAW_BITS = 32


class NoQuantization:
    """Channels for the best total rate, slowest CPU, 32-bit weights.

    At the paper's rates no such upload meets the deadline, so the policy is exempt from it and its late uploads are
    counted. With `enforce_deadline` only clients that can make it take part, at the slowest frequency that does.

    Paper: Section VI, baseline (a).
    """

    def __init__(self, constants: Constants, *, rounds: int, enforce_deadline: bool = False) -> None:
        self.constants = constants
        self.enforce_deadline = enforce_deadline

    def init(self, statistics: Statistics) -> State:
        return {}

    def decide(self, state: State, observation: Observation, rng: np.random.Generator) -> Decision:
        c = self.constants
        cycles = training_cycles(observation.statistics.dataset_sizes, c)
        with np.errstate(divide="ignore"):
            upload_s = raw_payload_bits(c.num_parameters) / observation.rates_bps
        needed_hz = slowest_frequency_hz(cycles[:, None], upload_s, c)
        usable = np.isfinite(needed_hz) if self.enforce_deadline else observation.rates_bps > 0.0
        channels = fastest_channels(observation.rates_bps, usable)
        on = channels >= 0
        frequencies_hz = np.where(on, c.frequency_min_hz, 0.0)
        if self.enforce_deadline:
            frequencies_hz[on] = needed_hz[on, channels[on]]
        return Decision(
            channels, np.where(on, RAW_BITS, 0), frequencies_hz, raw=True, deadline_exempt=not self.enforce_deadline
        )

    def update(self, state: State, decision: Decision, outcome: Outcome) -> State:
        return state
