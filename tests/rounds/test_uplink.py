"""What goes up and what becomes of it: by hand, with every kind of codec."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.core.contracts import MAX_NUM_BITS, Decision, Statistics
from qccf.learning.results import LocalResult, LocalStatistics
from qccf.quantization.protocol import Forecast
from qccf.quantization.registry import build_codec
from qccf.rounds import uplink
from qccf.rounds.claims import Evidence

REPORT = LocalStatistics(gradient_norm_sq=1.0, gradient_variance=2.0, weight_range=3.0, loss=4.0)
PREVIOUS = np.array([9.0, -9.0], dtype=np.float32)


def decision(raw: bool = False) -> Decision:
    return Decision(np.array([0, -1, 1]), np.array([24, 0, 24]), np.array([1e9, 0.0, 1e9]), raw=raw)


def both_uploads(name: str, raw: bool = False):
    codec = build_codec(name, 2, [2])
    results = {0: [13.0, -9.0], 2: [9.0, -5.0]} if codec.relative else {0: [1.0, 0.0], 2: [0.0, 2.0]}
    uploads = {
        client: uplink.encode(
            codec,
            LocalResult(np.array(weights, dtype=np.float32), REPORT),
            PREVIOUS,
            uplink.instructed_bits(decision(raw), client),
            client=client,
            round_index=0,
            seed=0,
        )
        for client, weights in results.items()
    }
    return codec, uploads


def test_sizes_are_those_of_the_payloads() -> None:
    _, uploads = both_uploads("model")
    sizes = uplink.sizes_bits(uploads, 3)
    assert sizes[[0, 2]].tolist() == [2 * 24 + 2 + 32] * 2
    assert np.isnan(sizes[1])
    assert len(uploads[0].payload) == 16 + 11


def test_what_is_heard_replaces_what_was_known_and_sizes_never_fall() -> None:
    entropy = build_codec("update+entropy", 2, [2])
    known = uplink.blank_statistics(np.array([10.0, 20.0]), entropy)
    assert isinstance(known, Statistics)
    bits = np.linspace(100.0, 131.0, MAX_NUM_BITS)
    bits[1] = 90.0
    after = uplink.updated_statistics(known, {1: (REPORT, Forecast(7.0, bits))}, safety_margin=0.1)
    assert after.gradient_norms_sq.tolist() == [0.0, 1.0]
    assert after.gradient_variances.tolist() == [0.0, 2.0]
    assert after.weight_ranges.tolist() == [0.0, 3.0]
    assert after.error_scales.tolist() == [0.0, 7.0]
    np.testing.assert_allclose(after.upload_bits[1, :3], [110.0, 110.0, 112.2])
    assert (after.upload_bits[0] == 0).all()
    assert (known.error_scales == 0).all(), "what was known before stays as it was"
    alone = uplink.updated_statistics(known, {1: (None, Forecast(7.0, bits))}, safety_margin=0.1)
    assert alone.gradient_norms_sq.tolist() == [0.0, 0.0], "a forecast may come alone"
    assert alone.error_scales.tolist() == [0.0, 7.0]
    again = uplink.updated_statistics(after, {1: (REPORT, None)}, safety_margin=0.1)
    assert again.error_scales.tolist() == [0.0, 7.0], "a raw upload forecasts nothing"


def test_what_the_server_keeps_no_account_of_stays_unknown() -> None:
    known = Statistics(np.array([10.0]), np.zeros(1), np.zeros(1), np.zeros(1))
    table = np.ones(MAX_NUM_BITS)
    after = uplink.updated_statistics(known, {0: (REPORT, Forecast(7.0, table, table))}, safety_margin=0.1)
    assert (after.error_scales, after.upload_bits, after.upload_errors) == (None, None, None)
    assert after.weight_ranges.tolist() == [3.0]


def test_an_upload_shows_its_size_and_the_rest_only_with_the_model_it_started_from() -> None:
    codec, uploads = both_uploads("update")
    size = uploads[0].size_bits
    for one, received in ((uploads[0], None), (replace(uploads[0], payload=None), PREVIOUS)):
        assert uplink.examined(codec, one, 24, received, 2) == Evidence(num_bits=24, size_bits=size)
    found = uplink.examined(codec, uploads[0], 24, PREVIOUS, 1)
    assert found.weight_range == pytest.approx(13.0), "of the model (13, -9), without the buffer"
    assert uplink.examined(codec, replace(uploads[2], size_bits=np.nan), 24, PREVIOUS, 2).size_bits is None


def test_every_part_of_a_codec_is_warmed_up() -> None:
    used = []

    class Recorder:
        def __getattr__(self, name):
            return lambda *_: used.append(name)

    uplink.warm_up(Recorder(), 3)
    assert used == ["forecast", "encode", "accumulate"]


@pytest.mark.parametrize("name", ["model", "update+entropy"])
def test_forecast_errors_never_rise_and_are_the_bound_where_the_codec_knows_none(name: str) -> None:
    known = uplink.blank_statistics(np.array([10.0, 20.0]), build_codec(name, 2, [2]))
    assert known.upload_errors.shape == (2, MAX_NUM_BITS)
    assert not known.upload_errors.any()
    errors = np.linspace(32.0, 1.0, MAX_NUM_BITS)
    errors[2] = 31.5
    after = uplink.updated_statistics(known, {1: (None, Forecast(70.0, None, errors))}, safety_margin=0.1)
    assert after.upload_errors[1, :4].tolist() == [32.0, 31.0, 31.0, 29.0], "and no margin is added"
    assert not after.upload_errors[0].any()
    assert not known.upload_errors.any(), "what was known before stays as it was"
    kept = uplink.updated_statistics(after, {1: (REPORT, None)}, safety_margin=0.1)
    np.testing.assert_array_equal(kept.upload_errors, after.upload_errors)
    bound = uplink.updated_statistics(after, {1: (None, Forecast(9.0, None))}, safety_margin=0.1)
    np.testing.assert_allclose(bound.upload_errors[1, :3], [9.0, 1.0, 9.0 / 49.0])
    unknown = replace(known, upload_errors=None)
    assert uplink.updated_statistics(unknown, {1: (None, Forecast(9.0, None))}, safety_margin=0.1).upload_errors is None


def test_an_upload_carries_the_errors_of_its_vector() -> None:
    """The update (4, 1) with one bit: 1 is a quarter of the way to the knob at 4, and 16·(1/4)(3/4) = 3."""
    codec = build_codec("update", 2, [2])
    result = LocalResult(PREVIOUS + np.array([4.0, 1.0], dtype=np.float32), REPORT)
    upload = uplink.encode(codec, result, PREVIOUS, 1, client=0, round_index=0, seed=0)
    assert upload.forecast.errors[0] == pytest.approx(3.0)
