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


class FedAvgM:
    """v ← β·v + Δ, θ ← θ + η_s·v. State: v."""

    Options = FedAvgMOptions
    section = "fedavgm"

    def __init__(self, **options: Any) -> None:
        self.options = FedAvgMOptions(**options)

    def init(self, num_parameters: int) -> OptimizerState:
        return {"velocity": np.zeros(num_parameters)}

    def step(self, state: OptimizerState, aggregate: Aggregate) -> tuple[FloatArray, OptimizerState]:
        velocity = self.options.momentum * state["velocity"] + aggregate.change
        return aggregate.previous + self.options.learning_rate * velocity, {"velocity": velocity}
