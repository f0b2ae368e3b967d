"""Compiled loops: round and pack in one pass, unpack and add in one pass. Working memory is a few kilobytes.

A value becomes a field of q + 1 bits: the index in the low q bits, the sign above it. Fields follow each other without
gaps; the first field starts at the lowest bit of the first byte. Rounding uses fixed-point numbers: a magnitude is
scaled to an integer whose low bits are the fraction of a step, a random number below one step is added, and the
fraction is cut off. This rounds up with exactly the right probability and gives the same result on every machine.

The random number of value i is a hash of i and the key. It uses the two multiplications of MurmurHash3's last step: one
half of the mixed key is added before them, the other half is XORed in between them.
"""

from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic

CHUNK = 2048
"""Values processed at a time. A multiple of 64, so each chunk starts at a whole byte; small enough for a fast cache."""

NARROW_BITS = 16
"""Up to this q a scaled magnitude fits into 31 bits and leaves enough of them for the fraction."""

SMALLEST_NARROW_RANGE = 2.0**-90
"""For smaller ranges the float32 factor from a value to its fixed-point form would overflow."""

WIDE_FRACTION_BITS = 20

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i32, i64, f32, f64 = np.int32, np.int64, np.float32, np.float64


def _operator32(name: str) -> Any:
    """An LLVM operation on 32-bit numbers. Numba's own operations give 64-bit results, which halves the SIMD width."""

    def build(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments)

    @intrinsic
    def operate(_context: Any, _first: Any, _second: Any) -> Any:
        return numba.uint32(numba.uint32, numba.uint32), build

    return operate


def _load64(_context: Any, array: Any, _place: Any) -> Any:
    """Eight bytes of an array, starting at any byte, as one number."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word = context.get_value_type(numba.uint64).as_pointer()
        return builder.load(builder.bitcast(builder.gep(start, [arguments[1]]), word), align=1)

    return numba.uint64(array, numba.int64), build


load64: Any = intrinsic(_load64)
add32, mul32, xor32, or32 = (_operator32(name) for name in ("add", "mul", "xor", "or_"))
left32, right32 = (_operator32(name) for name in ("shl", "lshr"))


@numba.njit(nogil=True, cache=True)
def mixed_key(key: Any) -> Any:
    """The two halves of the 64-bit key, mixed by the last step of SplitMix64."""
    x = u64(key + u64(0x9E3779B97F4A7C15))
    x = u64((x ^ (x >> u64(30))) * u64(0xBF58476D1CE4E5B9))
    x = u64((x ^ (x >> u64(27))) * u64(0x94D049BB133111EB))
    x = u64(x ^ (x >> u64(31)))
    return u32(x & u64(0xFFFFFFFF)), u32(x >> u64(32))


@numba.njit(nogil=True, inline="always")
def random_word(i: Any, low: Any, high: Any) -> Any:
    """32 random bits for value i."""
    x = add32(mul32(i, u32(0x9E3779B9)), low)
    x = xor32(x, right32(x, u32(16)))
    x = xor32(mul32(x, u32(0x85EBCA6B)), high)
    x = xor32(x, right32(x, u32(15)))
    x = mul32(x, u32(0xC2B2AE35))
    return xor32(x, right32(x, u32(16)))


@numba.njit(nogil=True, cache=True)
def largest_bits(value_bits: Any, bounds: Any, largest: Any) -> None:
    """Fill `largest`: the bits of each block's largest magnitude. Ordered as integers, NaN and infinity are largest."""
    for b in range(len(bounds) - 1):
        block = value_bits[bounds[b] : bounds[b + 1]]
        most = i32(0)
        for j in range(len(block)):
            most = max(most, i32(block[j] & i32(0x7FFFFFFF)))
        largest[b] = most


@numba.njit(nogil=True, cache=True)
def rounding_variances(values: Any, bounds: Any, scales: Any, levels: Any, variances: Any) -> None:
    """Add to `variances`, for each number of levels, Σ scale²·f(1 - f) over all values.

    f is the fraction of a step by which a magnitude lies above the next lower knob. The inner loop runs over the
    levels, so that it uses SIMD without changing the order of any sum: every machine gets the same result.
    """
    sums = np.zeros(len(levels), dtype=f64)
    for block in range(len(bounds) - 1):
        scale = f64(scales[block])
        if scale == 0.0:
            continue
        sums[:] = 0.0
        for i in range(bounds[block], bounds[block + 1]):
            ratio = f64(abs(values[i])) / scale
            for level in range(len(levels)):
                exact = ratio * levels[level]
                fraction = exact - np.floor(exact)
                sums[level] += fraction - fraction * fraction
        for level in range(len(levels)):
            variances[level] += scale * scale * sums[level]


@numba.njit(nogil=True, cache=True)
def _round_narrow(values: Any, value_bits: Any, first: Any, num_bits: Any, scale: Any, key: Any, fields: Any) -> None:
    low, high = key
    fraction, top = u32(31 - num_bits), i32(((1 << num_bits) - 1) << (31 - num_bits))
    drop, sign_place, start = u32(num_bits + 1), u32(num_bits), u32(first)
    for j in range(len(values)):
        fixed = u32(min(i32(abs(values[j]) * scale), top))
        random = right32(random_word(add32(start, u32(j)), low, high), drop)
        sign = right32(u32(value_bits[j]), u32(31))
        fields[j] = or32(right32(add32(fixed, random), fraction), left32(sign, sign_place))


@numba.njit(nogil=True, cache=True)
def _round_wide(values: Any, value_bits: Any, first: Any, num_bits: Any, scale: Any, key: Any, fields: Any) -> None:
    low, high = key
    top = i64((i64(1) << i64(num_bits)) - i64(1)) << i64(WIDE_FRACTION_BITS)
    for j in range(len(values)):
        fixed = min(i64(f64(abs(values[j])) * scale), top)
        index = (fixed + i64(random_word(u32(first + j), low, high) >> u32(12))) >> i64(WIDE_FRACTION_BITS)
        fields[j] = u64(index) | (u64(u32(value_bits[j]) >> u32(31)) << u64(num_bits))


@numba.njit(nogil=True, cache=True)
def _round_block(
    values: Any, value_bits: Any, first: Any, num_bits: Any, value_range: Any, key: Any, fields: Any
) -> None:
    """Round one block. The scale is rounded up if necessary, so the largest magnitude gets exactly the top index."""
    top = 2.0**num_bits - 1.0
    if value_range == 0.0:
        fields[: len(values)] = 0
    elif num_bits <= NARROW_BITS and value_range >= SMALLEST_NARROW_RANGE:
        target = top * 2.0 ** (31 - num_bits)
        scale = f32(target / f64(value_range))
        if f64(f32(value_range * scale)) < target:
            scale = f32(scale * f32(1.0 + 2.0**-22))
        _round_narrow(values, value_bits, first, num_bits, scale, key, fields)
    else:
        target = top * 2.0**WIDE_FRACTION_BITS
        wide_scale = target / f64(value_range)
        if f64(value_range) * wide_scale < target:
            wide_scale *= 1.0 + 2.0**-51
        _round_wide(values, value_bits, first, num_bits, wide_scale, key, fields)


@numba.njit(nogil=True, cache=True)
def _copy(source: Any, target: Any) -> None:
    """Copy, also between integers of different widths. Fields of 8 or 16 bits need no other packing."""
    for j in range(len(source)):
        target[j] = source[j]


@numba.njit(nogil=True, cache=True)
def _pack_pairs(fields: Any, count: Any, width: Any, words: Any) -> None:
    """Pack fields of at most 32 bits, two at a time. An odd count is followed by one zero field."""
    pairs = fields.view(u64)
    word, used, place, both = u64(0), u64(0), 0, u64(2 * width)
    for j in range((count + 1) // 2):
        pair = (pairs[j] & u64(0xFFFFFFFF)) | ((pairs[j] >> u64(32)) << u64(width))
        word |= pair << used
        used += both
        if used >= u64(64):
            words[place] = word
            place += 1
            used -= u64(64)
            word = pair >> (both - used)
    words[place] = word


@numba.njit(nogil=True, cache=True)
def _pack_wide(fields: Any, count: Any, width: Any, words: Any) -> None:
    word, used, place = u64(0), u64(0), 0
    for j in range(count):
        word |= fields[j] << used
        used += u64(width)
        if used >= u64(64):
            words[place] = word
            place += 1
            used -= u64(64)
            word = fields[j] >> (u64(width) - used)
    words[place] = word


@numba.njit(nogil=True, cache=True)
def _unpack_pairs(packed: Any, count: Any, width: Any, fields: Any) -> None:
    pairs = fields.view(u64)
    low, lift, place = (u64(1) << u64(width)) - u64(1), u64(32 - width), 0
    high = low << u64(32)
    for j in range((count + 1) // 2):
        pair = load64(packed, place >> 3) >> u64(place & 7)
        pairs[j] = (pair & low) | ((pair << lift) & high)
        place += 2 * width


@numba.njit(nogil=True, cache=True)
def _unpack_wide(packed: Any, count: Any, width: Any, fields: Any) -> None:
    mask = (u64(1) << u64(width)) - u64(1)
    for j in range(count):
        fields[j] = (load64(packed, (j * width) >> 3) >> u64((j * width) & 7)) & mask


@numba.njit(nogil=True, cache=True)
def _add_narrow(fields: Any, num_bits: Any, step: Any, weight: Any, total: Any) -> None:
    """Add weighted values. Each is rounded to float32 first, so that decoding and accumulating agree in every bit."""
    mask, sign_shift = i32((1 << num_bits) - 1), u32(31 - num_bits)
    for j in range(len(total)):
        sign = i32(left32(fields[j], sign_shift)) >> i32(31)
        signed = i32(i32(i32(fields[j]) & mask) ^ sign) - sign
        total[j] += weight * f64(f32(f64(i32(signed)) * step))


@numba.njit(nogil=True, cache=True)
def _add_wide(fields: Any, num_bits: Any, step: Any, weight: Any, total: Any) -> None:
    mask = (u64(1) << u64(num_bits)) - u64(1)
    for j in range(len(total)):
        signed = i64(fields[j] & mask)
        if fields[j] > mask:
            signed = -signed
        total[j] += weight * f64(f32(f64(signed) * step))


@numba.njit(nogil=True, cache=True)
def round_and_pack(
    values: Any, value_bits: Any, bounds: Any, ranges: Any, num_bits: Any, key: Any, packed: Any
) -> None:
    """Fill `packed` with the fields of all values. Block b is values[bounds[b] : bounds[b + 1]]."""
    halves = mixed_key(key)
    narrow, wide = np.zeros(CHUNK, dtype=u32), np.zeros(CHUNK, dtype=u64)
    words = np.zeros(CHUNK * (num_bits + 1) // 64 + 1, dtype=u64)
    as_bytes = words.view(u8)
    block = 0
    for start in range(0, len(values), CHUNK):
        end = min(start + CHUNK, len(values))
        first = start
        while first < end:
            last = min(end, bounds[block + 1])
            part, part_bits, place = values[first:last], value_bits[first:last], first - start
            if num_bits <= NARROW_BITS:
                _round_block(part, part_bits, first, num_bits, ranges[block], halves, narrow[place:])
            else:
                _round_block(part, part_bits, first, num_bits, ranges[block], halves, wide[place:])
            first = last
            if first == bounds[block + 1]:
                block += 1
        count = end - start
        if num_bits + 1 == 8:
            _copy(narrow[:count], as_bytes)
        elif num_bits + 1 == 16:
            _copy(narrow[:count], words.view(u16))
        elif num_bits <= NARROW_BITS:
            if count < CHUNK:
                narrow[count] = 0
            _pack_pairs(narrow, count, num_bits + 1, words)
        else:
            _pack_wide(wide, count, num_bits + 1, words)
        place = start // 8 * (num_bits + 1)
        size = (count * (num_bits + 1) + 7) // 8
        _copy(as_bytes[:size], packed[place : place + size])


@numba.njit(nogil=True, cache=True)
def unpack_and_add(packed: Any, bounds: Any, ranges: Any, num_bits: Any, weight: Any, total: Any) -> None:
    """total += weight · values. `packed` contains exactly the fields of all values."""
    narrow, wide = np.zeros(CHUNK, dtype=u32), np.zeros(CHUNK, dtype=u64)
    piece = np.zeros(CHUNK * (num_bits + 1) // 8 + 8, dtype=u8)
    block = 0
    for start in range(0, len(total), CHUNK):
        end = min(start + CHUNK, len(total))
        count, place = end - start, start // 8 * (num_bits + 1)
        size = (count * (num_bits + 1) + 7) // 8
        _copy(packed[place : place + size], piece[:size])
        if num_bits + 1 == 8:
            _copy(piece[:count], narrow)
        elif num_bits + 1 == 16:
            _copy(piece.view(u16)[:count], narrow)
        elif num_bits <= NARROW_BITS:
            _unpack_pairs(piece, count, num_bits + 1, narrow)
        else:
            _unpack_wide(piece, count, num_bits + 1, wide)
        first = start
        while first < end:
            last = min(end, bounds[block + 1])
            step = f64(ranges[block]) / (2.0**num_bits - 1.0)
            if num_bits <= NARROW_BITS:
                _add_narrow(narrow[first - start :], num_bits, step, weight, total[first:last])
            else:
                _add_wide(wide[first - start :], num_bits, step, weight, total[first:last])
            first = last
            if first == bounds[block + 1]:
                block += 1
