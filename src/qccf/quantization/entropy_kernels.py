"""Compiled loops that turn values into symbols and extra bits, and back. Symbols are entropy-coded, extra bits are not.

Each index below 16 has its own symbol. A larger index is coded like a floating-point number: its length and the three
bits after the leading one form the symbol, and the remaining low bits are extra bits. So a few symbols cover indexes of
any size. The indexes of one symbol are nearly equally likely, so sending their low bits uncoded costs almost nothing.
Every index except 0 also has a sign bit among the extra bits.
"""

from typing import Any

import numba
import numpy as np

from qccf.quantization.kernels import CHUNK, load64, mixed_key, random_word

COMPILED_IN = {"qccf.quantization.kernels": "92cb90c9b80b4f3d"}
"""Files with compiled functions that those below call, and a digest of each. Numba keeps compiled functions until their
own file changes, so this line has to change with those files; a test says when."""

DIRECT = 16
_OFFSET = 8 * (1023 + 4) - DIRECT
"""A float64 shifted right by 49 bits is 8·exponent + the three bits. Subtracting this gives 16.0 the symbol 16."""

BIN_SHIFT = 17
"""A float32 without its low 17 bits gives bins that split each factor of two into 64."""
LOWEST_BIN = (127 - 40) << 6
NUM_BINS = 44 << 6
"""Bins from 2^-40, below which magnitudes are negligible, to 2^4: magnitude / scale is at most 8."""

u8, u32, u64, i32, i64, f32, f64 = np.uint8, np.uint32, np.uint64, np.int32, np.int64, np.float32, np.float64


@numba.njit(nogil=True, cache=True)
def mean_magnitude(values: Any) -> Any:
    """Mean magnitude from four running sums in a fixed order, so that every machine gets the same result."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = len(values) // 4
    for j in range(whole):
        a += f64(abs(values[4 * j]))
        b += f64(abs(values[4 * j + 1]))
        c += f64(abs(values[4 * j + 2]))
        d += f64(abs(values[4 * j + 3]))
    for j in range(4 * whole, len(values)):
        a += f64(abs(values[j]))
    return ((a + b) + (c + d)) / len(values)


@numba.njit(nogil=True, cache=True)
def sum_of_squares(values: Any) -> Any:
    """Squared norm from four running sums in a fixed order, so that every machine gets the same result."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = len(values) // 4
    for j in range(whole):
        a += f64(values[4 * j]) * f64(values[4 * j])
        b += f64(values[4 * j + 1]) * f64(values[4 * j + 1])
        c += f64(values[4 * j + 2]) * f64(values[4 * j + 2])
        d += f64(values[4 * j + 3]) * f64(values[4 * j + 3])
    for j in range(4 * whole, len(values)):
        a += f64(values[j]) * f64(values[j])
    return (a + b) + (c + d)


@numba.njit(nogil=True, cache=True)
def _round(values: Any, first: Any, inverse_step: Any, key: Any, group: Any, carried: Any, indexes: Any) -> Any:
    """Fill `indexes`: add up the fractions of a step, and round a value up when the sum passes a whole number.

    For each `group` of values the sum starts at a new random point, so each value is rounded up with exactly the right
    probability. The number of values rounded up hardly varies, which makes the size of an upload predictable.
    """
    low, high = key
    for j in range(len(values)):
        if (first + j) % group == 0:
            carried = random_word(u32((first + j) // group), low, high)
        exact = f64(abs(values[j])) * inverse_step
        below = np.floor(exact)
        advanced = u32(carried + u32(i64((exact - below) * 4294967296.0)))
        indexes[j] = below + f64(advanced < carried)
        carried = advanced
    return carried


@numba.njit(nogil=True, cache=True)
def round_to_symbols(
    values: Any,
    value_bits: Any,
    bounds: Any,
    scales: Any,
    num_bits: Any,
    key: Any,
    group: Any,
    symbols: Any,
    counts: Any,
    extra: Any,
) -> Any:
    """Fill `symbols`, the `counts` of each symbol and the words of `extra` bits; return the number of extra bits."""
    halves = mixed_key(key)
    indexes = np.zeros(CHUNK, dtype=f64)
    index_bits = indexes.view(u64)
    word, used, place, carried = u64(0), u64(0), 0, u32(0)
    for block in range(len(bounds) - 1):
        inverse_step = (2.0**num_bits - 1.0) / f64(scales[block]) if scales[block] > 0.0 else 0.0
        for start in range(bounds[block], bounds[block + 1], CHUNK):
            end = min(start + CHUNK, bounds[block + 1])
            carried = _round(values[start:end], start, inverse_step, halves, group, carried, indexes)
            for j in range(end - start):
                if indexes[j] == 0.0:
                    symbols[start + j] = 0
                    continue
                field, width = u64(u32(value_bits[start + j]) >> u32(31)), u64(1)
                symbol = i64(indexes[j])
                if symbol >= DIRECT:
                    symbol = i64(index_bits[j] >> u64(49)) - _OFFSET
                    low_bits = u64((symbol - DIRECT) // 8 + 1)
                    field |= (u64(indexes[j]) & ((u64(1) << low_bits) - u64(1))) << u64(1)
                    width += low_bits
                symbols[start + j] = i32(symbol)
                counts[symbol] += 1
                word |= field << used
                used += width
                if used >= u64(64):
                    extra[place] = word
                    place += 1
                    used -= u64(64)
                    word = field >> (width - used)
    extra[place] = word
    counts[0] = len(values) - counts[1:].sum()
    return 64 * place + i64(used)


@numba.njit(nogil=True, cache=True)
def extra_bits(symbols: Any) -> Any:
    """Number of extra bits of these symbols."""
    total = 0
    for j in range(len(symbols)):
        total += (symbols[j] > 0) + (max(0, symbols[j] - DIRECT + 8) // 8)
    return total


@numba.njit(nogil=True, cache=True)
def add_symbols(symbols: Any, extra: Any, bounds: Any, scales: Any, num_bits: Any, weight: Any, total: Any) -> None:
    """total += weight · values. `extra` has eight spare bytes at its end, because bits are read in 64-bit words.

    Magnitudes are limited to the largest float32; only extreme scales reach it.
    """
    largest = f64(np.finfo(np.float32).max)
    place: Any = 0
    for block in range(len(bounds) - 1):
        step = f64(scales[block]) / (2.0**num_bits - 1.0)
        for i in range(bounds[block], bounds[block + 1]):
            symbol = i64(symbols[i])
            if symbol == 0:
                continue
            index, width = u64(symbol), u64(1)
            if symbol >= DIRECT:
                width += u64((symbol - DIRECT) // 8 + 1)
                index = u64(8 + (symbol - DIRECT) % 8) << (width - u64(1))
            field = (load64(extra, place >> 3) >> u64(place & 7)) & ((u64(1) << width) - u64(1))
            place += i64(width)
            magnitude = f32(min(f64(index | (field >> u64(1))) * step, largest))
            total[i] += weight * f64(-magnitude if field & u64(1) else magnitude)


@numba.njit(nogil=True, cache=True)
def magnitude_bins(values: Any, bounds: Any, scales: Any, counts: Any, sums: Any) -> None:
    """Fill `counts` and `sums`: the number and the sum of the ratios magnitude / scale in each bin."""
    ratios = np.zeros(CHUNK, dtype=f32)
    ratio_bits = ratios.view(u32)
    for block in range(len(bounds) - 1):
        inverse = 1.0 / f64(scales[block]) if scales[block] > 0.0 else 0.0
        for start in range(bounds[block], bounds[block + 1], CHUNK):
            end = min(start + CHUNK, bounds[block + 1])
            part = values[start:end]
            for j in range(len(part)):
                ratios[j] = f32(f64(abs(part[j])) * inverse)
            for j in range(len(part)):
                b = max(i64(ratio_bits[j] >> u32(BIN_SHIFT)) - LOWEST_BIN, 0)
                counts[b] += 1.0
                sums[b] += f64(ratios[j])


@numba.njit(nogil=True, cache=True)
def expected_bits(counts: Any, sums: Any, max_num_bits: Any, histogram: Any, bits: Any, lengths: Any) -> None:
    """Fill, for each q, the expected `bits` of symbols and extra bits, and the `lengths` of the frequency table.

    Stochastic rounding takes a magnitude to each of the two nearest indexes with a known probability, so the expected
    histogram needs no random numbers.
    """
    held = np.zeros(1, dtype=f64)
    held_bits = held.view(u64)
    for num_bits in range(1, max_num_bits + 1):
        histogram[:] = 0.0
        extra = 0.0
        for b in range(len(counts)):
            if sums[b] > 0.0:
                exact = sums[b] / counts[b] * (2.0**num_bits - 1.0)
                below = np.floor(exact)
                for index, share in ((below, below + 1.0 - exact), (below + 1.0, exact - below)):
                    symbol = i64(index)
                    if symbol >= DIRECT:
                        held[0] = index
                        symbol = i64(held_bits[0] >> u64(49)) - _OFFSET
                        extra += share * counts[b] * f64((symbol - DIRECT) // 8 + 1)
                    histogram[symbol] += share * counts[b]
            else:
                histogram[0] += counts[b]
        all_values = histogram.sum()
        total, length = extra + all_values - histogram[0], i64(1)
        for s in range(len(histogram)):
            if histogram[s] > 0.0:
                total += histogram[s] * np.log2(all_values / histogram[s])
            if histogram[s] >= 0.5:
                length = i64(s + 1)
        bits[num_bits - 1] = total
        lengths[num_bits - 1] = length
