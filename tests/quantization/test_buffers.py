"""Buffers behind another codec's payload: exact, checked, and counted in every size."""

import numpy as np
import pytest

from qccf.core.errors import DivergedError, PayloadError, RangeError, ShortPayloadError
from qccf.quantization.buffers import CHECKSUM_BYTES, BufferedCodec, _checksum, with_buffers
from qccf.quantization.registry import CODECS, build_codec

COUNT, TAIL = 400, 7


@pytest.fixture(params=["model", "update+block", "update+entropy"])
def codec(request: pytest.FixtureRequest) -> BufferedCodec:
    return with_buffers(build_codec(request.param, COUNT, [300, 100]), COUNT, TAIL)


def vector(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=COUNT + TAIL).astype(np.float32)


@pytest.mark.parametrize("name", list(CODECS))
def test_without_buffers_the_codec_itself_is_used(name: str) -> None:
    inner = build_codec(name, COUNT, [COUNT])
    assert with_buffers(inner, COUNT, 0) is inner


def test_parameters_are_coded_as_before_and_buffers_arrive_exactly(codec: BufferedCodec) -> None:
    values = vector()
    payload = codec.encode(values, 4, 9)
    inner = codec.codec.encode(values[:COUNT], 4, 9)
    assert payload[: len(inner)] == inner
    assert len(payload) == len(inner) + 4 * TAIL + 4, "the values and a checksum of four bytes"
    decoded = codec.decode(payload, 4)
    np.testing.assert_array_equal(decoded[:COUNT], codec.codec.decode(inner, 4))
    np.testing.assert_array_equal(decoded[COUNT:], values[COUNT:])
    total = np.ones(COUNT + TAIL)
    codec.accumulate(payload, 4, 0.25, total)
    np.testing.assert_allclose(total, 1.0 + 0.25 * decoded.astype(float), rtol=1e-7)


def test_every_size_has_32_bits_per_value_more(codec: BufferedCodec) -> None:
    values, inner = vector(), codec.codec
    payload = codec.encode(values, 3, 1)
    assert codec.size_bits(payload) == inner.size_bits(inner.encode(values[:COUNT], 3, 1)) + 32 * TAIL
    assert codec.overhead_bits == inner.overhead_bits + 32 * TAIL
    assert codec.bits_per_index == inner.bits_per_index
    smallest = inner.size_bits(inner.encode(np.zeros(COUNT, dtype=np.float32), 1, 1)) if not inner.affine else 0.0
    assert codec.least_upload_bits == smallest + 32 * TAIL
    ours, theirs = codec.forecast(values), inner.forecast(values[:COUNT])
    assert ours.error_scale == theirs.error_scale
    np.testing.assert_array_equal(ours.errors, theirs.errors)
    if theirs.bits is None:
        assert ours.bits is None
    else:
        np.testing.assert_array_equal(ours.bits, theirs.bits + 32 * TAIL)


def test_other_bytes_are_refused_and_add_nothing(codec: BufferedCodec) -> None:
    payload = codec.encode(vector(), 4, 1)
    total = np.zeros(COUNT + TAIL)
    flipped = [bytes([*payload[:at], payload[at] ^ 1, *payload[at + 1 :]]) for at in (30, len(payload) - 10)]
    for bad in (b"", payload[:-1], payload + b"\0", payload[:20], *flipped):
        with pytest.raises(PayloadError):
            codec.decode(bad, 4)
        with pytest.raises(PayloadError):
            codec.accumulate(bad, 4, 1.0, total)
    assert not total.any()


def test_buffers_alone_are_no_payload(codec: BufferedCodec) -> None:
    payload = codec.encode(vector(), 4, 1)
    with pytest.raises(ShortPayloadError, match="0 bytes, less than its header of 16"):
        codec.decode(payload[-4 * TAIL - 4 :], 4)
    with pytest.raises(ShortPayloadError, match="31 bytes, less than the 32 of its buffers"):
        codec.decode(payload[-4 * TAIL - 3 :], 4)


def test_only_finite_numbers_are_sent_and_accepted(codec: BufferedCodec) -> None:
    values = vector()
    payload = codec.encode(values, 4, 1)
    values[-1] = np.nan
    with pytest.raises(DivergedError, match=r"learning\.learning_rate"):
        codec.encode(values, 4, 1)
    tail = values[COUNT:].astype("<f4").tobytes()
    forged = payload[: -4 * TAIL - CHECKSUM_BYTES] + tail + _checksum(tail)
    with pytest.raises(RangeError, match="not a finite number"):
        codec.decode(forged, 4)
