"""Every rate model keeps the promises that the cell relies on."""

import numpy as np
import pytest

from qccf.wireless.rates.registry import RATE_MODELS
from tests.conformance.entries import entries

RATIOS = np.concatenate([[0.0], np.geomspace(1e-4, 1e8, 500)])


@pytest.fixture(params=entries(RATE_MODELS))
def model(request: pytest.FixtureRequest):
    return RATE_MODELS.build(request.param)


@pytest.mark.parametrize("bandwidth_hz", [180e3, 20e6])
def test_rates_are_finite_and_never_fall_as_the_signal_grows(model, bandwidth_hz: float) -> None:
    rates_bps = np.asarray(model.rates_bps(RATIOS, bandwidth_hz=bandwidth_hz))
    assert rates_bps.shape == RATIOS.shape
    assert np.isfinite(rates_bps).all()
    assert rates_bps[0] == 0.0
    assert (np.diff(rates_bps) >= 0.0).all()
    assert rates_bps[-1] > 0.0


def test_any_shape_is_taken(model) -> None:
    table = RATIOS[1:].reshape(20, 25)
    flat = np.asarray(model.rates_bps(table.ravel(), bandwidth_hz=1e6))
    np.testing.assert_array_equal(np.asarray(model.rates_bps(table, bandwidth_hz=1e6)), flat.reshape(20, 25))
    assert np.shape(model.rates_bps(10.0, bandwidth_hz=1e6)) == ()
