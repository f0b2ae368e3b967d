"""The payload format: exact sizes, the bytes of one example, and an error class for each kind of broken payload."""

import struct
import subprocess
import sys

import numpy as np
import pytest

from qccf.core import errors
from qccf.core.errors import ConfigError, DivergedError
from qccf.quantization import wire
from qccf.quantization.protocol import Codec
from qccf.quantization.registry import CODECS, build_codec
from support.payloads import with_right_checksum
from support.vectors import layered_vector

SIZES = [1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 127, 1000, 2047, 2048, 2049, 4097]

FIXED = {
    "model": ["548944e2", "a99a24e4", "c6f657f7"],
    "update": ["55035712", "b6d59cae", "000c48f9"],
    "block": ["10378571", "34dc9f2b", "6a94a817"],
    "update+block": ["bddb1b86", "43272314", "051e5ddc"],
    "model+entropy": ["358eaa5f", "1767e105", "c0285302"],
    "update+entropy": ["fc34e8de", "01b01b3d", "b924a927"],
    "block+entropy": ["0b5315c9", "ad7f2049", "fc6b62f2"],
    "update+block+entropy": ["c5eeadc3", "1e7a9515", "e4e318c0"],
    "sparse": ["7229910c", "807285ad", "538b4d53"],
}
"""Checksums of payloads with 2, 9 and 20 bits."""


def with_field(payload: bytes, place: int, content: bytes) -> bytes:
    return with_right_checksum(payload[:place] + content + payload[place + len(content) :])


@pytest.mark.parametrize("num_bits", range(1, 33))
def test_sizes_are_exact_for_any_number_of_bits_and_values(num_bits: int) -> None:
    for count in SIZES:
        vector = layered_vector([count], seed=count)
        for name, ranges in (("model", 1), ("update+block", -(-count // 128))):
            codec = build_codec(name, count, [count])
            payload = codec.encode(vector, num_bits, 1)
            size_bits = count * num_bits + count + 32 * ranges
            assert codec.bits_per_index * num_bits + codec.overhead_bits == codec.size_bits(payload) == size_bits
            assert len(payload) == -(-size_bits // 8) + 16
            np.testing.assert_allclose(
                codec.decode(payload, num_bits), vector, atol=np.abs(vector).max() / (2**num_bits - 1) + 1e-9
            )


def test_an_example_by_hand() -> None:
    """With q = 2 and range 3 the levels are 0, 1, 2 and 3, so no value needs rounding."""
    codec = build_codec("model", 5, [5])
    payload = codec.encode(np.array([3, -1, 0, 2, -3], dtype=np.float32), 2, 99)
    fields = 0b011 | 0b101 << 3 | 0b000 << 6 | 0b010 << 9 | 0b111 << 12
    body = struct.pack("<f", 3.0) + fields.to_bytes(2, "little")
    assert payload[:12] == b"QCCF" + bytes([1, 0, 2, 0, 5, 0, 0, 0])
    assert payload[16:] == body
    assert codec.decode(payload, 2).tolist() == [3.0, -1.0, 0.0, 2.0, -3.0]


def test_E9_the_largest_magnitude_always_gets_the_top_index() -> None:
    """Also if the scale is not exactly representable: it is then rounded up, not to nearest."""
    rng = np.random.default_rng(0)
    for count, num_bits, repeats in ((64, 14, 500), (64, 16, 500), (200_000, 17, 20), (200_000, 32, 20)):
        codec = build_codec("model", count, [count])
        for key, value_range in enumerate(rng.lognormal(size=repeats).astype(np.float32)):
            vector = np.full(count, -value_range)
            np.testing.assert_array_equal(codec.decode(codec.encode(vector, num_bits, key), num_bits), vector)


def test_building_a_codec_imports_no_compiled_packages() -> None:
    code = (
        "import sys; from qccf.quantization.registry import CODECS, build_codec;"
        "[build_codec(name, 5, [2, 3]) for name in CODECS];"
        "print([m for m in ('numba', 'constriction', 'xxhash') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_checksum_is_fixed() -> None:
    """Other machines and library versions must read payloads written by this one."""
    payload = build_codec("model", 5, [5]).encode(np.array([3, -1, 0, 2, -3], dtype=np.float32), 2, 99)
    assert payload[12:16].hex() == "9cf2e97f"


@pytest.mark.parametrize(("name", "stated"), FIXED.items())
def test_payloads_are_the_same_on_every_machine(name: str, stated: list[str]) -> None:
    """The vector, the number of bits and the key decide about every byte."""
    codec = build_codec(name, 1300, [300, 1000])
    vector = (np.random.default_rng(5).integers(-99, 100, 1300) ** 3 / 2.0**20).astype(np.float32)  # exact
    assert [codec.encode(vector, num_bits, 7)[12:16].hex() for num_bits in (2, 9, 20)] == stated


@pytest.mark.parametrize("name", ["model", "update+block"])
def test_the_largest_number_is_sent_and_read(name: str) -> None:
    codec = build_codec(name, 3, [3])
    vector = np.array([np.finfo(np.float32).max, 0.0, -np.finfo(np.float32).max], dtype=np.float32)
    np.testing.assert_array_equal(codec.decode(codec.encode(vector, 3, 1), 3), vector)


def test_the_hash_is_the_low_half_of_xxh3() -> None:
    """Of no bytes, XXH3-64 with the seed 0 is 2d06800538d394c2."""
    assert wire.short_hash(b"") == 0x38D394C2


def small() -> tuple[Codec, bytes]:
    codec = build_codec("model", 13, [13])
    return codec, codec.encode(layered_vector([13]), 4, 5)


@pytest.mark.parametrize(
    ("place", "content", "error", "words"),
    [
        (0, b"QCCE", errors.MagicError, "begins with b'QCCE', not with b'QCCF'"),
        (4, b"\x02", errors.VersionError, "version 2, but only version 1"),
        (5, b"\x03", errors.CodecError, "codec 3, but codec 0"),
        (6, b"\x00\x00", errors.NumBitsError, "0 bits per index, but 1 to 32"),
        (6, b"\x21\x00", errors.NumBitsError, "33 bits per index, but 1 to 32"),
        (6, b"\x05\x00", errors.NumBitsError, "5 bits per index, but 4"),
        (8, b"\xff\xff\xff\xff", errors.OversizeError, "4,294,967,295 values, but the model has 13"),
        (8, b"\x0c\x00\x00\x00", errors.CountError, "12 values, but the model has 13"),
        (16, struct.pack("<f", np.nan), errors.RangeError, "range 0 of the payload is nan"),
        (16, struct.pack("<f", np.inf), errors.RangeError, "range 0 of the payload is inf"),
        (16, struct.pack("<f", -1.0), errors.RangeError, r"range 0 of the payload is -1\.0"),
        (16, struct.pack("<f", -0.0), errors.RangeError, r"range 0 of the payload is -0\.0"),
        (28, b"\x80", errors.PaddingError, "its 7 unused bits must be 0"),
    ],
)
def test_each_wrong_field_raises_its_own_error(place: int, content: bytes, error: type[Exception], words: str) -> None:
    codec, payload = small()
    total = np.zeros(13)
    for bad in (with_field(payload, place, content), bytearray(with_field(payload, place, content))):
        with pytest.raises(error, match=words) as raised:
            codec.decode(bad, 4)
        assert type(raised.value) is error
        with pytest.raises(error):
            codec.accumulate(bad, 4, 1.0, total)
    assert not total.any()


def test_wrong_lengths_and_damage_are_refused() -> None:
    codec, payload = small()
    for length in range(16):
        with pytest.raises(errors.ShortPayloadError, match=f"has {length} bytes, less than its header of 16"):
            codec.decode(payload[:length], 4)
    for length in range(16, len(payload)):
        with pytest.raises(errors.ShortPayloadError, match=f"body has {length - 16} bytes, but at least 13"):
            codec.decode(with_right_checksum(payload[:length]), 4)
    with pytest.raises(errors.TrailingBytesError, match="body has 14 bytes, but at most 13"):
        codec.decode(with_right_checksum(payload + b"\0"), 4)
    for bit in range(8 * 12, 8 * len(payload)):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.ChecksumError, match="but its bytes give"):
            codec.decode(damaged, 4)


def test_the_numbers_of_codecs_are_fixed() -> None:
    """They are in payloads, so that old payloads stay readable and no codec reads those of another."""
    names = ["model", "update", "block", "update+block", "model+entropy", "update+entropy", "block+entropy"]
    names += ["update+block+entropy", "sparse"]
    assert sorted(names) == sorted(CODECS)
    for number, name in enumerate(names):
        assert build_codec(name, 13, [13]).encode(layered_vector([13]), 4, 5)[5] == number


def test_the_checksum_covers_the_header() -> None:
    payload = small()[1]
    for place in range(4, 12):
        other = bytearray(payload)
        other[place] ^= 1
        assert wire.checksum(other) != wire.checksum(payload)


def test_payloads_are_read_from_any_kind_of_buffer() -> None:
    codec, payload = small()
    expected = codec.decode(payload, 4)
    spread = bytes(b for byte in payload for b in (byte, 0))
    odd = memoryview(b"x" + payload)[1:]
    for view in (bytearray(payload), memoryview(payload), memoryview(spread)[::2], odd):
        np.testing.assert_array_equal(codec.decode(view, 4), expected)
        assert codec.size_bits(view) == 13 * 5 + 32


def test_size_of_broken_payloads_is_refused() -> None:
    codec, payload = small()
    with pytest.raises(errors.ShortPayloadError, match="has 3 bytes"):
        codec.size_bits(payload[:3])
    with pytest.raises(errors.NumBitsError, match="99 bits"):
        codec.size_bits(with_field(payload, 6, b"\x63\x00"))


@pytest.mark.parametrize("name", list(CODECS))
def test_invalid_input_of_encode_is_refused(name: str) -> None:
    codec = build_codec(name, 6, [2, 4])
    for bad in (np.nan, np.inf, -np.inf):
        vector = np.array([1.0, 0.0, 2.0, bad, 0.5, 0.1], dtype=np.float32)
        with pytest.raises(DivergedError, match="NaN or infinite"):
            codec.encode(vector, 3, 0)
        with pytest.raises(DivergedError, match="NaN or infinite"):
            codec.forecast(vector)
    for num_bits in (0, 33):
        with pytest.raises(ValueError, match=f"num_bits = {num_bits}"):
            codec.encode(np.ones(6, dtype=np.float32), num_bits, 0)
    with pytest.raises(ValueError, match=r"shape \(5,\)"):
        codec.encode(np.ones(5, dtype=np.float32), 2, 0)
    with pytest.raises(ValueError, match=r"total has shape \(5,\)"):
        codec.accumulate(codec.encode(np.ones(6, dtype=np.float32), 2, 0), 2, 1.0, np.zeros(5))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_parameters": 0, "layer_sizes": []}, "1 to 2"),
        ({"num_parameters": 2**32, "layer_sizes": [2**32]}, "1 to 2"),
        ({"num_parameters": 5, "layer_sizes": [5], "block": 0}, "block = 0"),
        ({"num_parameters": 5, "layer_sizes": [5], "block": "row"}, "block = 'row'"),
        ({"num_parameters": 5, "layer_sizes": [2, 2], "block": "layer"}, "add up to 5"),
        ({"num_parameters": 5, "layer_sizes": [5, 0], "block": "layer"}, "add up to 5"),
        ({"num_parameters": 5, "layer_sizes": [5], "colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_invalid_codec_options_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_codec("block", **arguments)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nonsense", "is not one of model"),
        ("no.such.module:Thing", "cannot be loaded"),
        ("json:NoSuchClass", "cannot be loaded"),
        ("json:JSONDecoder", "has no forecast, no encode, no size_bits, no accumulate"),
        ("tests.helpers.broken_module:X", "ZeroDivisionError"),
    ],
)
def test_names_that_are_no_codec_are_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_codec(name, 5, [5])


def test_blocks_by_number_and_by_layer() -> None:
    assert build_codec("block", 300, [100, 200]).overhead_bits == 300 + 32 * 3
    assert build_codec("block", 300, [100, 200], block=100).overhead_bits == 300 + 32 * 3
    layers = build_codec("block", 300, [100, 200], block="layer")
    assert layers.overhead_bits == 300 + 32 * 2
    vector = np.concatenate([np.full(100, 0.25), np.full(200, 4.0)]).astype(np.float32)
    assert layers.forecast(vector).error_scale == 0.25 * (100 * 0.25**2 + 200 * 4.0**2)
    np.testing.assert_array_equal(layers.decode(layers.encode(vector, 1, 3), 1), vector)


@pytest.mark.parametrize("num_bits", range(1, 17))
def test_padding_begins_right_after_the_last_bit(num_bits: int) -> None:
    """One bit at a time: used bits may be set, and each of the others is refused."""
    size = (num_bits + 7) // 8
    for bit in range(8 * size):
        body = np.zeros(size, dtype=np.uint8)
        body[bit // 8] = 1 << (bit % 8)
        if bit < num_bits:
            wire.check_padding(body, num_bits)
        else:
            with pytest.raises(errors.PaddingError):
                wire.check_padding(body, num_bits)
