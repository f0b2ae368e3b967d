"""The coordinate-wise median (Yin, Chen, Ramchandran and Bartlett, ICML 2018)."""

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.learning.aggregation.mean import CLIPPED_MEAN, of_many
from qccf.learning.aggregation.protocol import AggregationState, Combined, Updates, by_coordinate


class Median:
    """Of each value the median over clients, without weights; of an even number the mean of the middle two.

    With fewer than three the clipped mean stands for it.
    """

    def init(self, num_clients: int) -> AggregationState:
        return CLIPPED_MEAN.init(num_clients)

    def combine(self, state: AggregationState, updates: Updates) -> tuple[Combined, AggregationState]:
        return of_many(state, updates, lambda many: by_coordinate(many, _median))


def _median(values: FloatArray) -> FloatArray:
    return np.asarray(np.median(values, axis=0))
