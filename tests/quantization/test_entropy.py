"""Entropy-coded payloads: size compared to the entropy, forecast, and one error class per kind of broken payload."""

import struct

import constriction
import numpy as np
import pytest

from qccf.core import errors
from qccf.quantization.entropy import ABSENT, coded, decoded, frequency_table, max_symbols
from qccf.quantization.entropy_kernels import add_symbols, extra_bits
from qccf.quantization.protocol import Codec
from qccf.quantization.registry import build_codec
from support.payloads import with_right_checksum
from support.vectors import layered_vector

LAYERS = [200, 10, 12_000, 27_790]
COUNT = sum(LAYERS)
COUNTS_AT = 16 + 4
TABLE_AT = COUNTS_AT + 6


def sizes(codec: Codec, vector: np.ndarray, num_bits: int, keys: int = 20) -> np.ndarray:
    return np.array([codec.size_bits(codec.encode(vector, num_bits, key)) for key in range(keys)])


@pytest.mark.parametrize("num_bits", [1, 2, 3, 4, 6, 8, 16])
def test_the_forecast_is_the_real_size(num_bits: int) -> None:
    codec = build_codec("update+entropy", COUNT, LAYERS)
    vector = layered_vector(LAYERS)
    bits = codec.forecast(vector).bits
    assert bits is not None
    assert bits.shape == (32,)
    assert (np.diff(bits) > 0).all()
    real = sizes(codec, vector, num_bits)
    assert abs(bits[num_bits - 1] / real.mean() - 1.0) < 0.005
    assert np.abs(bits[num_bits - 1] / real - 1.0).max() < 0.03


def test_the_forecast_of_a_single_value_by_hand() -> None:
    """With a scale of 64 means its index is 1 with the probability (2^q - 1)/64 while q is at most 6, else 0.

    A symbol is in the table if it is expected at least half a time. Besides: a scale, two counts, a word of reserve.
    """
    forecast = build_codec("model+entropy", 1, [1]).forecast(np.array([-0.7], dtype=np.float32)).bits
    assert forecast is not None
    for num_bits, length in ((1, 1), (5, 1), (6, 2)):
        share = (2.0**num_bits - 1.0) / 64.0
        entropy = -share * np.log2(share) - (1.0 - share) * np.log2(1.0 - share)
        expected = 32 + 8 * (6 + length) + 32 + share + entropy
        assert forecast[num_bits - 1] == pytest.approx(expected, rel=1e-6)


def test_the_forecast_of_a_peak_by_hand() -> None:
    """One of 1,000 values is not 0, so the scale is an eighth of it: index 8 with one bit, and 24 with two.

    Index 24 has the symbol 20 and one low bit.
    """
    vector = np.zeros(1000, dtype=np.float32)
    vector[5] = -3.0
    forecast = build_codec("model+entropy", 1000, [1000]).forecast(vector).bits
    assert forecast is not None
    entropy = np.log2(1000.0) + 999.0 * np.log2(1000.0 / 999.0)
    np.testing.assert_allclose(
        forecast[:2] - entropy, [32 + 8 * (6 + 9) + 32 + 1, 32 + 8 * (6 + 21) + 32 + 2], rtol=1e-9
    )


def test_the_last_vector_predicts_the_size_of_the_next() -> None:
    """For any norm and any largest value, because the step is derived from the mean magnitude."""
    codec = build_codec("update+entropy", COUNT, LAYERS)
    last = layered_vector(LAYERS, seed=1)
    following = layered_vector(LAYERS, seed=2) * np.float32(3.7)
    following[0] = 8.0 * np.abs(following).max()
    forecast = codec.forecast(last).bits
    assert forecast is not None
    for num_bits in range(1, 9):
        real = sizes(codec, following, num_bits, keys=3)
        assert np.abs(forecast[num_bits - 1] / real - 1.0).max() < 0.03


def test_nearly_the_entropy_and_far_below_the_raw_size() -> None:
    codec = build_codec("update+entropy", COUNT, LAYERS)
    vector = layered_vector(LAYERS)
    scale = 64.0 * np.abs(vector.astype(np.float64)).mean()
    for num_bits in (1, 2, 4, 7):
        payload = codec.encode(vector, num_bits, 3)
        indexes = np.rint(codec.decode(payload, num_bits) * ((2.0**num_bits - 1.0) / scale)).astype(int)
        shares = np.unique(indexes, return_counts=True)[1] / COUNT
        entropy = -COUNT * float(shares @ np.log2(shares))
        assert entropy < codec.size_bits(payload) * 1.005
        assert codec.size_bits(payload) < 1.01 * entropy + 8 * 50
    assert codec.size_bits(codec.encode(vector, 1, 3)) < 0.08 * (2 * COUNT)


def test_a_vector_of_zeros_takes_a_few_bytes() -> None:
    codec = build_codec("update+entropy", COUNT, LAYERS)
    payload = codec.encode(np.zeros(COUNT, dtype=np.float32), 4, 0)
    assert payload[16:] == struct.pack("<fIHB", 0.0, 0, 1, 0)
    forecast = codec.forecast(np.zeros(COUNT, dtype=np.float32))
    assert forecast.error_scale == 0.0
    assert forecast.bits is not None
    assert (forecast.bits <= 8 * 15).all()


def test_rounding_up_is_evenly_spread() -> None:
    """The number of values rounded up hardly varies between keys. With independent draws its deviation would be 25."""
    vector = layered_vector(LAYERS)
    codec = build_codec("update+entropy", COUNT, LAYERS)
    ones = np.array([np.count_nonzero(codec.decode(codec.encode(vector, 1, key), 1)) for key in range(40)])
    assert abs(ones.mean() - COUNT / 64) < 5
    assert ones.std() < 8


def test_extreme_magnitudes_survive() -> None:
    codec = build_codec("model+entropy", 4, [4])
    for magnitude in (3e38, 1e-38, 1e-44, 1e-45):
        vector = np.array([magnitude, -magnitude, 0.0, 0.0], dtype=np.float32)
        for num_bits in (1, 16, 32):
            back = codec.decode(codec.encode(vector, num_bits, 1), num_bits)
            assert np.isfinite(back).all()
            if num_bits > 1:
                np.testing.assert_allclose(back, vector, rtol=1e-3)
    huge = np.zeros(300, dtype=np.float32)
    huge[5] = 3.4e38  # between 4 and 5 steps; 5 steps exceed the largest float32
    codec = build_codec("model+entropy", 300, [300])
    back = [float(codec.decode(codec.encode(huge, 1, key), 1)[5]) for key in range(20)]
    assert max(back) == np.finfo(np.float32).max
    alone = np.zeros(100_000, dtype=np.float32)
    alone[77] = -1.0  # far above the mean, so the scale is an eighth of it
    codec = build_codec("model+entropy", 100_000, [100_000])
    for num_bits in (1, 2, 32):
        np.testing.assert_array_equal(codec.decode(codec.encode(alone, num_bits, 1), num_bits), alone)


def test_the_table_by_hand() -> None:
    assert frequency_table(np.array([1000, 500, 0, 250, 1, 0, 0])).tolist() == [0, 16, ABSENT, 32, 159]
    assert frequency_table(np.array([0, 3])).tolist() == [ABSENT, 0]
    assert frequency_table(np.array([10**6, 1])).tolist() == [0, 254]
    symbols = np.array([0, 0, 1, 0, 3, 0, 0], dtype=np.int32)
    table = np.array([0, 16, ABSENT, 32], dtype=np.uint8)
    np.testing.assert_array_equal(decoded(coded(symbols, table), table, 7), symbols)


def test_code_words_follow_the_shares_of_the_table() -> None:
    """16 steps are a factor of two and an absent symbol has no share: 4/7, 2/7, 0 and 1/7."""
    symbols = np.random.default_rng(6).choice(np.array([0, 1, 3], dtype=np.int32), 400)
    coder = constriction.stream.stack.AnsCoder()
    shares = np.array([4.0, 2.0, 0.0, 1.0]) / 7.0
    coder.encode_reverse(symbols, constriction.stream.model.Categorical(shares, perfect=False))
    table = np.array([0, 16, ABSENT, 32], dtype=np.uint8)
    np.testing.assert_array_equal(coded(symbols, table), coder.get_compressed())


def test_the_weights_of_symbols_are_whole_parts_of_2_to_the_24() -> None:
    """2^24·2^(-249/16) is 346.7, and so 347."""
    symbols = np.zeros(3000, dtype=np.int32)
    symbols[::3] = 1
    coder = constriction.stream.stack.AnsCoder()
    weights = np.array([2.0**24, 347.0])
    coder.encode_reverse(symbols, constriction.stream.model.Categorical(weights / weights.sum(), perfect=False))
    np.testing.assert_array_equal(coded(symbols, np.array([0, 249], dtype=np.uint8)), coder.get_compressed())


@pytest.mark.parametrize("name", ["model+entropy", "block+entropy", "sparse"])
def test_an_upload_of_zeros_is_the_least(name: str) -> None:
    codec = build_codec(name, 60, [10, 20, 30])
    assert codec.least_upload_bits == codec.size_bits(codec.encode(np.zeros(60, dtype=np.float32), 3, 1))


def test_symbols_and_extra_bits_by_hand() -> None:
    """Index 15 has symbol 15; 16 and 17 have 16; 31 has 23; 32 to 35 have 24. Extra bits: sign, then low bits."""
    symbols = np.array([0, 15, 16, 16, 23, 24], dtype=np.int32)
    assert extra_bits(symbols) == 1 + 2 + 2 + 2 + 3
    fields = [(0b1, 1), (0b00, 2), (0b11, 2), (0b10, 2), (0b111, 3)]  # -15, 16, -17, 31, -35
    packed, place = 0, 0
    for field, width in fields:
        packed |= field << place
        place += width
    total = np.ones(6)
    extra = np.array([packed, 0], dtype=np.uint64).view(np.uint8)
    add_symbols(symbols, extra, np.array([0, 6]), np.array([6.0], dtype=np.float32), 2, 0.5, total)
    np.testing.assert_array_equal(total, 1.0 + np.array([0.0, -15.0, 16.0, -17.0, 31.0, -35.0]))


def prepared() -> tuple[Codec, bytes, int, int]:
    codec = build_codec("update+entropy", 300, [300])
    payload = codec.encode(layered_vector([300]), 3, 8)
    num_words, num_symbols = struct.unpack_from("<IH", payload, COUNTS_AT)
    return codec, payload, num_words, num_symbols


def refused(payload: bytes, error: type[Exception], words: str) -> None:
    codec = prepared()[0]
    total = np.zeros(300)
    with pytest.raises(error, match=words) as raised:
        codec.accumulate(with_right_checksum(payload), 3, 1.0, total)
    assert type(raised.value) is error
    assert not total.any()


def test_bad_tables_are_refused() -> None:
    _, payload, num_words, num_symbols = prepared()

    def with_counts(words: int, symbols: int) -> bytes:
        return payload[:COUNTS_AT] + struct.pack("<IH", words, symbols) + payload[TABLE_AT:]

    refused(with_counts(num_words, 0), errors.TableError, "0 symbols, but 1 to 40")
    refused(with_counts(num_words, max_symbols(3) + 1), errors.TableError, "41 symbols, but 1 to 40")
    refused(with_counts(2**32 - 1, num_symbols), errors.ShortPayloadError, "but its code words end at")
    table = payload[TABLE_AT : TABLE_AT + num_symbols]
    rest = payload[TABLE_AT + num_symbols :]
    absent = bytes([ABSENT]) * num_symbols
    refused(payload[:TABLE_AT] + absent + rest, errors.TableError, "smallest entry of the payload's table is 255")
    none_first = bytes([max(1, entry) for entry in table])
    refused(payload[:TABLE_AT] + none_first + rest, errors.TableError, "smallest entry of the payload's table is 1,")
    no_last = table[:-1] + bytes([ABSENT])
    refused(payload[:TABLE_AT] + no_last + rest, errors.TableError, "ends with a symbol that does not occur")


def test_bad_streams_are_refused() -> None:
    _, payload, num_words, num_symbols = prepared()
    words_at = TABLE_AT + num_symbols
    extra_at = words_at + 4 * num_words
    zero_end = payload[: extra_at - 4] + bytes(4) + payload[extra_at:]
    refused(zero_end, errors.StreamError, "cannot be decoded")
    more = struct.pack("<IH", num_words + 1, num_symbols)
    longer = payload[:COUNTS_AT] + more + payload[TABLE_AT:words_at] + bytes([1, 2, 3, 4]) + payload[words_at:]
    refused(longer, errors.StreamError, "are not those of 300 symbols")
    none = struct.pack("<IH", 0, 1) + b"\0"
    refused(payload[:COUNTS_AT] + none + b"\0", errors.TrailingBytesError, "but its data end at")
    unused = struct.pack("<IH", 1, 1) + b"\0" + struct.pack("<I", 5)
    refused(payload[:COUNTS_AT] + unused, errors.StreamError, "1 code words are not those of 300 symbols")
    refused(payload[:-1], errors.ShortPayloadError, "but its symbols need")
    refused(payload + b"\0", errors.TrailingBytesError, "but its data end at")
    refused(payload + bytes(5000), errors.TrailingBytesError, "at most")
    refused(payload[:COUNTS_AT], errors.ShortPayloadError, "at least 11 are needed")
    refused(payload[:16] + struct.pack("<f", np.nan) + payload[20:], errors.RangeError, "nan")
    assert payload[-1] < 128, "the last byte has unused bits"
    refused(payload[:-1] + bytes([payload[-1] | 0x80]), errors.PaddingError, "unused bits")


def test_the_longest_possible_body_is_read_and_a_longer_one_is_not() -> None:
    """10 bytes of scale and counts, 40 symbols, and of 300 values 24 + 4 bits each: 1,050 bytes, 8 of two words, 1."""
    payload = prepared()[1]
    refused(payload[:COUNTS_AT] + bytes(1109 - 4), errors.TableError, "0 symbols, but 1 to 40")
    refused(payload[:COUNTS_AT] + bytes(1110 - 4), errors.TrailingBytesError, "at most 1,109 are possible")


def test_as_many_symbols_as_possible_are_read() -> None:
    codec, payload, _, _ = prepared()
    table = np.array([0] + [ABSENT] * 38 + [0], dtype=np.uint8)
    words = coded(np.zeros(300, dtype=np.int32), table)
    body = struct.pack("<IH", len(words), 40) + table.tobytes() + words.astype("<u4").tobytes()
    assert not codec.decode(with_right_checksum(payload[:COUNTS_AT] + body), 3).any()
