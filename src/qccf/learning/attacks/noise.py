"""Noise: the change of the model is random."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qccf.core.options import option
from qccf.learning.attacks.protocol import Attack
from qccf.learning.results import Flat, LocalResult


@dataclass(frozen=True)
class NoiseOptions:
    """Noise in place of an update."""

    scale: float = option(1.0, "expected length of the noise as a multiple of the honest change's", ge=0, le=1e9)


class Noise(Attack):
    """Normal values, the same variance for each, in place of Δ."""

    Options = NoiseOptions
    section = "noise"

    def __init__(self, **options: Any) -> None:
        self.options = NoiseOptions(**options)

    def result(self, result: LocalResult, received: Flat, rng: np.random.Generator) -> LocalResult:
        change = result.weights.astype(np.float64) - received
        deviation = self.options.scale * float(np.sqrt(np.mean(np.square(change))))
        noisy = received + deviation * rng.standard_normal(len(received))
        return replace(result, weights=noisy.astype(np.float32))
