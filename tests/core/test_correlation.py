"""Rank correlations against scipy's own, and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from qccf.core.correlation import rank_correlation, relation, relation_within_rounds


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 40).astype(float), rng.normal(size=40)
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    y[3] = math.nan
    keep = np.isfinite(y)
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x[keep], y[keep]).statistic)
    assert math.isnan(rank_correlation(np.ones(5), np.arange(5.0)))


def test_what_never_varies_is_related_to_nothing() -> None:
    assert relation(np.arange(4.0), np.ones(4)) == 0.0
    assert math.isnan(relation(np.arange(2.0), np.ones(2)))


def test_a_rise_for_everybody_does_not_hide_a_relation_within_rounds() -> None:
    """Bits follow the size in every round, and every round has many more of them than the one before."""
    sizes = np.tile([10.0, 20.0, 30.0, 40.0], 3)
    rounds = np.repeat([0, 1, 2], 4)
    bits = 10.0 * rounds + sizes / 10.0
    assert rank_correlation(sizes, bits) < 0.5
    shuffled = np.random.default_rng(0).permutation(12)
    assert relation_within_rounds(rounds[shuffled], sizes[shuffled], bits[shuffled]) == pytest.approx(1.0)


def test_rounds_in_which_all_are_the_same_count_unless_only_those_that_vary_are_asked_for() -> None:
    sizes, rounds = np.tile([1.0, 2.0, 3.0], 2), np.repeat([0, 1], 3)
    lost = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    alone = stats.spearmanr([1, 2, 3], [0, 0, 1]).statistic
    assert relation_within_rounds(rounds, sizes, lost) == pytest.approx(alone / 2)
    assert relation_within_rounds(rounds, sizes, lost, varying_only=True) == pytest.approx(alone)
    assert relation_within_rounds(rounds, sizes, np.zeros(6), varying_only=True) == 0.0
    assert math.isnan(relation_within_rounds(np.arange(6), sizes, lost))
    assert math.isnan(relation_within_rounds(rounds[:0], sizes[:0], lost[:0]))
