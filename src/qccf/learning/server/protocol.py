"""What a server optimizer is: the last stage of a round, after uploads have been aggregated.

    uploads that arrived → aggregation rule → change of the model (pseudo-gradient) → server optimizer

An optimizer sees the aggregate and not the uploads, so that it works behind any aggregation rule.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from qccf.core.contracts import FloatArray

OptimizerState = Mapping[str, FloatArray]
"""Named arrays of 64-bit floats. A checkpoint holds them, so that a resumed run is the same."""


@dataclass(frozen=True)
class Aggregate:
    """What arrived in a round, without buffers.

    `previous` is the global model that clients started from and `average` the aggregate of the models they arrived at.
    `mean_norm_sq` gives the mean of the squared norms of the clients' own changes, as far as the rule trusts them. It
    may decode each upload once more, so only an optimizer that needs it should call it.
    """

    previous: FloatArray
    average: FloatArray
    mean_norm_sq: Callable[[], float]

    @property
    def change(self) -> FloatArray:
        """Δ, the pseudo-gradient: it points to where the clients went."""
        return self.average - self.previous


class ServerOptimizer(Protocol):
    """Makes the next global model. It has no hidden state: state goes in and comes out."""

    def init(self, num_parameters: int) -> OptimizerState:
        """The state before the first round."""
        ...

    def step(self, state: OptimizerState, aggregate: Aggregate) -> tuple[FloatArray, OptimizerState]:
        """The next global model and the next state. A round in which nothing arrived has no step."""
        ...
