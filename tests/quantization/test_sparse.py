"""The sparse codec: how many values it sends, its size, and its error by hand. Conformance tests do the rest."""

import numpy as np
import pytest

from qccf.quantization.protocol import Codec, Vector
from qccf.quantization.registry import build_codec
from qccf.quantization.sparse import SparseCodec
from support.vectors import layered_vector

LAYERS = [800, 32, 51_200, 64, 194_432, 62]
COUNT = sum(LAYERS)


@pytest.fixture(scope="module")
def vector() -> Vector:
    return layered_vector(LAYERS)


@pytest.fixture(scope="module")
def codec() -> Codec:
    return build_codec("sparse", COUNT, LAYERS)


def test_with_one_bit_a_value_is_zero_or_the_norm(codec: Codec, vector: Vector) -> None:
    norm = np.float32(np.sqrt(np.square(vector.astype(np.float64)).sum()))
    back = codec.decode(codec.encode(vector, 1, 5), 1)
    assert set(np.unique(np.abs(back)).tolist()) == {0.0, float(norm)}
    sent = back != 0.0
    assert (np.sign(back[sent]) == np.sign(vector[sent])).all()


@pytest.mark.parametrize("num_bits", [1, 2, 3])
def test_as_many_values_are_sent_as_the_norms_say(codec: Codec, vector: Vector, num_bits: int) -> None:
    """(2^q - 1)·‖v‖₁/‖v‖₂ of them while no value exceeds a step, whatever the key: at most one more or less."""
    exact = vector.astype(np.float64)
    expected = (2.0**num_bits - 1.0) * np.abs(exact).sum() / np.sqrt(np.square(exact).sum())
    for key in range(8):
        assert abs(np.count_nonzero(codec.decode(codec.encode(vector, num_bits, key), num_bits)) - expected) <= 1.0


def test_the_sparsest_upload_takes_less_than_0_03_bits_per_parameter(codec: Codec, vector: Vector) -> None:
    gaussian = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
    for one in (vector, gaussian):
        assert codec.size_bits(codec.encode(one, 1, 3)) < 0.03 * COUNT


def test_the_forecast_is_the_real_size(codec: Codec, vector: Vector) -> None:
    bits = codec.forecast(vector).bits
    assert bits is not None
    assert (np.diff(bits) > 0).all()
    for num_bits in range(1, 9):
        real = np.array([codec.size_bits(codec.encode(vector, num_bits, key)) for key in range(5)])
        assert np.abs(bits[num_bits - 1] / real - 1.0).max() < 0.01


def test_the_forecast_of_a_single_value_by_hand() -> None:
    """Its index is the top one, 2^q - 1, so its symbol takes no bits: a scale, two counts, a table up to the symbol, a
    word of reserve, a sign, and the low bits of 31 (symbol 23) and 63 (symbol 31)."""
    bits = build_codec("sparse", 1, [1]).forecast(np.array([-0.7], dtype=np.float32)).bits
    assert bits is not None
    tables, low = np.array([2, 4, 8, 16, 24, 32]), np.array([0, 0, 0, 0, 1, 2])
    np.testing.assert_array_equal(bits[:6], 32 + 8 * (6 + tables) + 32 + 1 + low)


def test_the_sparsest_error_by_hand(codec: Codec, vector: Vector) -> None:
    """Σ |v|(norm - |v|) = ‖v‖₁·‖v‖₂ - ‖v‖₂²."""
    exact = vector.astype(np.float64)
    norm = np.sqrt(np.square(exact).sum())
    errors = codec.forecast(vector).errors
    assert errors is not None
    assert errors[0] == pytest.approx(np.abs(exact).sum() * norm - norm**2, rel=1e-6)


def test_each_block_has_its_own_norm() -> None:
    codec = SparseCodec(5, [2, 3], codec_id=99, relative=True, block="layer")
    vector = np.array([3.0, -4.0, 0.0, 12.0, 5.0], dtype=np.float32)
    found = np.abs([codec.decode(codec.encode(vector, 1, key), 1) for key in range(40)])
    assert set(np.unique(found[:, :2]).tolist()) == {0.0, 5.0}
    assert set(np.unique(found[:, 2:]).tolist()) == {0.0, 13.0}


def test_extreme_magnitudes_survive() -> None:
    codec = build_codec("sparse", 4, [4])
    for magnitude in (3e38, 1e-38, 1e-44, 1e-45):
        vector = np.array([magnitude, -magnitude, 0.0, 0.0], dtype=np.float32)
        for num_bits in (1, 16, 32):
            back = codec.decode(codec.encode(vector, num_bits, 1), num_bits)
            assert np.isfinite(back).all()
            if num_bits > 1 and magnitude > 1e-44:
                np.testing.assert_allclose(back, vector, rtol=1e-3)
