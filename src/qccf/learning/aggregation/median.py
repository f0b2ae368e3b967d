"""The coordinate-wise median (Yin, Chen, Ramchandran and Bartlett, ICML 2018)."""

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.learning.aggregation.protocol import AggregationState, Combined, Updates, by_coordinate


class Median:
    """Of each value the median over clients, without weights; of an even number the mean of the middle two."""

    def init(self, num_clients: int) -> AggregationState:
        return {}

    def combine(self, state: AggregationState, updates: Updates) -> tuple[Combined, AggregationState]:
        return by_coordinate(updates, _median), state


def _median(values: FloatArray) -> FloatArray:
    return np.asarray(np.median(values, axis=0))
