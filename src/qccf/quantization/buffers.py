"""Codecs for models with buffers, such as the running averages of BatchNorm.

The vector is then [parameters | buffers]. The codec codes the parameters; the buffers follow its payload as 32-bit
floats with a checksum of four bytes. They are few, and quantized variances could become negative.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import ChecksumError, DivergedError, RangeError, ShortPayloadError
from qccf.quantization import wire
from qccf.quantization.protocol import Buffer, Codec, Forecast, Vector

VALUE_BITS = 32
CHECKSUM_BYTES = 4


def with_buffers(codec: Codec, num_parameters: int, num_buffers: int) -> Codec:
    """A codec for vectors of that many parameters and buffer values; the same codec where there are no buffers."""
    return BufferedCodec(codec, num_parameters, num_buffers) if num_buffers else codec


class BufferedCodec:
    """Another codec's payload, then the buffers. Errors and their forecasts are those of the parameters."""

    def __init__(self, codec: Codec, num_parameters: int, num_buffers: int) -> None:
        self.codec = codec
        self.num_parameters = num_parameters
        self.num_buffers = num_buffers
        self.relative = codec.relative
        self.affine = codec.affine
        self.bits_per_index = codec.bits_per_index
        self.overhead_bits = codec.overhead_bits + self._tail_bits
        self.least_upload_bits = getattr(codec, "least_upload_bits", 0.0) + self._tail_bits

    @property
    def _tail_bits(self) -> float:
        return float(VALUE_BITS * self.num_buffers)

    def forecast(self, vector: Vector) -> Forecast:
        inner = self.codec.forecast(vector[: self.num_parameters])
        return inner if inner.bits is None else replace(inner, bits=inner.bits + self._tail_bits)

    def encode(self, vector: Vector, num_bits: int, key: int) -> bytes:
        values = np.ascontiguousarray(vector[self.num_parameters :], dtype="<f4")
        if not np.isfinite(values).all():
            raise DivergedError("the training diverged, and a buffer is NaN or infinite: lower learning.learning_rate.")
        inner = self.codec.encode(vector[: self.num_parameters], num_bits, key)
        return inner + values.tobytes() + _checksum(values.tobytes())

    def size_bits(self, payload: Buffer) -> int:
        return self.codec.size_bits(self._split(payload)[0]) + int(self._tail_bits)

    def decode(self, payload: Buffer, num_bits: int) -> Vector:
        inner, values = self._opened(payload)
        return np.concatenate([self.codec.decode(inner, num_bits), values])

    def accumulate(self, payload: Buffer, num_bits: int, weight: float, total: NDArray[Any]) -> None:
        inner, values = self._opened(payload)
        self.codec.accumulate(inner, num_bits, weight, total[: self.num_parameters])  # refuses before it adds
        total[self.num_parameters :] += weight * values.astype(np.float64)

    def _split(self, payload: Buffer) -> tuple[memoryview, memoryview]:
        view = wire.flat(payload)
        tail = 4 * self.num_buffers + CHECKSUM_BYTES
        if len(view) < tail:
            raise ShortPayloadError(f"the payload has {len(view)} bytes, less than the {tail} of its buffers.")
        return view[: len(view) - tail], view[len(view) - tail :]

    def _opened(self, payload: Buffer) -> tuple[bytes, Vector]:
        inner, tail = self._split(payload)
        data = tail[:-CHECKSUM_BYTES]
        if bytes(tail[-CHECKSUM_BYTES:]) != _checksum(data):
            raise ChecksumError("the checksum of the payload's buffers does not match their bytes.")
        values = np.frombuffer(data, dtype="<f4").astype(np.float32)
        if not np.isfinite(values).all():
            raise RangeError("a buffer in the payload is not a finite number.")
        return bytes(inner), values


def _checksum(data: Buffer) -> bytes:
    return wire.short_hash(data).to_bytes(CHECKSUM_BYTES, "little")
