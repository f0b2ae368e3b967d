"""The coded downlink: the server sends what has changed in the global model, coded like an upload.

A client that holds the last model adds the coded change to it. The server does the same with its own copy, so both have
the same bits, and clients train on the model that they really have. What the code leaves out is kept and added to the
next change (error feedback). A client that sat out needs all changes since its last model, or the whole model,
whichever is smaller; a client without a model, or whose last upload did not arrive, gets the whole model.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray
from qccf.core.streams import key
from qccf.learning.results import Flat
from qccf.quantization.costs import error_bound_table, raw_payload_bits
from qccf.quantization.protocol import Codec

DownlinkState = Mapping[str, FloatArray]
"""`residual`: what codes have left out so far, per value. `sizes_bits`: the size of each change that was sent.
`versions`: how many changes are in the model that each client holds, -1 without a model. A checkpoint holds them."""


@dataclass(frozen=True)
class CodedDownlink:
    """`codec` codes a change with the fewest bits whose expected squared error is at most `most_error` of it."""

    codec: Codec
    most_error: float
    num_parameters: int
    num_buffers: int
    num_clients: int
    seed: int

    @property
    def model_bits(self) -> float:
        """The size of the whole model."""
        return raw_payload_bits(self.num_parameters + self.num_buffers)

    def init(self) -> DownlinkState:
        return {
            "residual": np.zeros(self.num_parameters),
            "sizes_bits": np.zeros(0),
            "versions": np.full(self.num_clients, -1.0),
        }

    def needed_share(self, state: DownlinkState) -> FloatArray:
        """The same as a share of the whole model."""
        return self.needed_bits(state) / self.model_bits

    def needed_bits(self, state: DownlinkState) -> FloatArray:
        """What each client would have to receive to hold the current model."""
        sizes, versions = state["sizes_bits"], state["versions"].astype(np.int64)
        after = np.append(np.cumsum(sizes[::-1])[::-1], 0.0)  # of the changes from each version on
        missed = after[np.maximum(versions, 0)]
        return np.where(versions < 0, self.model_bits, np.minimum(missed, self.model_bits))

    def received(self, state: DownlinkState, participates: BoolArray, arrived: BoolArray) -> DownlinkState:
        """The state after participants have received the current model; without an upload that is not known."""
        held = np.where(arrived, float(len(state["sizes_bits"])), -1.0)
        return {**state, "versions": np.where(participates, held, state["versions"])}

    def broadcast(self, state: DownlinkState, held: Flat, wanted: Flat) -> tuple[Flat, DownlinkState]:
        """The model that clients have after the coded change from `held` towards `wanted`. Buffers are sent whole."""
        count = self.num_parameters
        change = wanted[:count].astype(np.float64) - held[:count] + state["residual"]
        vector = change.astype(np.float32)
        forecast = self.codec.forecast(vector)
        errors = error_bound_table(forecast.error_scale) if forecast.errors is None else forecast.errors
        enough = errors <= self.most_error * float(np.dot(change, change))
        num_bits = 1 + int(enough.argmax()) if enough.any() else len(errors)
        version = len(state["sizes_bits"])
        payload = self.codec.encode(vector, num_bits, key(self.seed, "downlink", version))
        after = applied(held[:count], self.codec.decode(payload, num_bits))
        model = np.concatenate([after, wanted[count:]])
        size_bits = float(self.codec.size_bits(payload)) + 32.0 * self.num_buffers
        return model, {
            **state,
            "residual": change - (after.astype(np.float64) - held[:count]),
            "sizes_bits": np.append(state["sizes_bits"], size_bits),
        }


def applied(held: Flat, sent: Flat) -> Flat:
    """The parameters after a change, as the server and every client compute them."""
    return (held.astype(np.float64) + sent.astype(np.float64)).astype(np.float32)
