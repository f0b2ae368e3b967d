"""FedExP: the step grows where the clients' changes point in different directions (Jhunjhunwala et al., ICLR 2023)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.options import option
from qccf.learning.server.protocol import Aggregate, OptimizerState


@dataclass(frozen=True)
class FedExPOptions:
    """Server steps by extrapolation."""

    epsilon: float = option(1e-3, "added to the squared norm of the mean change, ε", gt=0, le=1e6)


class FedExP:
    """η_g = max(1, Σ w_i·‖Δ_i‖² / (2·(‖Δ‖² + ε))), θ ← θ + η_g·Δ.

    Published for equal weights, w_i = 1/M. Quantization noise is a part of ‖Δ_i‖² and averages out in Δ, so coarse
    uploads make larger steps. The authors report the average of the last two models; here it is the last one, or with
    `server.averaging` an average of all.
    """

    Options = FedExPOptions
    section = "fedexp"

    def __init__(self, **options: Any) -> None:
        self.options = FedExPOptions(**options)

    def init(self, num_parameters: int) -> OptimizerState:
        return {}

    def step(self, state: OptimizerState, aggregate: Aggregate) -> tuple[FloatArray, OptimizerState]:
        change = aggregate.change
        length_sq = float(np.dot(change, change)) + self.options.epsilon
        factor = max(1.0, aggregate.mean_norm_sq() / (2.0 * length_sq))
        return aggregate.previous + factor * change, state
