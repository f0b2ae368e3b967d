"""Means with 95 % intervals over seeds, and tests about them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit  # scipy.stats takes half a second to import

CONFIDENCE = 0.95
MOST_CORRELATION = 0.999
"""A correlation of ±1 counts as ±0.999, because Fisher's z of ±1 is infinite."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with a 95 % interval (Student's t); the half-width is NaN with fewer than two seeds.

    Of correlations `centre` and `half` are in Fisher's z = atanh(r), where the spread does not depend on r; `mean`,
    `low` and `high` are correlations again, so that no interval leaves [-1, 1].
    """

    centre: float
    half: float
    count: int
    fisher: bool = False

    @property
    def mean(self) -> float:
        return self._back(self.centre)

    @property
    def low(self) -> float:
        return self._back(self.centre - self.half)

    @property
    def high(self) -> float:
        return self._back(self.centre + self.half)

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return bool(np.isfinite(self.half))

    def shown(self, form: str = ".2f", scale: float = 1.0, unit: str = "") -> str:
        if self.count == 0:
            return "–"
        mean = f"{self.mean * scale:{form}}"
        if not self.known:
            return f"{mean}{unit}"
        if self.fisher:
            return f"{mean} ({self.low * scale:{form}} to {self.high * scale:{form}}){unit}"
        return f"{mean} ± {self.half * scale:{form.lstrip('+')}}{unit}"

    def chance_above(self, value: float) -> float:
        """p of the one-sided t-test against "the number is at most this value"."""
        at = float(np.arctanh(np.clip(value, -MOST_CORRELATION, MOST_CORRELATION))) if self.fisher else value
        degrees = self.count - 1
        error = self.half / float(stdtrit(degrees, 0.5 + CONFIDENCE / 2.0))
        if error == 0.0:
            return 0.0 if self.centre > at else 1.0
        return float(stdtr(degrees, -(self.centre - at) / error))

    def chance_below(self, value: float) -> float:
        """p of the one-sided t-test against "the number is at least this value"."""
        return Estimate(-self.centre, self.half, self.count, self.fisher).chance_above(-value)

    def chance_unequal(self, value: float) -> float:
        """p of the two-sided t-test against "the number is this value"."""
        return min(1.0, 2.0 * min(self.chance_above(value), self.chance_below(value)))

    def chance_within(self, value: float, margin: float) -> float:
        """p of two one-sided tests (TOST) against "the number differs from this value by the margin or more"."""
        return max(self.chance_above(value - margin), self.chance_below(value + margin))

    def chance_beyond(self, value: float, margin: float) -> float:
        """p of the test against "the number differs from this value by at most the margin"."""
        return min(1.0, 2.0 * min(self.chance_above(value + margin), self.chance_below(value - margin)))

    def _back(self, value: float) -> float:
        return float(np.tanh(value)) if self.fisher else value


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


def correlation_estimate(values: Iterable[float]) -> Estimate:
    """The mean of correlations and its interval, through Fisher's z."""
    clipped = (float(np.clip(value, -MOST_CORRELATION, MOST_CORRELATION)) for value in values)
    e = estimate(float(np.arctanh(value)) for value in clipped)
    return Estimate(e.centre, e.half, e.count, fisher=True)


def holm(chances: Sequence[float]) -> list[float]:
    """The p-values of a family of tests, adjusted for their number by Holm's method."""
    adjusted, least = [1.0] * len(chances), 0.0
    for rank, place in enumerate(np.argsort(chances, kind="stable")):
        least = max(least, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = least
    return adjusted
