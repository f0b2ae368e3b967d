"""Principle: DAdaQuant's rule for the bits, blind to the radio.

Source: R. Hönig, Y. Zhao, R. Mullins, "DAdaQuant", ICML 2022. Paper: Section VI, baseline (c).
"""

from typing import Any, Literal

import numpy as np

from qccf.core.contracts import MAX_NUM_BITS, Constants, Decision, FloatArray, Observation, Outcome, State, Statistics
from qccf.devices.cost import slowest_frequency_hz, training_cycles
from qccf.policies.fastest_channels import fastest_channels
from qccf.quantization.costs import payload_bits


class Principle:
    """A level that rises when the loss stops falling, spread over clients by their data.

    Channels go by best total rate. A client runs as slowly as its deadline allows; one that cannot make it does not
    know that beforehand, runs at full speed, and loses its upload.

    State: the level, the running losses of the last `patience` rounds, how many rounds were seen and when the level
    last rose.
    """

    def __init__(
        self,
        constants: Constants,
        *,
        rounds: int,
        smoothing: float = 0.9,
        patience: int | None = None,
        initial_bits: int = 3,
        unit: Literal["bits", "intervals"] = "bits",
    ) -> None:
        """`patience` is φ, a tenth of the rounds by default; `unit` says what the rule counts."""
        self.constants = constants
        self.smoothing = smoothing
        self.patience = max(2, rounds // 10 if patience is None else patience)
        self.unit = unit
        self.initial_level = initial_bits if unit == "bits" else 2**initial_bits - 1

    def init(self, statistics: Statistics) -> State:
        return {"level": self.initial_level, "running_losses": [], "rounds_seen": 0, "last_rise": 0}

    def decide(self, state: State, observation: Observation, rng: np.random.Generator) -> Decision:
        c = self.constants
        channels = fastest_channels(observation.rates_bps, observation.rates_bps > 0.0)
        rows = np.flatnonzero(channels >= 0)
        sizes = observation.statistics.dataset_sizes
        num_bits = np.zeros(len(channels), dtype=np.int64)
        frequencies_hz = np.zeros(len(channels))
        if len(rows):
            levels = spread_level(state["level"], sizes[rows] / sizes[rows].sum())
            num_bits[rows] = np.clip(self._to_bits(levels), 1, MAX_NUM_BITS)
            bits = payload_bits(num_bits[rows], rows, observation.statistics, c)
            upload_s = bits / observation.rates_bps[rows, channels[rows]]
            needed_hz = slowest_frequency_hz(training_cycles(sizes[rows], c), upload_s, c)
            frequencies_hz[rows] = np.minimum(needed_hz, c.frequency_max_hz)
        return Decision(channels, num_bits, frequencies_hz)

    def update(self, state: State, decision: Decision, outcome: Outcome) -> State:
        measured = np.isfinite(outcome.losses) & (outcome.statistics.dataset_sizes > 0)
        if not measured.any():
            return state
        loss = float(np.average(outcome.losses[measured], weights=outcome.statistics.dataset_sizes[measured]))
        history = list(state["running_losses"])
        history.append(self.smoothing * history[-1] + (1.0 - self.smoothing) * loss if history else loss)
        history = history[-self.patience :]
        seen, last_rise, level = state["rounds_seen"] + 1, state["last_rise"], state["level"]
        stalled = len(history) == self.patience and history[-1] >= history[0]
        if stalled and seen - last_rise >= self.patience:
            level, last_rise = (level + 1 if self.unit == "bits" else 2 * level), seen
        return {"level": level, "running_losses": history, "rounds_seen": seen, "last_rise": last_rise}

    def _to_bits(self, levels: FloatArray) -> Any:
        """Bits of the paper's quantizer, which has 2^q - 1 intervals."""
        return levels if self.unit == "bits" else np.ceil(np.log2(levels + 1.0))


def spread_level(level: float, weights: FloatArray) -> FloatArray:
    """Client-adaptive levels whose expected error equals that of `level` for everybody, at the least total.

    q_i = max(1, round(√(a/b)·w_i^(2/3))) with a = Σ w^(2/3) and b = Σ w²/q².
    """
    a = np.power(weights, 2.0 / 3.0).sum()
    b = np.square(weights / level).sum()
    return np.maximum(1.0, np.round(np.sqrt(a / b) * np.power(weights, 2.0 / 3.0)))
