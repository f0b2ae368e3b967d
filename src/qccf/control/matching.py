"""Assign channels to clients at the least total cost. Every outer solver uses these assignment problems."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from qccf.core.contracts import BoolArray, FloatArray, IntArray

_PRUNE_RATIO = 3
"""Prune if there are more than this many clients per channel. With fewer, pruning costs more than it saves."""


def cheapest_matching(costs: FloatArray) -> tuple[float, IntArray]:
    """Match clients to channels at the least total cost, using only pairs with a negative cost.

    Returns the total and the channel of each client (-1 for none). Positive costs are set to zero, so a pair matched
    at zero is left out. This makes optional participation a plain rectangular assignment problem.
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
    """Clients among which there is an optimal matching.

    A channel needs only its `how_many` cheapest clients: with at most `how_many` channels, one of these clients is
    always free.
    """
    return np.unique(np.argpartition(costs, how_many - 1, axis=1)[:, :how_many])


def match_everyone(costs: FloatArray) -> tuple[float, IntArray] | None:
    """Assign a channel to every client (row) at the least total cost; None if that is impossible."""
    if costs.shape[0] > costs.shape[1]:
        return None
    try:
        rows, columns = linear_sum_assignment(costs)
    except ValueError:
        return None
    total = float(costs[rows, columns].sum())
    return (total, columns.astype(np.int64)) if np.isfinite(total) else None


def fastest_channels(rates_bps: FloatArray, usable: BoolArray) -> IntArray:
    """Channels for the greatest total rate over usable pairs; -1 for a client that gets none."""
    return cheapest_matching(np.where(usable, -rates_bps, 0.0))[1]
