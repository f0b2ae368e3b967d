"""Every path-loss model keeps the promises that the cell relies on."""

import numpy as np
import pytest

from qccf.wireless.path_loss.registry import PATH_LOSSES
from tests.conformance.entries import entries

DISTANCES_M = np.geomspace(10.0, 5000.0, 60)
SEEN, HIDDEN = np.ones(60, dtype=bool), np.zeros(60, dtype=bool)


@pytest.fixture(params=entries(PATH_LOSSES))
def model(request: pytest.FixtureRequest):
    return PATH_LOSSES.build(request.param, carrier_hz=2.4e9, base_height_m=10.0, client_height_m=1.5)


def test_loss_is_finite_and_grows_with_distance(model) -> None:
    for sight in (SEEN, HIDDEN):
        loss_db = model.loss_db(DISTANCES_M, sight)
        assert loss_db.shape == DISTANCES_M.shape
        assert np.isfinite(loss_db).all()
        assert (np.diff(loss_db) > 0.0).all()


def test_no_line_of_sight_never_helps(model) -> None:
    assert (model.loss_db(DISTANCES_M, HIDDEN) >= model.loss_db(DISTANCES_M, SEEN)).all()


def test_line_of_sight_has_a_probability(model) -> None:
    chance = model.line_of_sight_probability(DISTANCES_M)
    assert chance.shape == DISTANCES_M.shape
    assert ((chance >= 0.0) & (chance <= 1.0)).all()


def test_shadowing_has_a_standard_deviation(model) -> None:
    for sight in (SEEN, HIDDEN):
        std_db = model.shadowing_std_db(sight)
        assert std_db.shape == sight.shape
        assert ((std_db >= 0.0) & np.isfinite(std_db)).all()
