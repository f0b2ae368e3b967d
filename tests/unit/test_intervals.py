"""Intervals and rank correlations against scipy's own."""

import math

import numpy as np
import pytest
from scipy import stats

from qccf.report.intervals import band, estimate, rank_correlation


def test_the_interval_is_students() -> None:
    values = [3.1, 2.7, 4.4, 3.9, 3.0]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    e = estimate([*values, math.nan])
    assert (e.low, e.high, e.count) == (pytest.approx(low), pytest.approx(high), 5)
    assert e.shown(".1f", 10, " %") == f"{10 * e.mean:.1f} ± {10 * e.half:.1f} %"


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    one, none = estimate([2.0]), estimate([math.nan])
    assert (one.mean, one.known, one.shown()) == (2.0, False, "2.00")
    assert (none.count, none.known, none.shown()) == (0, False, "–")


def test_bands_are_intervals_column_by_column() -> None:
    values = np.array([[1.0, 2.0], [3.0, 2.5], [2.0, 3.0]])
    mean, low, high = band(values)
    for k in range(2):
        e = estimate(values[:, k])
        assert (mean[k], low[k], high[k]) == pytest.approx((e.mean, e.low, e.high))


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 40).astype(float), rng.normal(size=40)
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    y[3] = math.nan
    keep = np.isfinite(y)
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x[keep], y[keep]).statistic)
    assert math.isnan(rank_correlation(np.ones(5), np.arange(5.0)))
