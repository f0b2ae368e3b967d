"""Any vector decodes to a neighbouring one; any bytes are decoded or refused with a PayloadError."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from qccf.core import errors
from qccf.quantization import wire
from qccf.quantization.registry import CODECS, build_codec
from support.payloads import with_right_checksum

vectors = arrays.arrays(
    np.float32,
    st.integers(1, 300),
    elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_nan=False, allow_infinity=False),
)
names = st.sampled_from(list(CODECS))


@settings(max_examples=150, deadline=None)
@given(vector=vectors, name=names, num_bits=st.integers(1, 32), key=st.integers(0, 2**64 - 1))
def test_every_value_moves_less_than_a_step_and_keeps_its_sign(
    vector: np.ndarray, name: str, num_bits: int, key: int
) -> None:
    layers = [len(vector)]
    codec = build_codec(name, len(vector), layers)
    payload = codec.encode(vector, num_bits, key)
    back = codec.decode(payload, num_bits)
    scale = 2.0 * np.sqrt(codec.forecast(vector).error_scale / len(vector))  # the range or the scale
    if "block" in name and "entropy" not in name:
        scale = float(np.abs(vector).max())
    step = scale / (2.0**num_bits - 1.0)
    assert (np.abs(back.astype(np.float64) - vector) <= step * (1 + 1e-6) + 1e-6 * np.abs(vector)).all()
    assert (back * np.sign(vector) >= 0.0).all()
    assert not back[vector == 0.0].any()
    if codec.affine and len(vector) <= 128:
        peak = np.abs(vector).argmax()
        assert back[peak] == vector[peak], "the largest magnitude gets the top index"
    again = codec.encode(vector, num_bits, key)
    assert again == payload


@settings(max_examples=300, deadline=None)
@given(data=st.data(), name=names, num_bits=st.integers(1, 32))
def test_any_bytes_are_refused_or_decoded(data: st.DataObject, name: str, num_bits: int) -> None:
    codec = build_codec(name, 20, [15, 5])
    body = data.draw(st.binary(max_size=120))
    header = wire.HEADER.pack(wire.MAGIC, wire.VERSION, list(CODECS).index(name), num_bits, 20, 0)
    payload = with_right_checksum(header + body)
    try:
        back = codec.decode(payload, num_bits)
    except errors.PayloadError:
        return
    assert back.shape == (20,)
    assert np.isfinite(back).all()
