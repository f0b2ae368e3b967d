"""Means with 95 % intervals over seeds."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit  # scipy.stats takes half a second to import

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % interval (Student's t); NaN with fewer than two seeds."""

    mean: float
    half: float
    count: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return bool(np.isfinite(self.half))

    def shown(self, form: str = ".2f", scale: float = 1.0, unit: str = "") -> str:
        if self.count == 0:
            return "–"
        mean = f"{self.mean * scale:{form}}"
        return f"{mean} ± {self.half * scale:{form.lstrip('+')}}{unit}" if self.known else f"{mean}{unit}"


def estimate(values: Iterable[float], grain: float = 0.0) -> Estimate:
    """The mean of the finite values and its interval; the spread is at least that of rounding to `grain`."""
    kept = np.array([value for value in values if np.isfinite(value)], dtype=float)
    if len(kept) == 0:
        return Estimate(float("nan"), float("nan"), 0)
    if len(kept) == 1:
        return Estimate(float(kept[0]), float("nan"), 1)
    spread = max(float(kept.std(ddof=1)), grain / np.sqrt(12.0))
    half = float(stdtrit(len(kept) - 1, 0.5 + CONFIDENCE / 2.0) * spread / np.sqrt(len(kept)))
    return Estimate(float(kept.mean()), half, len(kept))
