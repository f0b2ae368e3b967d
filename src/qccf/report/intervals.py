"""Means with 95 % intervals over seeds, and rank correlations."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, t

from qccf.contracts import FloatArray

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


def estimate(values: Iterable[float]) -> Estimate:
    """The mean of the finite values and its interval."""
    kept = np.array([value for value in values if np.isfinite(value)], dtype=float)
    if len(kept) == 0:
        return Estimate(float("nan"), float("nan"), 0)
    if len(kept) == 1:
        return Estimate(float(kept[0]), float("nan"), 1)
    half = float(t.ppf(0.5 + CONFIDENCE / 2.0, len(kept) - 1) * kept.std(ddof=1) / np.sqrt(len(kept)))
    return Estimate(float(kept.mean()), half, len(kept))


def band(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, lower and upper end over the first axis (seeds), column by column; ends are NaN with one seed."""
    columns = [estimate(column) for column in values.T]
    return tuple(np.array([getattr(c, name) for c in columns]) for name in ("mean", "low", "high"))  # type: ignore[return-value]


def rank_correlation(x: FloatArray, y: FloatArray) -> float:
    """Spearman's rank correlation over pairs that are both known; NaN where one of the two never varies."""
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
