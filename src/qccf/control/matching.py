"""Channels for clients at least total cost: the assignment problems that every outer solver ends in."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from qccf.core.contracts import FloatArray, IntArray

_PRUNE_RATIO = 3
"""Prune when one side has this many times the other's members; below that, pruning costs more than it saves."""


def cheapest_matching(costs: FloatArray) -> tuple[float, IntArray]:
    """Match any clients to any channels so that the total cost is least; only pairs below zero are taken.

    Returns the total and the channel of each client (-1 for none). Setting positive costs to zero turns "may stay
    out" into a plain rectangular assignment: a pair matched at zero is a pair left out.
    """
    num_clients, num_channels = costs.shape
    clients = np.arange(num_clients)
    if num_clients > _PRUNE_RATIO * num_channels:
        clients = _contenders(costs.T, num_channels)
        costs = costs[clients]
    gains = np.minimum(costs, 0.0)
    rows, columns = linear_sum_assignment(gains)
    values = gains[rows, columns]
    taken = values < 0.0
    channels = np.full(num_clients, -1, dtype=np.int64)
    channels[clients[rows[taken]]] = columns[taken]
    return float(values.sum()), channels


def _contenders(costs: FloatArray, how_many: int) -> IntArray:
    """The clients that some optimal matching is made of.

    A channel never needs a client beyond its `how_many` cheapest: with no more than `how_many` channels, one of
    those is always free to take instead.
    """
    return np.unique(np.argpartition(costs, how_many - 1, axis=1)[:, :how_many])


def match_everyone(costs: FloatArray) -> tuple[float, IntArray] | None:
    """Give every client (row) a channel at least total cost, or None where that is impossible."""
    if costs.shape[0] > costs.shape[1]:
        return None
    try:
        rows, columns = linear_sum_assignment(costs)
    except ValueError:
        return None
    total = float(costs[rows, columns].sum())
    return (total, columns.astype(np.int64)) if np.isfinite(total) else None
