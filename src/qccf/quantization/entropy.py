"""Codecs that entropy-code the indexes. An upload is short if most values round to zero.

The step is derived from the mean magnitude of the vector, not from its largest value: the largest value varies from
round to round, and the size of an upload would vary with it. With the mean, an index is 1 or more with an average
probability of (2^q - 1)/64 for any vector, so a client's last upload predicts the size of its next one within a few
per cent. The scale is at least an eighth of the largest value, which limits the largest index.

A body has these parts, in this order:
- one scale (float32) per block
- the number of code words (4 bytes) and the number of symbols (2 bytes)
- one byte per symbol: how much rarer than the most frequent symbol it is, as 16·log2(ratio); 255 if it does not occur
- the code words (4 bytes each)
- the signs and low bits
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core import errors
from qccf.core.contracts import MAX_NUM_BITS, FloatArray, IntArray
from qccf.quantization import wire
from qccf.quantization.protocol import Buffer, Forecast, Vector
from qccf.quantization.uniform import (
    BlockedCodec,
    block_ranges,
    checked_input,
    checked_num_bits,
    checked_total,
    rounding_errors,
)

MEANS_PER_SCALE = 64.0
SCALES_PER_PEAK = 8.0
"""A scale is at least the largest magnitude divided by this, so an index has at most q + 4 bits."""

COUNTS = struct.Struct("<IH")
ABSENT = 255
TABLE_STEPS = 16.0
WORD_BITS = 32
CODER_BITS_MAX = 24
"""Every symbol has a probability of at least 2^-24 and so takes at most 24 bits."""


def max_symbols(num_bits: int) -> int:
    """Number of symbols for indexes below 2^(q + 4)."""
    return 8 * num_bits + 16


class EntropyCodec(BlockedCodec):
    """A uniform quantizer with one scale per block, and lossless entropy coding of its indexes."""

    affine = False
    group = 256
    """Number of values whose rounding shares one random number."""

    @property
    def least_upload_bits(self) -> float:
        """An upload of zeros: the scales, the two counts, and a table of one symbol."""
        return 8.0 * (4 * self.num_ranges + COUNTS.size + 1)

    def forecast(self, vector: Vector) -> Forecast:
        from qccf.quantization import entropy_kernels as kernels

        values = checked_input(vector, self.num_parameters)
        scales = self._scales(values)
        counts, sums = np.zeros((2, kernels.NUM_BINS))
        kernels.magnitude_bins(values, self.bounds, scales, counts, sums)
        bits, lengths = np.zeros((2, MAX_NUM_BITS))
        kernels.expected_bits(counts, sums, MAX_NUM_BITS, np.zeros(max_symbols(MAX_NUM_BITS)), bits, lengths)
        bits += 8 * (4 * self.num_ranges + COUNTS.size + lengths) + WORD_BITS
        return Forecast(self._error_scale(scales), bits, rounding_errors(values, self.bounds, scales))

    def encode(self, vector: Vector, num_bits: int, key: int) -> bytes:
        from qccf.quantization import entropy_kernels as kernels

        num_bits = checked_num_bits(num_bits)
        values = checked_input(vector, self.num_parameters)
        scales = self._scales(values)
        symbols = np.empty(self.num_parameters, dtype=np.int32)
        counts = np.zeros(max_symbols(num_bits), dtype=np.int64)
        extra = np.empty(self.num_parameters * (num_bits + 1) // 64 + 1, dtype=np.uint64)
        extra_bits = kernels.round_to_symbols(
            values,
            values.view(np.int32),
            self.bounds,
            scales,
            num_bits,
            np.uint64(key),
            self.group,
            symbols,
            counts,
            extra,
        )
        table = frequency_table(counts)
        words = coded(symbols, table)
        parts = (
            scales.astype("<f4", copy=False),
            np.frombuffer(COUNTS.pack(len(words), len(table)), dtype=np.uint8),
            table,
            words.astype("<u4", copy=False),
            extra.astype("<u8", copy=False).view(np.uint8)[: -(-extra_bits // 8)],
        )
        body = np.concatenate([part.view(np.uint8) for part in parts])
        whole, room = wire.frame(len(body))
        room[:] = body
        return wire.seal(whole, self.codec_id, num_bits, self.num_parameters)

    def size_bits(self, payload: Buffer) -> int:
        return 8 * (wire.flat(payload).nbytes - wire.HEADER_BYTES)

    def decode(self, payload: Buffer, num_bits: int) -> Vector:
        values = np.zeros(self.num_parameters, dtype=np.float32)
        self.accumulate(payload, num_bits, 1.0, values)
        return values

    def accumulate(self, payload: Buffer, num_bits: int, weight: float, total: NDArray[Any]) -> None:
        from qccf.quantization import entropy_kernels as kernels

        scales, symbols, extra = self._opened(payload, num_bits)
        kernels.add_symbols(
            symbols, extra, self.bounds, scales, num_bits, float(weight), checked_total(total, self.num_parameters)
        )

    def _scales(self, values: Vector) -> NDArray[np.float32]:
        from qccf.quantization import entropy_kernels as kernels

        peaks = block_ranges(values, self.bounds).astype(np.float64)
        means = [kernels.mean_magnitude(values[a:b]) for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True)]
        return sent_scales(np.maximum(MEANS_PER_SCALE * np.array(means), peaks / SCALES_PER_PEAK), peaks)

    def _opened(self, payload: Buffer, num_bits: int) -> tuple[NDArray[np.float32], NDArray[np.int32], wire.Bytes]:
        from qccf.quantization import entropy_kernels as kernels

        start = 4 * self.num_ranges + COUNTS.size
        body = wire.unseal(
            payload,
            self.codec_id,
            num_bits,
            self.num_parameters,
            least_bytes=start + 1,
            most_bytes=start
            + max_symbols(num_bits)
            + (self.num_parameters * (CODER_BITS_MAX + num_bits + 1) + 2 * WORD_BITS) // 8
            + 1,
        )
        scales = wire.read_ranges(body, self.num_ranges)
        num_words, num_symbols = COUNTS.unpack_from(body.data, 4 * self.num_ranges)
        if not 1 <= num_symbols <= max_symbols(num_bits):
            raise errors.TableError(
                f"the payload has {num_symbols} symbols, but 1 to {max_symbols(num_bits)} are possible."
            )
        words_at, extra_at = start + num_symbols, start + num_symbols + 4 * num_words
        if len(body) < extra_at:
            raise errors.ShortPayloadError(
                f"the payload's body has {len(body):,} bytes, but its code words end at {extra_at:,}."
            )
        symbols = decoded(
            np.frombuffer(body[words_at:extra_at].tobytes(), dtype="<u4"),
            checked_table(body[start:words_at]),
            self.num_parameters,
        )
        extra_bits = kernels.extra_bits(symbols)
        size = extra_at - (-extra_bits // 8)
        if len(body) < size:
            raise errors.ShortPayloadError(
                f"the payload's body has {len(body):,} bytes, but its symbols need {size:,}."
            )
        if len(body) > size:
            raise errors.TrailingBytesError(
                f"the payload's body has {len(body):,} bytes, but its data end at {size:,}."
            )
        wire.check_padding(body, extra_bits)
        return scales, symbols, np.append(body[extra_at:], np.zeros(8, dtype=np.uint8))


def sent_scales(scales: FloatArray, peaks: FloatArray) -> NDArray[np.float32]:
    """The scales as float32: finite, and positive unless a block has only zeros."""
    limits = np.finfo(np.float32)
    bounded = np.clip(scales, limits.smallest_subnormal, limits.max).astype(np.float32)
    return np.where(peaks > 0.0, bounded, np.float32(0.0))


def frequency_table(counts: IntArray) -> wire.Bytes:
    """How much rarer than the most frequent symbol each symbol is, up to the last one that occurs."""
    used = counts[: np.flatnonzero(counts)[-1] + 1]
    with np.errstate(divide="ignore"):
        rarity = np.rint(TABLE_STEPS * np.log2(used.max() / used))
    return np.where(used > 0, np.minimum(rarity, ABSENT - 1), ABSENT).astype(np.uint8)


def checked_table(table: wire.Bytes) -> wire.Bytes:
    if table.min() != 0:
        raise errors.TableError(
            f"the smallest entry of the payload's table is {table.min()}, but the most frequent symbol must have 0."
        )
    if table[-1] == ABSENT:
        raise errors.TableError(f"the payload's table of {len(table)} symbols ends with a symbol that does not occur.")
    return table


def _model(table: wire.Bytes) -> Any:
    """The distribution of the symbols. Its weights are integers, so encoder and decoder use exactly the same one."""
    import constriction

    weights = np.where(table == ABSENT, 0.0, np.rint(2.0**24 * np.exp2(table / -TABLE_STEPS)))
    return constriction.stream.model.Categorical(weights / weights.sum(), perfect=False)


def coded(symbols: NDArray[np.int32], table: wire.Bytes) -> NDArray[np.uint32]:
    """The code words of the symbols. There are none if the table has only one symbol."""
    import constriction

    coder = constriction.stream.stack.AnsCoder()
    if len(table) > 1:
        coder.encode_reverse(symbols, _model(table))
    return coder.get_compressed()


def decoded(words: NDArray[np.uint32], table: wire.Bytes, count: int) -> NDArray[np.int32]:
    """The `count` symbols of these code words. Raises StreamError unless all words are used up."""
    import constriction

    try:
        coder = constriction.stream.stack.AnsCoder(words.astype(np.uint32))
        symbols = coder.decode(_model(table), count) if len(table) > 1 else np.zeros(count, dtype=np.int32)
        finished = coder.is_empty()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a Rust panic in constriction is not an Exception
        raise errors.StreamError(f"the payload's {len(words):,} code words cannot be decoded: {error}.") from None
    if not finished:
        raise errors.StreamError(f"the payload's {len(words):,} code words are not those of {count:,} symbols.")
    return symbols
