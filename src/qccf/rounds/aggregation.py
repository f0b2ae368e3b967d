"""From the uploads that arrived to the next global model: aggregate, then the server optimizer.

arrivals → aggregation rule → change of the model (pseudo-gradient) → server optimizer
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qccf.core.contracts import Decision, FloatArray
from qccf.core.errors import AggregationError, DivergedError, QccfError, ServerOptimizerError
from qccf.learning.aggregation.protocol import AggregationRule, AggregationState, Combined
from qccf.learning.results import Flat
from qccf.learning.server.protocol import Aggregate, OptimizerState, ServerOptimizer
from qccf.quantization.protocol import Codec
from qccf.rounds.uplink import Upload

BLOCK_BYTES = 2**27
"""The most memory of a block of decoded changes."""


@dataclass(frozen=True)
class Arrivals:
    """The uploads of a round that arrived, and the global model `previous` that their clients started from.

    `upload_errors` [client, q - 1] are the squared errors that all clients forecast; None where none are known.
    `expected_norm_sq` is the squared norm of a change that the clients' gradients let expect.
    """

    uploads: Mapping[int, Upload]
    dataset_sizes: FloatArray
    decision: Decision
    codec: Codec
    previous: Flat
    num_parameters: int
    upload_errors: FloatArray | None = None
    expected_norm_sq: float = np.inf

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
    def relative_sizes(self) -> FloatArray:
        """The data of each client in medians of all clients."""
        return np.asarray(self.dataset_sizes[self.clients] / np.median(self.dataset_sizes))

    @property
    def quantization_errors(self) -> FloatArray:
        """The usual squared error of an upload with each client's bits; a median, so that no client can set it."""
        if self.decision.raw or self.upload_errors is None:
            return np.zeros(len(self.uploads))
        usual = np.median(self.upload_errors, axis=0)
        return np.asarray(usual[np.maximum(self.decision.num_bits[self.clients], 1) - 1])

    @property
    def num_values(self) -> int:
        return len(self.previous)

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

    def shrunk_mean(self, parameters: FloatArray, buffers: FloatArray) -> FloatArray:
        """The same mean with each client's change times a factor, one for its parameters and one for its buffers."""
        total = self.previous.astype(np.float64)
        for change, *factors in zip(self.changes(), self.shares * parameters, self.shares * buffers, strict=True):
            total[: self.num_parameters] += factors[0] * change[: self.num_parameters]
            total[self.num_parameters :] += factors[1] * change[self.num_parameters :]
        return total

    def plus_previous(self, change: FloatArray) -> FloatArray:
        return self.previous + change

    def changes(self) -> Iterator[FloatArray]:
        """Each client's own change of the global model, in the order of clients."""
        for client in self.clients:
            payload = self.uploads[client].payload
            if isinstance(payload, bytes):
                payload = self.codec.decode(payload, int(self.decision.num_bits[client]))
            vector = np.asarray(payload, dtype=np.float64)
            yield vector if self.relative else vector - self.previous

    def norms(self) -> tuple[FloatArray, FloatArray]:
        """The norms of the changes: of parameters, and of buffers."""
        cut = self.num_parameters
        found = [(np.linalg.norm(one[:cut]), np.linalg.norm(one[cut:])) for one in self.changes()]
        lengths = np.array(found, dtype=np.float64)
        return lengths[:, 0], lengths[:, 1]

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Changes [client, value] of as many values at a time as fit `BLOCK_BYTES`. Each block decodes every upload."""
        width = max(1, BLOCK_BYTES // (8 * len(self.uploads)))
        for start in range(0, self.num_values, width):
            part = slice(start, min(start + width, self.num_values))
            block = np.empty((len(self.uploads), part.stop - part.start))
            for row, change in enumerate(self.changes()):
                block[row] = change[part]
            yield part, block


@dataclass(frozen=True)
class Aggregator:
    """The two stages after the uploads: an aggregation rule, and a server optimizer."""

    rule: AggregationRule
    optimizer: ServerOptimizer

    def init(self, num_clients: int, num_parameters: int) -> tuple[AggregationState, OptimizerState]:
        """The states before the first round."""
        rule_state = checked_arrays(self.rule.init(num_clients), self.rule, AggregationError, "aggregation rule")
        return rule_state, checked_arrays(self.optimizer.init(num_parameters), self.optimizer)

    def next_model(
        self, rule_state: AggregationState, optimizer_state: OptimizerState, arrivals: Arrivals
    ) -> "NextModel":
        """The next global model. Buffers, which follow the parameters, are aggregated and pass the optimizer by.

        An empty round changes nothing. Deviates: E8.
        """
        if not arrivals.uploads:
            return NextModel(arrivals.previous, rule_state, optimizer_state, np.empty(0))
        count = arrivals.num_parameters
        combined, rule_state = self.rule.combine(rule_state, arrivals)
        combined = checked_combined(combined, arrivals, self.rule)
        rule_state = checked_arrays(rule_state, self.rule, AggregationError, "aggregation rule")
        previous = arrivals.previous[:count].astype(np.float64)
        given = Aggregate(previous, combined.model[:count], combined.mean_norm_sq)
        after, optimizer_state = self.optimizer.step(optimizer_state, given)
        after = checked_model(after, count, self.optimizer)
        model = np.concatenate([after, combined.model[count:]]).astype(np.float32)
        return NextModel(model, rule_state, checked_arrays(optimizer_state, self.optimizer), combined.kept)


@dataclass(frozen=True)
class NextModel:
    """The next global model, the states of rule and optimizer, and what was kept of each arrival (see `Combined`)."""

    model: Flat
    rule_state: AggregationState
    optimizer_state: OptimizerState
    kept: FloatArray


def checked_combined(combined: Combined, arrivals: Arrivals, rule: AggregationRule) -> Combined:
    """The aggregate itself if it has one finite value per parameter and buffer, and a verdict per client."""
    name = type(rule).__name__
    fits = (
        isinstance(combined, Combined)
        and np.shape(combined.model) == (arrivals.num_values,)
        and np.shape(combined.kept) == (len(arrivals.uploads),)
    )
    if not fits:
        raise AggregationError(
            f"aggregation rule {name!r} made no model of {arrivals.num_values:,} values with a verdict on each of "
            f"{len(arrivals.uploads)} clients: combine returns a Combined and a state."
        )
    if not (np.abs(combined.model) <= np.finfo(np.float32).max).all():  # also refuses NaN
        raise DivergedError(
            f"aggregation rule {name!r} made values that are not finite: lower learning.learning_rate, or use a rule "
            'that withstands outliers, such as aggregation.rule = "median".'
        )
    return combined


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


def checked_arrays(
    state: OptimizerState, owner: object, error: type[QccfError] = ServerOptimizerError, kind: str = "server optimizer"
) -> OptimizerState:
    """The state itself if a checkpoint can hold it."""
    if not isinstance(state, Mapping) or not all(
        isinstance(one, np.ndarray) and one.dtype == np.float64 for one in state.values()
    ):
        raise error(
            f"{kind} {type(owner).__name__!r} returned a state that is not a mapping of names to arrays "
            "of 64-bit floats."
        )
    return state
