"""Codecs whose size is exactly affine in q: one range per vector or per block, one sign and one index per value."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import MAX_NUM_BITS, FloatArray, IntArray
from qccf.core.errors import ConfigError, DivergedError
from qccf.quantization import wire
from qccf.quantization.costs import RANGE_BITS
from qccf.quantization.protocol import Buffer, Forecast, Vector

INFINITY_BITS = 0x7F800000


def block_bounds(num_parameters: int, layer_sizes: Sequence[int], block: int | str | None) -> IntArray:
    """Where blocks begin and end: one block for all values (None), one per layer, or one per `block` values."""
    if not 1 <= num_parameters < 2**32:
        raise ConfigError(f"a codec takes 1 to 2^32 - 1 values, not {num_parameters:,}; use a smaller model.")
    if block is None:
        return np.array([0, num_parameters])
    if block == "layer":
        if min(layer_sizes, default=0) < 1 or sum(layer_sizes) != num_parameters:
            raise ConfigError(f"the layer sizes {list(layer_sizes)} do not add up to {num_parameters:,} values.")
        return np.concatenate([[0], np.cumsum(layer_sizes)])
    if not isinstance(block, int) or block < 1:
        raise ConfigError(f'block = {block!r} is not possible: use a number of values from 1, or "layer".')
    return np.append(np.arange(0, num_parameters, block), num_parameters)


def checked_input(vector: Vector, num_parameters: int) -> Vector:
    """The vector as contiguous, read-only float32."""
    values = np.ascontiguousarray(vector, dtype=np.float32)
    if values.shape != (num_parameters,):
        raise ValueError(f"the vector has shape {values.shape}, but the codec was built for ({num_parameters},)")
    return wire.readonly(values)


def checked_num_bits(num_bits: int) -> int:
    if not 1 <= num_bits <= MAX_NUM_BITS:
        raise ValueError(f"num_bits = {num_bits} is out of range: a value takes 1 to {MAX_NUM_BITS} bits")
    return int(num_bits)


def checked_total(total: NDArray[Any], num_parameters: int) -> NDArray[Any]:
    if total.shape != (num_parameters,):
        raise ValueError(f"the total has shape {total.shape}, but the codec was built for ({num_parameters},)")
    return total


def block_ranges(values: Vector, bounds: IntArray) -> NDArray[np.float32]:
    """The largest magnitude of each block."""
    from qccf.quantization import kernels

    largest = np.empty(len(bounds) - 1, dtype=np.int32)
    kernels.largest_bits(values.view(np.int32), bounds, largest)
    if largest.max() >= INFINITY_BITS:
        raise DivergedError(
            "the training diverged, and a model with NaN or infinite weights cannot be quantized: lower "
            "learning.learning_rate."
        )
    return largest.view(np.float32)


def rounding_errors(values: Vector, bounds: IntArray, scales: NDArray[np.float32]) -> FloatArray:
    """Expected squared error of stochastic rounding for q = 1 … MAX_NUM_BITS; each block has 2^q - 1 steps per scale.

    A value between two knobs, at the fraction f of the step, has the variance step²·f(1 - f). More bits may be worse
    for a vector whose values lie on few knobs. Fewer bits are then better and cheaper, so the table does not rise.
    """
    from qccf.quantization import kernels

    levels = np.exp2(np.arange(1, MAX_NUM_BITS + 1, dtype=np.float64)) - 1.0
    variances = np.zeros(MAX_NUM_BITS)
    kernels.rounding_variances(values, bounds, scales, levels, variances)
    return np.asarray(np.minimum.accumulate(variances / np.square(levels)))


class BlockedCodec:
    """The common part of codecs with one range or scale per block."""

    def __init__(
        self,
        num_parameters: int,
        layer_sizes: Sequence[int],
        *,
        codec_id: int,
        relative: bool,
        block: int | str | None = None,
    ) -> None:
        self.num_parameters = num_parameters
        self.codec_id = codec_id
        self.relative = relative
        self.bounds = block_bounds(num_parameters, layer_sizes, block)
        self.num_ranges = len(self.bounds) - 1
        self.bits_per_index = float(num_parameters)
        self.overhead_bits = float(num_parameters + RANGE_BITS * self.num_ranges)

    def _error_scale(self, scales: NDArray[np.float32]) -> float:
        """c: no value errs by more than step²/4 on average. Paper: Lemma 1."""
        return 0.25 * float(np.diff(self.bounds) @ np.square(scales, dtype=np.float64))


class UniformCodec(BlockedCodec):
    """The paper's quantizer, with one range per block."""

    affine = True

    def forecast(self, vector: Vector) -> Forecast:
        values = checked_input(vector, self.num_parameters)
        ranges = block_ranges(values, self.bounds)
        return Forecast(self._error_scale(ranges), None, rounding_errors(values, self.bounds, ranges))

    def encode(self, vector: Vector, num_bits: int, key: int) -> bytes:
        from qccf.quantization import kernels

        num_bits = checked_num_bits(num_bits)
        values = checked_input(vector, self.num_parameters)
        ranges = block_ranges(values, self.bounds)
        whole, body = wire.frame(self._body_bytes(num_bits))
        body[: 4 * self.num_ranges] = ranges.astype("<f4", copy=False).view(np.uint8)
        kernels.round_and_pack(
            values,
            values.view(np.int32),
            self.bounds,
            ranges,
            num_bits,
            np.uint64(key),
            body[4 * self.num_ranges :],
        )
        return wire.seal(whole, self.codec_id, num_bits, self.num_parameters)

    def size_bits(self, payload: Buffer) -> int:
        return self._body_bits(wire.stated_num_bits(payload))

    def decode(self, payload: Buffer, num_bits: int) -> Vector:
        ranges, packed = self._opened(payload, num_bits)
        values = np.zeros(self.num_parameters, dtype=np.float32)
        self._add(ranges, packed, num_bits, 1.0, values)
        return values

    def accumulate(self, payload: Buffer, num_bits: int, weight: float, total: NDArray[Any]) -> None:
        self._add(*self._opened(payload, num_bits), num_bits, weight, total)

    def _body_bits(self, num_bits: int) -> int:
        return int(self.bits_per_index) * num_bits + int(self.overhead_bits)

    def _body_bytes(self, num_bits: int) -> int:
        return -(-self._body_bits(num_bits) // 8)

    def _opened(self, payload: Buffer, num_bits: int) -> tuple[NDArray[np.float32], wire.Bytes]:
        size = self._body_bytes(num_bits)
        body = wire.unseal(payload, self.codec_id, num_bits, self.num_parameters, least_bytes=size, most_bytes=size)
        wire.check_padding(body, self._body_bits(num_bits))
        return wire.read_ranges(body, self.num_ranges), body[4 * self.num_ranges :]

    def _add(
        self, ranges: NDArray[np.float32], packed: wire.Bytes, num_bits: int, weight: float, total: NDArray[Any]
    ) -> None:
        from qccf.quantization import kernels

        total = checked_total(total, self.num_parameters)
        kernels.unpack_and_add(packed, self.bounds, ranges, num_bits, float(weight), total)
