"""From the uploads that arrived to the next global model: aggregate, then the server optimizer.

    arrivals → mean → change of the model (pseudo-gradient) → server optimizer

Another aggregation, such as a median, would take the place of `Arrivals.mean` and work on `Arrivals.changes`; the
optimizer does not see the difference.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qccf.core.contracts import Decision, FloatArray
from qccf.core.errors import DivergedError, ServerOptimizerError
from qccf.learning.results import Flat
from qccf.learning.server.protocol import Aggregate, OptimizerState, ServerOptimizer
from qccf.quantization.protocol import Codec
from qccf.rounds.uplink import Upload


@dataclass(frozen=True)
class Arrivals:
    """The uploads of a round that arrived, and the global model `previous` that their clients started from."""

    uploads: Mapping[int, Upload]
    dataset_sizes: FloatArray
    decision: Decision
    codec: Codec
    previous: Flat

    @property
    def clients(self) -> list[int]:
        """In ascending order, so that sums do not depend on who came first."""
        return sorted(self.uploads)

    @property
    def shares(self) -> FloatArray:
        """The weight of each client: its share of the data that arrived. Paper: w^n, Section II-A. Deviates: E8."""
        sizes = self.dataset_sizes[self.clients]
        return np.asarray(sizes / sizes.sum())

    @property
    def relative(self) -> bool:
        """Whether an upload holds the difference from `previous`."""
        return self.codec.relative and not self.decision.raw

    def mean(self) -> FloatArray:
        """The mean of the clients' models, weighted by data. Paper: Eq. of global aggregation."""
        total = self.previous.astype(np.float64) if self.relative else np.zeros(len(self.previous))
        for client, share in zip(self.clients, self.shares, strict=True):
            payload = self.uploads[client].payload
            if isinstance(payload, bytes):
                self.codec.accumulate(payload, int(self.decision.num_bits[client]), float(share), total)
            else:
                total += share * payload
        return total

    def changes(self) -> Iterator[FloatArray]:
        """Each client's own change of the global model, in the order of clients."""
        for client in self.clients:
            payload = self.uploads[client].payload
            if isinstance(payload, bytes):
                payload = self.codec.decode(payload, int(self.decision.num_bits[client]))
            vector = np.asarray(payload, dtype=np.float64)
            yield vector if self.relative else vector - self.previous


def next_model(
    optimizer: ServerOptimizer, state: OptimizerState, arrivals: Arrivals, num_parameters: int
) -> tuple[Flat, OptimizerState]:
    """The next global model. Buffers, which follow the parameters, are averaged; an empty round changes nothing.

    Deviates: E8.
    """
    if not arrivals.uploads:
        return arrivals.previous, state
    average = arrivals.mean()

    def mean_norm_sq() -> float:
        norms_sq = [float(np.dot(one[:num_parameters], one[:num_parameters])) for one in arrivals.changes()]
        return float(np.dot(arrivals.shares, norms_sq))

    previous = arrivals.previous[:num_parameters].astype(np.float64)
    after, state = optimizer.step(state, Aggregate(previous, average[:num_parameters], mean_norm_sq))
    after = checked_model(after, num_parameters, optimizer)
    return np.concatenate([after, average[num_parameters:]]).astype(np.float32), checked_arrays(state, optimizer)


def checked_model(model: FloatArray, num_parameters: int, optimizer: ServerOptimizer) -> FloatArray:
    """The model itself if it has one finite value per parameter."""
    name = type(optimizer).__name__
    if not isinstance(model, np.ndarray) or model.shape != (num_parameters,):
        raise ServerOptimizerError(
            f"server optimizer {name!r} made no model of {num_parameters:,} values: step returns an array and a state."
        )
    if not (np.abs(model) <= np.finfo(np.float32).max).all():  # also refuses NaN
        raise DivergedError(
            f"server optimizer {name!r} made values that are not finite: lower its learning rate or the clients'."
        )
    return model


def checked_arrays(state: OptimizerState, optimizer: ServerOptimizer) -> OptimizerState:
    """The state itself if a checkpoint can hold it."""
    if not isinstance(state, Mapping) or not all(
        isinstance(one, np.ndarray) and one.dtype == np.float64 for one in state.values()
    ):
        raise ServerOptimizerError(
            f"server optimizer {type(optimizer).__name__!r} returned a state that is not a mapping of names to arrays "
            "of 64-bit floats."
        )
    return state
