"""The registry of aggregation rules: one line per rule."""

from collections.abc import Callable

from qccf.core.registry import Registry
from qccf.learning.aggregation.krum import Krum
from qccf.learning.aggregation.mean import Mean
from qccf.learning.aggregation.median import Median
from qccf.learning.aggregation.multi_krum import MultiKrum
from qccf.learning.aggregation.protocol import AggregationRule
from qccf.learning.aggregation.trimmed_mean import TrimmedMean

AGGREGATION_RULES: Registry[Callable[..., AggregationRule]] = Registry(
    "aggregation rule",
    {
        "mean": Mean,
        "trimmed-mean": TrimmedMean,
        "median": Median,
        "krum": Krum,
        "multi-krum": MultiKrum,
    },
    methods=("init", "combine"),
    call="Class(**options)",
)
"""A rule may have `Options`, a frozen dataclass, and `section`, the part of `[aggregation]` that holds them."""
