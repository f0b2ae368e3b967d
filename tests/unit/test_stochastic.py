"""The quantizer: on the grid, next to its input, right on average, within Lemma 1."""

import numpy as np
import pytest

from qccf.errors import DivergedError
from qccf.quantization import error_bounds
from qccf.quantization.stochastic import quantize


def sample(size: int = 400, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=size) * rng.choice([0.01, 1.0], size)).astype(np.float32)


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 16, 24, 32])
def test_every_value_lands_on_a_neighbouring_knob(bits: int) -> None:
    values = sample()
    quantized = quantize(values, bits, np.random.default_rng(1))
    top = 2.0**bits - 1.0
    exact = np.abs(values.astype(np.float64)) * top / quantized.value_range
    assert quantized.value_range == np.abs(values).max()
    assert (quantized.indexes >= np.floor(exact) - 1e-6).all()
    assert (quantized.indexes <= np.ceil(exact) + 1e-6).all()
    assert quantized.indexes.max() == top
    back = quantized.values()
    grid = np.round(np.abs(back.astype(np.float64)) * top / quantized.value_range)
    np.testing.assert_allclose(np.abs(back), grid * quantized.value_range / top, rtol=1e-6)
    assert ((np.sign(back) == np.sign(values)) | (back == 0)).all()


@pytest.mark.parametrize("bits", [1, 2, 4, 7])
def test_unbiased_within_five_standard_errors_and_below_the_bound(bits: int) -> None:
    values = sample(200)
    rng = np.random.default_rng(2)
    draws = np.array([quantize(values, bits, rng).values() for _ in range(3000)], dtype=np.float64)
    step = np.abs(values).max() / (2.0**bits - 1.0)
    error = draws.mean(axis=0) - values
    assert (np.abs(error) <= 5 * 0.5 * step / np.sqrt(3000) + 1e-6).all()
    mean_squared = ((draws - values) ** 2).sum(axis=1).mean()
    assert mean_squared <= float(error_bounds(bits, np.array([np.abs(values).max()]), len(values))[0])


def test_E9_the_largest_value_is_the_top_knob_and_zero_stays_zero() -> None:
    values = np.array([0.75, -0.75, 0.0, -0.0], dtype=np.float32)
    for bits in (1, 3, 16):
        quantized = quantize(values, bits, np.random.default_rng(3))
        assert quantized.values().tolist() == [0.75, -0.75, 0.0, 0.0]
    zeros = quantize(np.zeros(5, dtype=np.float32), 4, np.random.default_rng(3))
    assert zeros.value_range == 0.0
    assert zeros.values().tolist() == [0.0] * 5
    assert quantize(np.zeros(0, dtype=np.float32), 4, np.random.default_rng(3)).values().shape == (0,)


def test_what_cannot_be_quantized_is_refused() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(DivergedError, match="NaN or infinite"):
            quantize(np.array([1.0, bad], dtype=np.float32), 3, np.random.default_rng(0))
    for bits in (0, 33):
        with pytest.raises(ValueError, match=f"num_bits = {bits}"):
            quantize(np.ones(2, dtype=np.float32), bits, np.random.default_rng(0))


def test_reproducible_by_stream() -> None:
    values = sample()
    first, second = (quantize(values, 3, np.random.default_rng(5)).values() for _ in range(2))
    np.testing.assert_array_equal(first, second)
