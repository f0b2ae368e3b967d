"""Principle: DAdaQuant's rule for the bits, which ignores the radio.

Source: R. Hönig, Y. Zhao, R. Mullins, "DAdaQuant", ICML 2022. Paper: Section VI, baseline (c).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qccf.control.matching import fastest_channels
from qccf.core.contracts import (
    MAX_NUM_BITS,
    Constants,
    Decision,
    FloatArray,
    Observation,
    Outcome,
    PolicyState,
    Statistics,
)
from qccf.core.options import option
from qccf.devices.cost import slowest_frequency_hz, training_cycles
from qccf.quantization.costs import payload_bits

PUBLISHED_MEMORY = 5.0
"""φ·(1 - ψ) of DAdaQuant: it has φ = 50 and ψ = 0.9 in runs of 500 rounds."""


@dataclass(frozen=True)
class PrincipleOptions:
    """Options of the policy principle (DAdaQuant)."""

    form: Literal["paper", "published"] = option(
        "paper",
        "paper: the rule adds one bit at a time; published: as DAdaQuant's authors have it, intervals that double from "
        "1 to most_intervals, meant for a codec of updates",
    )
    smoothing: Literal["auto"] | float = option(
        "auto", 'smoothing of the running loss, ψ; "auto" keeps φ·(1 - ψ) = 5, which is 0.9 in 500 rounds', ge=0, lt=1
    )
    patience: int = option(
        0, "rounds without progress before the level rises, φ; 0 is a tenth of the rounds", ge=0, le=1_000_000
    )
    initial_bits: int = option(3, "bits in the first round (form paper)", unit="bits", ge=1, le=16)
    most_intervals: int = option(8, "the level at which the rule stops (form published), q_max", ge=1, le=2**16)

    def __post_init__(self) -> None:
        if self.patience == 1:
            raise ValueError(
                "patience = 1 compares a round with itself: give 2 or more, or 0 for a tenth of the rounds"
            )


class Principle:
    """Raises a common level when the loss stops falling, and distributes it over clients by their data.

    Channels maximise the total rate. A client runs as slowly as its deadline allows. A client that cannot meet the
    deadline does not know it in advance: it runs at full speed and loses its upload.

    State: the level, the running losses of the last `patience` rounds, the number of rounds seen, and the round of the
    last rise.
    """

    Options = PrincipleOptions
    section = "principle"
    colour, marker = "#D55E00", "^"

    def __init__(self, constants: Constants, *, rounds: int, **options: Any) -> None:
        chosen = PrincipleOptions(**options)
        self.constants = constants
        self.patience = chosen.patience or max(2, rounds // 10)
        self.smoothing = chosen.smoothing if chosen.smoothing != "auto" else scaled_smoothing(self.patience)
        self.published = chosen.form == "published"
        self.initial_level = 1 if self.published else chosen.initial_bits
        self.most_level = chosen.most_intervals if self.published else MAX_NUM_BITS

    def init(self, statistics: Statistics) -> PolicyState:
        return {"level": self.initial_level, "running_losses": [], "rounds_seen": 0, "last_rise": 0}

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
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
            own = c.of(rows)
            needed_hz = slowest_frequency_hz(training_cycles(sizes[rows], own), upload_s, own)
            frequencies_hz[rows] = np.minimum(needed_hz, own.frequency_max_hz)
        return Decision(channels, num_bits, frequencies_hz)

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
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
            level, last_rise = min(2 * level if self.published else level + 1, self.most_level), seen
        return {"level": level, "running_losses": history, "rounds_seen": seen, "last_rise": last_rise}

    def _to_bits(self, levels: FloatArray) -> Any:
        """Bits of the paper's quantizer, which has 2^q - 1 intervals."""
        return np.ceil(np.log2(levels + 1.0)) if self.published else levels


def scaled_smoothing(patience: int) -> float:
    """ψ for which the running loss can stall within `patience` rounds as it does in the published runs.

    With ψ = 0.9 it remembers ten rounds. In a run of 60 rounds (φ = 6) it would then hardly ever rise.
    """
    return max(0.0, 1.0 - PUBLISHED_MEMORY / patience)


def spread_level(level: float, weights: FloatArray) -> FloatArray:
    """Client-adaptive levels whose expected error equals that of `level` for everybody, at the least total.

    q_i = max(1, round(√(a/b)·w_i^(2/3))) with a = Σ w^(2/3) and b = Σ w²/q².
    """
    a = np.power(weights, 2.0 / 3.0).sum()
    b = np.square(weights / level).sum()
    return np.maximum(1.0, np.round(np.sqrt(a / b) * np.power(weights, 2.0 / 3.0)))
