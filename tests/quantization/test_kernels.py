"""Compiled loops equal readable NumPy bit for bit; their random numbers are uniform and independent."""

from itertools import pairwise

import numba
import numpy as np
import pytest

from qccf.quantization import kernels
from qccf.quantization.entropy_kernels import mean_magnitude, round_to_symbols, sum_of_squares
from qccf.quantization.kernels import CHUNK, mixed_key, random_word, round_and_pack, unpack_and_add
from qccf.quantization.wire import readonly
from support.vectors import layered_vector

MASK = 2**32 - 1


def reference_words(count: int, key: int) -> np.ndarray:
    """The random words of values 0 … count - 1, computed with Python integers."""
    low, high = (int(half) for half in mixed_key(np.uint64(key)))
    words = []
    for i in range(count):
        x = (i * 0x9E3779B9 + low) & MASK
        x ^= x >> 16
        x = ((x * 0x85EBCA6B) & MASK) ^ high
        x ^= x >> 15
        x = (x * 0xC2B2AE35) & MASK
        words.append(x ^ (x >> 16))
    return np.array(words, dtype=np.uint64)


def reference_fields(values: np.ndarray, value_range: float, num_bits: int, words: np.ndarray) -> np.ndarray:
    """Index and sign of each value: fixed point in 31 bits if that suffices, else with 20 fraction bits."""
    top = 2**num_bits - 1
    wide = num_bits > 16 or value_range < 2.0**-90
    real, fraction_bits, ulp = (np.float64, 20, 2.0**-51) if wide else (np.float32, 31 - num_bits, 2.0**-22)
    target = top * 2.0**fraction_bits
    scale = real(target / value_range) if value_range else real(0.0)
    if value_range and real(value_range) * scale < target:
        scale = real(scale * real(1.0 + ulp))
    fixed = np.minimum((np.abs(values).astype(real) * scale).astype(np.int64), top << fraction_bits)
    indexes = (fixed + (words >> np.uint64(32 - fraction_bits)).astype(np.int64)) >> fraction_bits
    signs = np.signbit(values) if value_range else np.zeros(len(values), dtype=bool)
    return indexes.astype(np.uint64) | (signs.astype(np.uint64) << np.uint64(num_bits))


def reference_pack(fields: np.ndarray, width: int) -> np.ndarray:
    bits = (fields[:, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
    return np.packbits(bits.astype(np.uint8).ravel(), bitorder="little")


def reference_values(packed: np.ndarray, count: int, num_bits: int, ranges: np.ndarray) -> np.ndarray:
    bits = np.unpackbits(packed, bitorder="little", count=count * (num_bits + 1)).reshape(count, num_bits + 1)
    indexes = bits[:, :-1].astype(np.uint64) @ (np.uint64(1) << np.arange(num_bits, dtype=np.uint64))
    magnitudes = indexes * (ranges.astype(np.float64) / (2.0**num_bits - 1.0))
    return np.where(bits[:, -1] == 1, -magnitudes, magnitudes).astype(np.float32)


@pytest.mark.parametrize("num_bits", range(1, 33))
@pytest.mark.parametrize("cuts", [[0, 5000], [0, 1, 2048, 2049, 3003, 5000]])
def test_kernels_equal_the_readable_version(num_bits: int, cuts: list[int]) -> None:
    values = layered_vector([700, 300, 3000, 1000], seed=num_bits)
    bounds = np.array(cuts)
    if len(cuts) > 2:
        values[1:2048] *= np.float32(1e-30)  # a range too small for a float32 scale
        values[2049:3003] = 0.0
    ranges = np.array([np.abs(values[a:b]).max() for a, b in pairwise(cuts)], dtype=np.float32)
    packed = np.full((5000 * (num_bits + 1) + 7) // 8, 0xAA, dtype=np.uint8)
    round_and_pack(readonly(values), readonly(values).view(np.int32), bounds, ranges, num_bits, np.uint64(9), packed)
    words = reference_words(5000, 9)
    blocks = list(zip(cuts[:-1], cuts[1:], ranges.tolist(), strict=True))
    fields = np.concatenate([reference_fields(values[a:b], r, num_bits, words[a:b]) for a, b, r in blocks])
    np.testing.assert_array_equal(packed, reference_pack(fields, num_bits + 1))

    expected = reference_values(packed, 5000, num_bits, np.repeat(ranges, np.diff(bounds)))
    for dtype in (np.float64, np.float32):
        total = np.linspace(-1.0, 1.0, 5000).astype(dtype)
        before = total.copy()
        unpack_and_add(readonly(packed), bounds, readonly(ranges), num_bits, 0.3, total)
        np.testing.assert_array_equal(total, (before + 0.3 * expected.astype(np.float64)).astype(dtype))


@pytest.mark.parametrize("value_range", [2.0**-90, np.nextafter(np.float32(2.0**-90), np.float32(0.0))])
def test_ranges_from_2_to_the_minus_90_are_rounded_in_32_bits(value_range: float) -> None:
    """Below, in 64 bits. Where one ends and the other begins is part of the result."""
    values = (np.linspace(-1.0, 1.0, 20_000) * value_range).astype(np.float32)
    packed = np.empty(20_000 * 17 // 8, dtype=np.uint8)
    given = (np.array([0, 20_000]), np.array([value_range], dtype=np.float32), 16, np.uint64(9))
    round_and_pack(readonly(values), readonly(values).view(np.int32), *given, packed)
    fields = reference_fields(values, float(value_range), 16, reference_words(20_000, 9))
    np.testing.assert_array_equal(packed, reference_pack(fields, 17))


def test_the_largest_magnitude_gets_the_top_index_with_every_random_number() -> None:
    """Its fixed-point form is above the top by rounding, so the largest random numbers would carry it too far."""
    top, count = 2**32 - 1, 2**21
    value = np.float32(0.77)
    scale = top * 2.0**20 / float(value)
    assert float(value) * scale < top * 2.0**20
    assert int(float(value) * (scale * (1.0 + 2.0**-51))) == (top << 20) + 2
    assert (drawn(7, count) >= 1.0 - 2 * 2.0**-20).any()
    values, bounds = np.full(count, value), np.array([0, count])
    packed, total = np.empty(count * 33 // 8, dtype=np.uint8), np.zeros(count)
    round_and_pack(readonly(values), readonly(values).view(np.int32), bounds, values[:1], 32, np.uint64(7), packed)
    unpack_and_add(readonly(packed), bounds, readonly(values[:1]), 32, 1.0, total)
    np.testing.assert_array_equal(total, float(value))


def checked_load64(array: np.ndarray, place: int) -> np.uint64:
    assert 0 <= place <= len(array) - 8
    return np.uint64(int.from_bytes(array[place : place + 8].tobytes(), "little"))


@pytest.mark.parametrize("num_bits", [3, 7, 15, 20])
@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 8])
def test_packing_stays_inside_its_arrays(num_bits: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled loops check no index, so they run as Python here, which does."""
    values = layered_vector([count])
    bounds, ranges = np.array([0, count]), np.abs(values).max(keepdims=True)
    size = (count * (num_bits + 1) + 7) // 8
    given = (readonly(values), readonly(values).view(np.int32), bounds, ranges, num_bits, np.uint64(9))
    compiled, packed = np.empty((2, size), dtype=np.uint8)
    sums, total = np.zeros((2, count))
    round_and_pack(*given, compiled)
    unpack_and_add(readonly(compiled), bounds, readonly(ranges), num_bits, 1.0, sums)
    for name in ("_copy", "_pack_pairs", "_pack_wide", "_unpack_pairs", "_unpack_wide"):
        monkeypatch.setattr(kernels, name, getattr(kernels, name).py_func)
    monkeypatch.setattr(kernels, "load64", checked_load64)
    round_and_pack.py_func(*given, packed)
    np.testing.assert_array_equal(packed, compiled)
    unpack_and_add.py_func(readonly(packed), bounds, readonly(ranges), num_bits, 1.0, total)
    np.testing.assert_array_equal(total, sums)


@pytest.mark.parametrize("per_start", [256, 2**32])
def test_symbols_equal_the_readable_version(per_start: int) -> None:
    values = layered_vector([100, 900])
    scale, num_bits = np.float32(0.003), 9
    symbols, counts = np.empty(1000, dtype=np.int32), np.zeros(88, dtype=np.int64)
    extra = np.empty(1000 * 10 // 64 + 1, dtype=np.uint64)
    num_extra = round_to_symbols(
        readonly(values),
        readonly(values).view(np.int32),
        np.array([0, 1000]),
        np.array([scale]),
        num_bits,
        np.uint64(4),
        per_start,
        symbols,
        counts,
        extra,
    )
    starts = reference_words(4, 4)
    exact = np.abs(values.astype(np.float64)) * (511.0 / float(scale))
    fractions = np.floor((exact - np.floor(exact)) * 2.0**32).astype(np.uint64)
    bits = ""
    for i in range(1000):
        group = i // per_start
        sums = starts[group] + fractions[group * per_start : i + 1].cumsum()
        before = int(sums[-2] if i % per_start else starts[group]) >> 32
        index = int(exact[i]) + (int(sums[-1]) >> 32) - before
        low = max(0, index.bit_length() - 4) if index >= 16 else 0
        symbol = index if index < 16 else 16 + 8 * (low - 1) + (index >> low) - 8
        assert symbols[i] == symbol
        if index:
            bits += str(int(values[i] < 0)) + "".join(str((index >> k) & 1) for k in range(low))
    assert num_extra == len(bits)
    found = np.unpackbits(extra.view(np.uint8), bitorder="little", count=num_extra)
    assert "".join(map(str, found)) == bits
    np.testing.assert_array_equal(counts, np.bincount(symbols, minlength=88))


@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 41])
def test_every_value_counts_once_in_means_and_norms(count: int) -> None:
    values = readonly(layered_vector([count]))
    wide = np.abs(values.astype(np.float64))
    assert mean_magnitude(values) == pytest.approx(wide.mean(), rel=1e-14)
    assert sum_of_squares(values) == pytest.approx((wide**2).sum(), rel=1e-14)


def test_means_and_norms_are_four_sums_in_a_fixed_order() -> None:
    """2^53 + 1 is 2^53 in a float64, and 2^54 + 2 is 2^54. Of eight values the first and the fifth are one sum."""
    values = np.ones(8, dtype=np.float32)
    values[0] = -(2.0**53)
    assert mean_magnitude(readonly(values)) == (2.0**53 + 2.0 + 4.0) / 8.0
    values[0] = 2.0**27
    assert sum_of_squares(readonly(values)) == 2.0**54 + 4.0


@numba.njit
def fill(key, words) -> None:
    low, high = mixed_key(key)
    for i in range(len(words)):
        words[i] = random_word(np.uint32(i), low, high)


def drawn(key: int, count: int) -> np.ndarray:
    """Uniform random numbers of a key."""
    words = np.empty(count, dtype=np.uint32)
    fill(np.uint64(key), words)
    return words / 2.0**32


def test_random_numbers_equal_the_reference() -> None:
    np.testing.assert_array_equal(drawn(3, 50) * 2.0**32, reference_words(50, 3))


def test_random_numbers_are_uniform_and_independent() -> None:
    """For 64 consecutive keys: histogram, and correlation between keys, between neighbours and at power-of-two lags."""
    count = 20_000
    draws = np.array([drawn(key, count) for key in range(64)])
    bins = np.array([np.bincount((row * 64).astype(int), minlength=64) for row in draws])
    chi_squared = ((bins - count / 64) ** 2 / (count / 64)).sum(axis=1)
    assert abs(chi_squared.mean() - 63) < 5 * np.sqrt(2 * 63 / 64)
    assert chi_squared.max() < 63 + 6 * np.sqrt(2 * 63)
    centred = (draws - 0.5) * np.sqrt(12.0)
    between_keys = centred @ centred.T / count
    assert np.abs(between_keys[~np.eye(64, dtype=bool)]).max() < 5 / np.sqrt(count)
    for distance in (1, 2, 4, 8, 16, 64, 128, 1024, 2048, 4096):
        lagged = (centred[:, :-distance] * centred[:, distance:]).mean()
        assert abs(lagged) < 5 / np.sqrt(64 * (count - distance))
        across = (centred[:-1, :-distance] * centred[1:, distance:]).mean()
        assert abs(across) < 5 / np.sqrt(63 * (count - distance))


def test_keys_that_differ_in_one_bit_give_other_numbers() -> None:
    first = drawn(12345, 2000)
    for bit in range(64):
        other = drawn(12345 ^ (1 << bit), 2000)
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / np.sqrt(2000)


def test_the_key_is_mixed_as_splitmix64_does() -> None:
    low, high = mixed_key(np.uint64(0))
    assert (int(high) << 32) | int(low) == 0xE220A8397B1DCDAF
