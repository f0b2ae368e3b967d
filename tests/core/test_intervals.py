"""Intervals against scipy's own."""

import math

import numpy as np
import pytest
from scipy import stats

from qccf.core.intervals import correlation_estimate, estimate, holm


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


VALUES = [0.31, 0.27, 0.44, -0.39, 0.30, 0.12]


@pytest.mark.parametrize("value", [-0.2, 0.0, 0.1, 0.5])
def test_one_and_two_sided_tests_are_students(value: float) -> None:
    e = estimate(VALUES)
    for side, ours in (
        ("greater", e.chance_above),
        ("less", e.chance_below),
        ("two-sided", e.chance_unequal),
    ):
        assert ours(value) == pytest.approx(stats.ttest_1samp(VALUES, value, alternative=side).pvalue)


def test_equivalence_is_the_worse_of_two_one_sided_tests() -> None:
    """The larger p of the tests against both ends; significant where the 90 % interval fits into the margin."""
    e = estimate(VALUES)
    ends = [stats.ttest_1samp(VALUES, end, alternative=side).pvalue for end, side in ((-0.5, "greater"), (0.5, "less"))]
    assert e.chance_within(0.0, 0.5) == pytest.approx(max(ends))
    low, high = stats.t.interval(0.90, len(VALUES) - 1, loc=np.mean(VALUES), scale=stats.sem(VALUES))
    fits = max(abs(low), abs(high))
    assert e.chance_within(0.0, fits * 1.0001) < 0.05 < e.chance_within(0.0, fits * 0.9999)


def test_beyond_a_margin_is_the_opposite_of_equivalence() -> None:
    e = estimate([3.0, 3.2, 2.9, 3.1])
    assert e.chance_beyond(0.0, 1.0) == pytest.approx(2 * stats.ttest_1samp([3.0, 3.2, 2.9, 3.1], 1.0).pvalue / 2)
    assert e.chance_beyond(0.0, 1.0) < 0.001 < 0.9 < e.chance_within(0.0, 1.0)
    assert estimate([0.1, -0.1, 0.0]).chance_beyond(0.0, 1.0) == 1.0


def test_equal_values_leave_no_doubt() -> None:
    e = estimate([2.0, 2.0, 2.0])
    assert (e.chance_above(1.0), e.chance_above(2.0), e.chance_below(3.0), e.chance_unequal(2.0)) == (
        0.0,
        1.0,
        0.0,
        1.0,
    )


def test_intervals_of_correlations_stay_within_one() -> None:
    """By hand: atanh(0.9) = 1.4722, atanh(0.99) = 2.6467; t(0.975, 1) = 12.706."""
    e = correlation_estimate([0.9, 0.99])
    assert e.mean == pytest.approx(math.tanh((1.4722 + 2.6467) / 2), abs=1e-4)
    assert e.half == pytest.approx(12.706 * (2.6467 - 1.4722) / 2, rel=1e-3)
    for values in ([0.9, 0.99], [-1.0, -1.0, -0.9], [1.0, 1.0, 1.0], [0.2, -0.9, 0.99]):
        e = correlation_estimate(values)
        assert -1.0 <= e.low <= e.mean <= e.high <= 1.0
    assert correlation_estimate([0.9, 0.8, 0.95]).shown("+.2f") == "+0.90 (+0.51 to +0.98)"
    z = np.arctanh([0.3, 0.1, 0.4])
    test = stats.ttest_1samp(z, math.atanh(0.2), alternative="greater")
    assert correlation_estimate([0.3, 0.1, 0.4]).chance_above(0.2) == pytest.approx(test.pvalue)


def test_holms_method_by_hand() -> None:
    """Sorted 0.01, 0.02, 0.03, 0.9 times 4, 3, 2, 1, and never below the one before."""
    assert holm([0.03, 0.9, 0.01, 0.02]) == pytest.approx([0.06, 0.9, 0.04, 0.06])
    assert holm([]) == []
    assert holm([0.5, 0.6]) == [1.0, 1.0]
