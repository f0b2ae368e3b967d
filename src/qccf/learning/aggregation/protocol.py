"""What an aggregation rule is: the stage of a round between the uploads that arrived and the server optimizer.

    uploads that arrived → aggregation rule → change of the model (pseudo-gradient) → server optimizer

A rule sees the clients' changes of the global model, decoded, and knows nothing of codecs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from qccf.core.contracts import FloatArray

AggregationState = Mapping[str, FloatArray]
"""Named arrays of 64-bit floats. A checkpoint holds them, so that a resumed run is the same."""


class Updates(Protocol):
    """The changes of the global model that arrived in a round. Values are [parameters | buffers].

    Decoding takes time and memory, so `norms` and each block of `blocks` read every upload once.
    """

    @property
    def clients(self) -> Sequence[int]:
        """The clients that arrived, in ascending order."""
        ...

    @property
    def shares(self) -> FloatArray:
        """The share of each client in the data that arrived, in the order of `clients`."""
        ...

    @property
    def quantization_errors(self) -> FloatArray:
        """The usual squared error of an upload with this client's bits: the median of what all clients forecast."""
        ...

    @property
    def relative_sizes(self) -> FloatArray:
        """The data of each client that arrived, in medians of all clients, in the order of `clients`."""
        ...

    @property
    def expected_norm_sq(self) -> float:
        """The squared norm of a change that the clients' gradients let expect; infinite where it is not known."""
        ...

    @property
    def num_parameters(self) -> int: ...

    @property
    def num_values(self) -> int:
        """Parameters and buffers."""
        ...

    def norms(self) -> tuple[FloatArray, FloatArray]:
        """The norms of each client's change: of its parameters, and of its buffers (0 where there are none)."""
        ...

    def mean(self) -> FloatArray:
        """The mean of the clients' models, weighted by `shares`."""
        ...

    def shrunk_mean(self, parameters: FloatArray, buffers: FloatArray) -> FloatArray:
        """The same with each client's change times a factor: one for its parameters, one for its buffers."""
        ...

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Changes [client, value] of a part of the values at a time, so that memory stays bounded."""
        ...

    def plus_previous(self, change: FloatArray) -> FloatArray:
        """The global model that clients started from, plus a change."""
        ...


@dataclass(frozen=True)
class Combined:
    """The aggregate of a round.

    `model` are parameters and buffers. `kept` is, for each client that arrived, the share of its change that counted:
    1 whole, less where it was clipped, 0 where it was rejected, NaN where the rule does not judge clients.
    `mean_norm_sq` gives the mean of the squared norms of the clients' changes as far as the rule trusts them.
    """

    model: FloatArray
    kept: FloatArray
    mean_norm_sq: Callable[[], float]


class AggregationRule(Protocol):
    """Makes one model from those that arrived. It has no hidden state: state goes in and comes out."""

    def init(self, num_clients: int) -> AggregationState:
        """The state before the first round."""
        ...

    def combine(self, state: AggregationState, updates: Updates) -> tuple[Combined, AggregationState]:
        """The aggregate and the next state. It is not called for a round in which nothing arrived."""
        ...


LEAST_CHANGE = 1e-3
"""An aggregate shorter than this share of the usual change keeps nothing of it."""


def by_coordinate(updates: Updates, rule: Callable[[FloatArray], FloatArray]) -> Combined:
    """A rule that works on each value on its own, from [client, value] to [value].

    It does not judge clients. But where most clients send 0 for most values, as coarse uploads do, the rule may keep
    nothing of any of them, and then it says so.
    """
    change, norms_sq = np.empty(updates.num_values), np.zeros(len(updates.clients))
    for part, values in updates.blocks():
        change[part] = rule(values)
        own = values[:, : max(0, updates.num_parameters - part.start)]
        norms_sq += np.square(own).sum(axis=1)
    length = float(np.linalg.norm(change[: updates.num_parameters]))
    nothing = length < LEAST_CHANGE * float(np.sqrt(np.median(norms_sq)))
    kept = np.full(len(updates.clients), 0.0 if nothing else np.nan)
    return Combined(updates.plus_previous(change), kept, lambda: float(rule(norms_sq[:, None])[0]))
