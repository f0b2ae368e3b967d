"""Multi-Krum: the mean of the clients that are nearest to the others (Blanchard et al., NeurIPS 2017)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray, IntArray
from qccf.core.options import option
from qccf.learning.aggregation.mean import CLIPPED_MEAN, of_many
from qccf.learning.aggregation.protocol import AggregationState, Combined, Updates


@dataclass(frozen=True)
class KrumOptions:
    """Krum and multi-Krum."""

    attacker_share: float = option(
        0.2, "share of the clients that may be attackers; their number f is rounded up", ge=0, lt=0.5
    )


class MultiKrum:
    """The mean, without weights, of the n − f clients with the lowest scores.

    The score of a client is the sum of its squared distances to the n − f − 2 clients that are nearest to it. f is
    ⌈share·n⌉, at most ⌊(n − 3)/2⌋, for which it is proved; of three or four clients one is left out all the same, which
    is better than none. With fewer the clipped mean stands for the rule. Distances are those of the parameters.
    Buffers, which are of another scale, are the coordinate-wise median of all that arrived.
    """

    Options = KrumOptions
    section = "multi_krum"

    def __init__(self, **options: Any) -> None:
        self.options = KrumOptions(**options)

    def init(self, num_clients: int) -> AggregationState:
        return CLIPPED_MEAN.init(num_clients)

    def combine(self, state: AggregationState, updates: Updates) -> tuple[Combined, AggregationState]:
        return of_many(state, updates, self._combined)

    def _combined(self, updates: Updates) -> Combined:
        count = len(updates.clients)
        wanted = int(np.ceil(self.options.attacker_share * count - 1e-9))
        attackers = min(wanted, max(1, (count - 3) // 2))
        products, change = _products(updates), np.empty(updates.num_values)
        ranked = np.argsort(scores(products, attackers), kind="stable")  # of equal scores the lower number
        chosen = np.sort(ranked[: self.num_chosen(count, attackers)])
        for part, values in updates.blocks():
            split = np.clip(updates.num_parameters - part.start, 0, values.shape[1])
            taken = np.empty(values.shape[1])
            taken[:split] = values[chosen, :split].mean(axis=0)
            taken[split:] = np.median(values[:, split:], axis=0)
            change[part] = taken
        kept = np.zeros(count)
        kept[chosen] = 1.0
        norm_sq = float(np.diag(products)[chosen].mean())
        return Combined(updates.plus_previous(change), kept, lambda: norm_sq)

    def num_chosen(self, count: int, attackers: int) -> int:
        return max(1, count - attackers)


def scores(products: FloatArray, attackers: int) -> FloatArray:
    """Krum's scores from the inner products [client, client] of the changes; the lowest is the best."""
    squares = np.diag(products)
    distances_sq = np.maximum(squares[:, None] + squares[None, :] - 2.0 * products, 0.0)
    nearest = max(1, len(products) - attackers - 2)
    others: IntArray = np.where(np.eye(len(products), dtype=bool), np.inf, distances_sq)
    within = np.sort(others, axis=1)[:, : min(nearest, len(products) - 1)]
    return np.asarray(within.sum(axis=1))


def _products(updates: Updates) -> FloatArray:
    total = np.zeros((len(updates.clients), len(updates.clients)))
    for part, values in updates.blocks():
        own = values[:, : max(0, updates.num_parameters - part.start)]
        total += own @ own.T
    return total
