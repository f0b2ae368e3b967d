"""The coordinate-wise trimmed mean (Yin, Chen, Ramchandran and Bartlett, ICML 2018)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.options import option
from qccf.learning.aggregation.mean import CLIPPED_MEAN, of_many
from qccf.learning.aggregation.protocol import AggregationState, Combined, Updates, by_coordinate


@dataclass(frozen=True)
class TrimmedMeanOptions:
    """The trimmed mean."""

    trimmed_share: float = option(
        0.2, "share of the clients whose values are left out at each end, β; the number is rounded up", ge=0, lt=0.5
    )


class TrimmedMean:
    """Of each value, the ⌈β·n⌉ largest and the ⌈β·n⌉ smallest are left out, and the rest is averaged without weights.

    At least one value stays: of an odd number the median, of an even number the middle two. With fewer than three
    clients the clipped mean stands for it.
    """

    Options = TrimmedMeanOptions
    section = "trimmed_mean"

    def __init__(self, **options: Any) -> None:
        self.options = TrimmedMeanOptions(**options)

    def init(self, num_clients: int) -> AggregationState:
        return CLIPPED_MEAN.init(num_clients)

    def combine(self, state: AggregationState, updates: Updates) -> tuple[Combined, AggregationState]:
        count = len(updates.clients)
        cut = min(int(np.ceil(self.options.trimmed_share * count - 1e-9)), (count - 1) // 2)

        def rule(values: FloatArray) -> FloatArray:
            return np.asarray(np.sort(values, axis=0)[cut : count - cut].mean(axis=0))

        return of_many(state, updates, lambda many: by_coordinate(many, rule))
