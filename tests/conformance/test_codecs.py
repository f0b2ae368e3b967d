"""What every codec owes, whoever wrote it: an entry of the table is tested by being there."""

import numpy as np
import pytest

from qccf.core.contracts import MAX_NUM_BITS
from qccf.core.errors import PayloadError
from qccf.quantization.costs import error_bound_table
from qccf.quantization.protocol import Codec, Forecast, Vector
from qccf.quantization.registry import CODECS, build_codec
from qccf.quantization.uniform import BlockedCodec
from support.vectors import layered_vector
from tests.conformance.entries import entries

LAYERS = [40, 10, 350]
COUNT = sum(LAYERS)
DRAWS = 2000
BITS = [1, 2, 4, 7, 12]


class AsItIs:
    """A user's codec: 32-bit floats whatever q, nothing else. It forecasts no errors, so the bound serves."""

    relative = False
    affine = True
    bits_per_index = 0.0

    def __init__(self, num_parameters: int, layer_sizes: list[int], *, sign: float = 1.0) -> None:
        self.num_parameters = num_parameters
        self.sign = np.float32(sign)
        self.overhead_bits = 32.0 * num_parameters

    def forecast(self, vector: Vector) -> Forecast:
        return Forecast(0.0, None)

    def encode(self, vector: Vector, num_bits: int, key: int) -> bytes:
        return (self.sign * vector).astype("<f4").tobytes()

    def size_bits(self, payload: bytes) -> int:
        return 8 * len(payload)

    def decode(self, payload: bytes, num_bits: int) -> Vector:
        if len(payload) != 4 * self.num_parameters:
            raise PayloadError(f"{len(payload)} bytes are not {self.num_parameters} floats.")
        return self.sign * np.frombuffer(payload, dtype="<f4")

    def accumulate(self, payload: bytes, num_bits: int, weight: float, total: np.ndarray) -> None:
        total += weight * self.decode(payload, num_bits)


class KnownErrors(AsItIs):
    """A user's codec that forecasts its errors."""

    def forecast(self, vector: Vector) -> Forecast:
        return Forecast(0.0, None, np.zeros(MAX_NUM_BITS))


NAMES = entries(CODECS, "tests.conformance.test_codecs:AsItIs", "tests.conformance.test_codecs:KnownErrors")


@pytest.fixture(params=NAMES)
def codec(request: pytest.FixtureRequest) -> Codec:
    return build_codec(request.param, COUNT, LAYERS)


def drawn(codec: Codec, vector: Vector, num_bits: int, draws: int = DRAWS) -> np.ndarray:
    """What arrives, for one key after another."""
    return np.array([codec.decode(codec.encode(vector, num_bits, key), num_bits) for key in range(draws)], dtype=float)


@pytest.mark.parametrize("num_bits", BITS)
def test_unbiased_within_five_standard_errors(codec: Codec, num_bits: int) -> None:
    """Each value, with Bernstein's term for those that are rarely rounded up; and all of them together."""
    vector = layered_vector(LAYERS)
    errors = drawn(codec, vector, num_bits) - vector
    float32 = 1e-6 * np.abs(vector)
    largest = np.abs(errors).max()
    tolerance = 5.0 * errors.std(axis=0) / np.sqrt(DRAWS) + 25.0 / 3.0 * largest / DRAWS
    assert (np.abs(errors.mean(axis=0)) <= tolerance + float32).all()
    shrinkage = errors @ np.sign(vector)
    assert abs(shrinkage.mean()) <= 5.0 * shrinkage.std() / np.sqrt(DRAWS) + float32.sum()


@pytest.mark.parametrize("num_bits", BITS)
def test_squared_error_is_below_the_bound_on_average(codec: Codec, num_bits: int) -> None:
    vector = layered_vector(LAYERS)
    squared = ((drawn(codec, vector, num_bits, 400) - vector) ** 2).sum(axis=1)
    bound = codec.forecast(vector).error_scale / (2.0**num_bits - 1.0) ** 2
    assert squared.mean() <= bound
    assert bound == 0.0 or squared.mean() >= 0.01 * bound, "a bound that says nothing"


def test_forecast_errors_have_one_entry_per_q_and_never_rise(codec: Codec) -> None:
    forecast = codec.forecast(layered_vector(LAYERS))
    if forecast.errors is None:
        assert not isinstance(codec, BlockedCodec), "only a user's codec need not know them"
        return
    assert forecast.errors.shape == (MAX_NUM_BITS,)
    assert np.isfinite(forecast.errors).all()
    assert (forecast.errors >= 0.0).all()
    assert (np.diff(forecast.errors) <= 0.0).all()
    assert (forecast.errors <= (1.0 + 1e-9) * error_bound_table(forecast.error_scale)).all()


@pytest.mark.parametrize("num_bits", [1, 2, 3, 4, 7, 12, 16])
def test_forecast_errors_are_what_many_uploads_have(codec: Codec, num_bits: int) -> None:
    """Within five standard errors. Decoded values are float32, which is far below a step up to about 20 bits."""
    vector = layered_vector(LAYERS)
    forecast = codec.forecast(vector).errors
    if forecast is None:
        return
    squared = ((drawn(codec, vector, num_bits, 600) - vector) ** 2).sum(axis=1)
    tolerance = 5.0 * squared.std() / np.sqrt(len(squared))
    assert abs(squared.mean() - forecast[num_bits - 1]) <= tolerance + 1e-4 * forecast[num_bits - 1]
    assert tolerance <= 0.2 * squared.mean(), "too few draws to tell"


@pytest.mark.parametrize("num_bits", [1, 2, 3, 4, 5, 8, 16, 17, 31, 32])
def test_the_size_is_what_was_said(codec: Codec, num_bits: int) -> None:
    vector = layered_vector(LAYERS)
    payload = codec.encode(vector, num_bits, 7)
    size_bits = codec.size_bits(payload)
    assert size_bits <= 8 * len(payload)
    forecast = codec.forecast(vector)
    if codec.affine:
        assert forecast.bits is None
        assert size_bits == codec.bits_per_index * num_bits + codec.overhead_bits
    else:
        assert forecast.bits is not None
        assert forecast.bits.shape == (MAX_NUM_BITS,)
        sizes = [codec.size_bits(codec.encode(vector, num_bits, key)) for key in range(50)]
        # of 400 values, 6 are not zero at q = 1, and tables weigh as much as what they describe
        assert abs(forecast.bits[num_bits - 1] / np.mean(sizes) - 1.0) < 0.12


def test_a_round_trip_ends_next_to_where_it_began(codec: Codec) -> None:
    vector = layered_vector(LAYERS)
    for num_bits in (8, 16, 24, 32):
        back = codec.decode(codec.encode(vector, num_bits, 11), num_bits)
        assert back.dtype == np.float32
        step = 2.0 * np.sqrt(codec.forecast(vector).error_scale) / (2.0**num_bits - 1.0)
        np.testing.assert_allclose(back, vector, rtol=1e-6, atol=step)


def test_accumulating_is_adding_the_weighted_vector(codec: Codec) -> None:
    vector = layered_vector(LAYERS)
    for num_bits in (1, 3, 16, 20):
        payload = codec.encode(vector, num_bits, 5)
        decoded = codec.decode(payload, num_bits)
        total = np.linspace(-1.0, 1.0, COUNT)
        expected = total + 0.3 * decoded.astype(np.float64)
        codec.accumulate(payload, num_bits, 0.3, total)
        np.testing.assert_allclose(total, expected, rtol=1e-7)


def test_reproducible_by_key_and_different_between_keys(codec: Codec) -> None:
    vector = layered_vector(LAYERS)
    payloads = [codec.encode(vector, 3, key) for key in (1, 1, 2, 2**64 - 1)]
    assert payloads[0] == payloads[1]
    if not isinstance(codec, AsItIs):
        assert len(set(payloads)) == 3


def test_zeros_stay_zeros_and_cost_nothing_in_error(codec: Codec) -> None:
    zeros = np.zeros(COUNT, dtype=np.float32)
    for num_bits in (1, 5, 32):
        assert not codec.decode(codec.encode(zeros, num_bits, 3), num_bits).any()
    forecast = codec.forecast(zeros)
    assert forecast.error_scale == 0.0
    assert forecast.errors is None or not forecast.errors.any()


@pytest.mark.parametrize("name", NAMES)
def test_one_value(name: str) -> None:
    codec = build_codec(name, 1, [1])
    vector = np.array([-0.7], dtype=np.float32)
    draws = drawn(codec, vector, 3, 500)
    assert abs(draws.mean() + 0.7) <= 5.0 * draws.std() / np.sqrt(500) + 1e-6
    np.testing.assert_allclose(codec.decode(codec.encode(vector, 32, 1), 32), vector, rtol=1e-5)


def test_the_input_is_left_alone_and_may_be_readonly(codec: Codec) -> None:
    vector = layered_vector(LAYERS)
    before = vector.copy()
    vector.flags.writeable = False
    payload = codec.encode(vector, 4, 1)
    np.testing.assert_array_equal(vector, before)
    assert codec.encode(np.repeat(before, 2)[::2], 4, 1) == payload


def test_bytes_of_something_else_are_refused(codec: Codec) -> None:
    payload = codec.encode(layered_vector(LAYERS), 4, 1)
    total = np.zeros(COUNT)
    for bad in (b"", payload[:-1], payload + b"\0", payload[::-1] + b"x"):
        with pytest.raises(PayloadError):
            codec.decode(bad, 4)
        with pytest.raises(PayloadError):
            codec.accumulate(bad, 4, 1.0, total)
    assert not total.any()


def test_options_reach_a_users_codec() -> None:
    vector = layered_vector(LAYERS)
    codec = build_codec("tests.conformance.test_codecs:AsItIs", COUNT, LAYERS, sign=-1.0)
    assert codec.encode(vector, 1, 0) == (-vector).tobytes()


def test_relative_is_in_the_name() -> None:
    for name in CODECS:
        codec = build_codec(name, COUNT, LAYERS)
        assert codec.relative == name.startswith(("update", "sparse"))
        assert codec.affine != name.endswith(("entropy", "sparse"))
