"""Rank correlations."""

import numpy as np

from qccf.core.contracts import FloatArray, IntArray


def rank_correlation(x: FloatArray, y: FloatArray) -> float:
    """Spearman's coefficient over the pairs with two finite values; NaN where one of the two never varies."""
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[which], dtype=float)


def relation(x: FloatArray, y: FloatArray) -> float:
    """Rank correlation, 0 where `y` never varies."""
    known = y[np.isfinite(y)]
    return 0.0 if len(known) > 2 and np.ptp(known) == 0.0 else rank_correlation(x, y)


def relation_within_rounds(rounds: IntArray, x: FloatArray, y: FloatArray, *, varying_only: bool = False) -> float:
    """The rank correlation among the uploads of one round, averaged over rounds; NaN if no round has three uploads.

    Over all uploads together a trend from round to round would hide it. `varying_only` leaves out rounds in which `y`
    is the same for all clients, unless it is the same in every round.
    """
    order = np.argsort(rounds, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(rounds[order])) + 1) if len(order) else []
    varying = [group for group in groups if np.ptp(y[group]) > 0.0]
    each = np.array([relation(x[group], y[group]) for group in (varying or groups if varying_only else groups)])
    known = each[np.isfinite(each)]
    return float(known.mean()) if len(known) else float("nan")
