"""A scaled update: the honest change times a factor."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qccf.core.options import option
from qccf.learning.attacks.protocol import Attack
from qccf.learning.results import Flat, LocalResult


@dataclass(frozen=True)
class ScaledUpdateOptions:
    """A scaled update."""

    scale: float = option(100.0, "factor of the change of the model", ge=0, le=1e9)


class ScaledUpdate(Attack):
    """θ + s·Δ in place of θ + Δ."""

    Options: type = ScaledUpdateOptions
    section = "scaled_update"
    sign = 1.0

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)

    def result(self, result: LocalResult, received: Flat, rng: np.random.Generator) -> LocalResult:
        change = result.weights.astype(np.float64) - received
        return replace(result, weights=(received + self.sign * self.options.scale * change).astype(np.float32))
