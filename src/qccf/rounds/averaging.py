"""The average of the global models of successive rounds, which a run evaluates and delivers.

Clients train on the last model as always. It differs from round to round with the clients that took part, and much of
that averages out, so the average is the better model, and nobody pays for it. This is known as Polyak averaging, or as
an exponential moving average of weights. Buffers, such as running averages, are averaged as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.learning.results import Flat

AverageState = Mapping[str, FloatArray]
"""`total`: the weighted sum of the models so far, per value; `weight`: the sum of their weights. Empty where models are
not averaged. A checkpoint holds them."""


@dataclass(frozen=True)
class ModelAverage:
    """A model of k rounds ago has the weight memory^k."""

    memory: float

    def init(self, num_values: int) -> AverageState:
        return {"total": np.zeros(num_values), "weight": np.zeros(1)}

    def added(self, state: AverageState, model: Flat) -> AverageState:
        """The state after another round in which something arrived."""
        return {"total": self.memory * state["total"] + model, "weight": self.memory * state["weight"] + 1.0}


def averaged(state: AverageState, model: Flat) -> Flat:
    """The average; the model itself where models are not averaged, or before the first has been added."""
    if not state or state["weight"][0] == 0.0:
        return model
    return np.asarray((state["total"] / state["weight"]).astype(np.float32))
