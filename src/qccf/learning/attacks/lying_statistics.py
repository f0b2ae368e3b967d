"""Lying statistics: an honest update with wrong reports about it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qccf.core.options import option
from qccf.learning.attacks.protocol import Attack
from qccf.learning.results import Flat, LocalResult


@dataclass(frozen=True)
class LyingStatisticsOptions:
    """Wrong reports."""

    factor: float = option(1000.0, "factor of every statistic that the client reports", ge=0, le=1e12)


class LyingStatistics(Attack):
    """G², σ², θ_max and the loss are reported as many times as large as they were measured."""

    Options = LyingStatisticsOptions
    section = "lying_statistics"

    def __init__(self, **options: Any) -> None:
        self.options = LyingStatisticsOptions(**options)

    def result(self, result: LocalResult, received: Flat, rng: np.random.Generator) -> LocalResult:
        told, factor = result.statistics, self.options.factor
        lie = replace(
            told,
            gradient_norm_sq=told.gradient_norm_sq * factor,
            gradient_variance=told.gradient_variance * factor,
            weight_range=told.weight_range * factor,
            loss=told.loss * factor,
        )
        return replace(result, statistics=lie)
