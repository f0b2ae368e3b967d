"""No Quantization: every model is uploaded as 32-bit floats."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.control.matching import fastest_channels
from qccf.core.contracts import Constants, Decision, Observation, Outcome, PolicyState, Statistics
from qccf.core.options import option
from qccf.devices.cost import slowest_frequency_hz, training_cycles
from qccf.quantization.costs import raw_payload_bits

RAW_BITS = 32


@dataclass(frozen=True)
class NoQuantizationOptions:
    """Options of the policy no-quantization."""

    enforce_deadline: bool = option(False, "whether only clients that can meet the deadline take part")


class NoQuantization:
    """Uses the channels with the greatest total rate, the lowest CPU frequency and 32-bit weights.

    At the paper's rates no such upload meets the deadline, so the policy is exempt from it and its late uploads are
    counted. With `enforce_deadline` only clients that can meet the deadline take part, at the lowest frequency that
    meets it.

    Paper: Section VI, baseline (a).
    """

    Options = NoQuantizationOptions
    section = "no_quantization"
    codes = False
    colour, marker = "#7F7F7F", "x"

    def __init__(self, constants: Constants, *, rounds: int, **options: Any) -> None:
        self.constants = constants
        self.enforce_deadline = NoQuantizationOptions(**options).enforce_deadline

    def init(self, statistics: Statistics) -> PolicyState:
        return {}

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        c = self.constants
        cycles = training_cycles(observation.statistics.dataset_sizes, c)
        with np.errstate(divide="ignore"):
            upload_s = raw_payload_bits(c.num_parameters + c.num_buffers) / observation.rates_bps
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

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        return state
