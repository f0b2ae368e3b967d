"""FedAdam: each parameter has its own step size (Reddi et al., ICLR 2021, Algorithm 2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.options import option
from qccf.learning.server.protocol import Aggregate, OptimizerState


@dataclass(frozen=True)
class AdaptiveOptions:
    """Each parameter moves by its mean change divided by the root of its squared change (FedAdam, FedYogi)."""

    learning_rate: float = option(0.03, "step size of the server, η", gt=0, le=10)
    first_decay: float = option(0.9, "memory of the mean change, β1", ge=0, lt=1)
    second_decay: float = option(0.99, "memory of the squared change, β2", ge=0, lt=1)
    adaptivity: float = option(1e-3, "added to the root of the squared change, τ; larger adapts less", gt=0, le=1)


class FedAdam:
    """m ← β1·m + (1 − β1)·Δ, v ← β2·v + (1 − β2)·Δ², θ ← θ + η·m/(√v + τ). State: m = 0 and v = τ² at first."""

    Options = AdaptiveOptions
    section = "fedadam"

    def __init__(self, **options: Any) -> None:
        self.options = AdaptiveOptions(**options)

    def init(self, num_parameters: int) -> OptimizerState:
        return {"mean": np.zeros(num_parameters), "square": np.full(num_parameters, self.options.adaptivity**2)}

    def step(self, state: OptimizerState, aggregate: Aggregate) -> tuple[FloatArray, OptimizerState]:
        o, change = self.options, aggregate.change
        mean = o.first_decay * state["mean"] + (1.0 - o.first_decay) * change
        square = self.next_square(state["square"], np.square(change))
        after = aggregate.previous + o.learning_rate * mean / (np.sqrt(square) + o.adaptivity)
        return after, {"mean": mean, "square": square}

    def next_square(self, square: FloatArray, change_sq: FloatArray) -> FloatArray:
        """v, the memory of the squared change."""
        return self.options.second_decay * square + (1.0 - self.options.second_decay) * change_sq
