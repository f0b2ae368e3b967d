"""Intervals against scipy's own."""

import math

import numpy as np
import pytest
from scipy import stats

from qccf.core.intervals import estimate


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


def test_equal_counts_do_not_mean_that_there_is_no_spread() -> None:
    """Three times one round ahead: rounding alone spreads a count by 1/√12."""
    assert estimate([1.0, 1.0, 1.0]).half == 0.0
    half = estimate([1.0, 1.0, 1.0], grain=1.0).half
    assert half == pytest.approx(stats.t.ppf(0.975, 2) / math.sqrt(12 * 3))
    assert estimate([1.0, 9.0], grain=1.0) == estimate([1.0, 9.0])
