"""FedAvgM: the server adds momentum to the average (Hsu, Qi and Brown, 2019, arXiv:1909.06335)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.options import option
from qccf.learning.server.protocol import Aggregate, OptimizerState


@dataclass(frozen=True)
class FedAvgMOptions:
    """Server momentum."""

    momentum: float = option(0.9, "share of the last step that is taken again, β", ge=0, lt=1)
    learning_rate: float = option(1.0, "factor of a step of the server", gt=0, le=100)
    decay: float = option(1.0, "factor of learning_rate from one round to the next; 1 keeps it", gt=0, le=1)


class FedAvgM:
    """v ← β·v + Δ, θ ← θ + η_s·dⁿ·v after n earlier steps. State: v, and dⁿ where d < 1.

    Steps that get smaller average out what differs from round to round: who took part, batches, and rounding.
    """

    Options = FedAvgMOptions
    section = "fedavgm"

    def __init__(self, **options: Any) -> None:
        self.options = FedAvgMOptions(**options)

    def init(self, num_parameters: int) -> OptimizerState:
        velocity = {"velocity": np.zeros(num_parameters)}
        return velocity if self.options.decay == 1.0 else {**velocity, "rate": np.ones(1)}

    def step(self, state: OptimizerState, aggregate: Aggregate) -> tuple[FloatArray, OptimizerState]:
        velocity = self.options.momentum * state["velocity"] + aggregate.change
        if self.options.decay == 1.0:
            return aggregate.previous + self.options.learning_rate * velocity, {"velocity": velocity}
        rate = state["rate"]
        moved = aggregate.previous + self.options.learning_rate * rate[0] * velocity
        return moved, {"velocity": velocity, "rate": self.options.decay * rate}
