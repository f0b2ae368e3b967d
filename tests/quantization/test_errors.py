"""Forecast errors: compared with brute force, with what is known by hand, and with their limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from qccf.core.contracts import MAX_NUM_BITS
from qccf.quantization.costs import error_bound_table
from qccf.quantization.entropy import EntropyCodec
from qccf.quantization.protocol import Forecast, Vector
from qccf.quantization.registry import CODECS, build_codec
from qccf.quantization.uniform import BlockedCodec, UniformCodec, block_ranges
from support.vectors import layered_vector

LAYERS = [40, 10, 350]
COUNT = sum(LAYERS)
TINY = float(np.finfo(np.float32).smallest_subnormal)

finite = st.floats(-(2.0**60), 2.0**60, width=32, allow_nan=False, allow_infinity=False)
vectors = arrays.arrays(np.float32, st.integers(1, 60), elements=finite)


def errors(codec: BlockedCodec, vector: Vector) -> np.ndarray:
    forecast: Forecast = codec.forecast(vector)
    assert forecast.errors is not None
    assert forecast.errors.shape == (MAX_NUM_BITS,)
    return forecast.errors


def by_brute_force(codec: BlockedCodec, vector: Vector) -> np.ndarray:
    """Σ (v - lower knob)·(upper knob - v): the variance of a value that is rounded to either knob and is unbiased."""
    entropy = isinstance(codec, EntropyCodec)
    scales = codec._scales(vector) if entropy else block_ranges(vector, codec.bounds)
    found = np.zeros(MAX_NUM_BITS)
    for begin, end, scale in zip(codec.bounds[:-1], codec.bounds[1:], scales.astype(np.float64), strict=True):
        for value in np.abs(vector[begin:end].astype(np.float64)) if scale > 0.0 else ():
            for num_bits in range(1, MAX_NUM_BITS + 1):
                step = scale / (2**num_bits - 1)
                lower = np.floor(value / scale * (2**num_bits - 1)) * step
                found[num_bits - 1] += max((value - lower) * (lower + step - value), 0.0)
    return found


@pytest.mark.parametrize("kind", [UniformCodec, EntropyCodec])
@pytest.mark.parametrize("block", [None, "layer", 1, 2, 3, 7, 128, 1000])
def test_brute_force_gives_the_same_errors_with_every_kind_of_block(kind: type, block: int | str | None) -> None:
    vector = layered_vector(LAYERS)
    codec = kind(COUNT, LAYERS, codec_id=99, relative=False, block=block)
    wanted = np.minimum.accumulate(by_brute_force(codec, vector))
    # the fraction of a step has 53 - q bits in float64
    np.testing.assert_allclose(errors(codec, vector)[:16], wanted[:16], rtol=1e-9, atol=1e-24)
    np.testing.assert_allclose(errors(codec, vector)[16:], wanted[16:], rtol=1e-4, atol=1e-24)


@pytest.mark.parametrize("name", CODECS)
def test_with_many_bits_the_error_is_that_of_a_uniform_fraction(name: str) -> None:
    """f(1 - f) has the mean 1/6 and the variance 1/180 if f is uniform. Peaks of blocks and zeros have no error."""
    layers = [2000, 38_000]
    vector = layered_vector(layers)
    codec = build_codec(name, sum(layers), layers)
    found = errors(codec, vector)
    free = np.count_nonzero(vector) / len(vector)
    if name in ("block", "update+block"):
        free -= 1 / 128
    table = 4.0 / 6.0 * free * error_bound_table(codec.forecast(vector).error_scale)
    # blocks have their own ranges, so a few of them weigh more than the others: twice the deviation of equal ones
    tolerance = 2.0 * 5.0 * np.sqrt(1 / 180) * 6.0 / np.sqrt(len(vector))
    np.testing.assert_allclose(found[11:20], table[11:20], rtol=tolerance)


def test_by_hand() -> None:
    """With R = 3: one bit leaves 1 and 2 a third away from a knob, 9·(1/3)(2/3) each; two bits hit every value."""
    codec = UniformCodec(5, [5], codec_id=99, relative=False)
    found = errors(codec, np.array([0.0, 1.0, -2.0, 3.0, -3.0], dtype=np.float32))
    assert found[0] == pytest.approx(4.0, rel=1e-14)
    assert (found[1:] == 0.0).all(), "three bits do not hit 1 and 2, but two bits do and cost less"
    halves = errors(codec, np.array([0.5, 0.0, 0.0, 0.0, 1.0], dtype=np.float32))
    levels = np.exp2(np.arange(1, 33)) - 1.0
    np.testing.assert_allclose(halves, 0.25 / levels**2, rtol=1e-12)  # half a step from each knob, for every q


@pytest.mark.parametrize("name", CODECS)
def test_vectors_without_error(name: str) -> None:
    zeros = np.zeros(COUNT, dtype=np.float32)
    assert (errors(build_codec(name, COUNT, LAYERS), zeros) == 0.0).all()
    codec = build_codec(name, 1, [1])
    alone = errors(codec, np.array([-0.7], dtype=np.float32))
    if codec.affine or name == "sparse":
        assert (alone == 0.0).all(), "a single value is the top knob"
    if codec.affine:
        signs = np.where(layered_vector(LAYERS) < 0.0, np.float32(-0.3), np.float32(0.3))
        assert (errors(build_codec(name, COUNT, LAYERS), signs) == 0.0).all()
    elif name != "sparse":
        scale = np.float64(np.float32(64.0 * np.float64(np.float32(0.7))))
        assert alone[0] == pytest.approx(float(np.float32(0.7)) * (scale - float(np.float32(0.7))), rel=1e-12)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("magnitude", [3e38, 1e-30, 1e-38, 1000 * TINY, TINY])
def test_extreme_magnitudes_scale_the_errors(name: str, magnitude: float) -> None:
    """Also subnormal float32 values, which have few bits of their own: the errors are those of the scaled vector."""
    whole = np.array([0.0, 1.0, -3.0, 5.0, 7.0, -8.0, 2.0, 4.0]) / 8.0 if magnitude > TINY else np.array([1.0, 0, -1.0])
    vector = (magnitude * whole).astype(np.float32)
    codec = build_codec(name, len(vector), [len(vector)])
    found = errors(codec, vector)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:12], np.minimum.accumulate(by_brute_force(codec, vector))[:12], rtol=1e-6)
    if magnitude == TINY and (codec.affine or name == "sparse"):  # a norm of √2·TINY is TINY
        assert (found == 0.0).all()
    else:
        assert found[0] > 0.0


@settings(max_examples=150, deadline=None)
@given(vector=vectors, name=st.sampled_from(list(CODECS)))
def test_errors_are_finite_never_negative_never_rise_and_respect_the_bound(vector: np.ndarray, name: str) -> None:
    codec = build_codec(name, len(vector), [len(vector)])
    forecast = codec.forecast(vector)
    assert forecast.errors is not None
    assert np.isfinite(forecast.errors).all()
    assert (forecast.errors >= 0.0).all()
    assert (np.diff(forecast.errors) <= 0.0).all()
    assert (forecast.errors <= (1.0 + 1e-12) * error_bound_table(forecast.error_scale)).all()


def test_at_few_bits_the_bound_is_far_above_the_error() -> None:
    """The reason for the table: an update's values are small compared with its step."""
    forecast = build_codec("update+entropy", COUNT, LAYERS).forecast(layered_vector(LAYERS))
    assert forecast.errors is not None
    ratios = error_bound_table(forecast.error_scale) / forecast.errors
    assert ratios[0] > 10.0
    assert ratios[15] == pytest.approx(1.5, rel=0.15)
