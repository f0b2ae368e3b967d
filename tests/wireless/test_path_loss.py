"""Path-loss models: an independent implementation of TR 38.901, and the interface that every model has."""

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.settings.loading import load_scenario
from qccf.wireless.cell import place_clients
from qccf.wireless.path_loss.protocol import PathLoss
from qccf.wireless.path_loss.registry import PATH_LOSSES
from tests.helpers import tr38901


def model(name: str, carrier_hz=2.4e9, base_height_m=10.0, client_height_m=1.5) -> PathLoss:
    return PATH_LOSSES.build(name, carrier_hz=carrier_hz, base_height_m=base_height_m, client_height_m=client_height_m)


@pytest.mark.parametrize("name", list(PATH_LOSSES))
def test_every_model_gives_one_valid_value_per_client(name: str) -> None:
    distances_m = np.geomspace(10.0, 5000.0, 50)
    for sight in (np.ones(50, dtype=bool), np.zeros(50, dtype=bool)):
        loss_db = model(name).loss_db(distances_m, sight)
        assert loss_db.shape == (50,)
        assert (np.diff(loss_db) > 0.0).all(), "the loss grows with the distance"
        shadowing_std_db = model(name).shadowing_std_db(sight)
        assert shadowing_std_db.shape == (50,)
        assert (shadowing_std_db >= 0.0).all()
    probability = model(name).line_of_sight_probability(distances_m)
    assert probability.shape == (50,)
    assert ((probability >= 0.0) & (probability <= 1.0)).all()


@pytest.mark.parametrize("name", ["umi", "uma", "inh", "inh-open"])
@pytest.mark.parametrize("in_sight", [True, False])
def test_loss_equals_an_independent_implementation(name: str, in_sight: bool) -> None:
    rng = np.random.default_rng(31)
    n = 3000
    distance, carrier = 10 ** rng.uniform(1, 3.69, n), 10 ** rng.uniform(8.7, 11, n)
    base, client = rng.uniform(3, 60, n), rng.uniform(1.5, 22.5, n)
    ours = model(name, carrier, base, client).loss_db(distance, np.full(n, in_sight))
    theirs = [tr38901.path_loss_db(name, in_sight, *row) for row in zip(distance, carrier, base, client, strict=True)]
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("row", tr38901.BY_HAND)
def test_loss_by_hand(row: tuple) -> None:
    name, in_sight, distance, carrier, base, client, expected = row
    loss_db = model(name, carrier, base, client).loss_db(np.array([distance]), np.array([in_sight]))
    assert loss_db.item() == pytest.approx(expected, abs=5.1e-5)


LIGHT_SPEED_DB = 0.006
"""Sionna computes the break point with 299,792,458 m/s, the standard with 3.0e8 m/s: 9.5·log10(ratio²) = 0.0057 dB."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "distances", "heights"),
    [
        ("umi", (10, 4999), (10.0, 1.5)),
        ("uma", (35, 4999), (25.0, 1.5)),
        ("inh", (1, 149), (3.0, 1.0)),
        ("inh-open", (1, 149), (3.0, 1.0)),
    ],
)
def test_all_equal_sionna(name: str, distances: tuple[int, int], heights: tuple[float, float]) -> None:
    pytest.importorskip("sionna")
    from tests.helpers.sionna_paths import links

    distances_m = np.geomspace(*distances, 60)
    for carrier_hz in (2.4e9, 28e9):
        ours = model(name, carrier_hz, *heights)
        for in_sight in (True, False):
            loss_db, chance = links(name, in_sight, distances_m, carrier_hz, *heights)
            np.testing.assert_allclose(
                ours.loss_db(distances_m, np.full(60, in_sight)), loss_db, rtol=0, atol=LIGHT_SPEED_DB
            )
            np.testing.assert_allclose(ours.line_of_sight_probability(distances_m), chance, atol=1e-12)


def test_the_settings_keep_to_the_distances_of_a_model() -> None:
    office = ["cell.path_loss=inh", "cell.radius_m=60", "cell.distance_min_m=1", "cell.base_height_m=3"]
    assert load_scenario("femnist", office).cell.distance_min_m == 1.0
    with pytest.raises(ConfigError, match=r"radius_m = 500 is out of range for path_loss = 'inh'.*at most 150"):
        load_scenario("femnist", ["cell.path_loss=inh"])
    with pytest.raises(ConfigError, match="distance_min_m = 1 is out of range for path_loss = 'umi'"):
        load_scenario("femnist", ["cell.distance_min_m=1"])


def test_clients_with_and_without_sight_mix() -> None:
    loss_db = model("umi").loss_db(np.array([200.0, 200.0]), np.array([True, False]))
    assert loss_db[1] > loss_db[0]


@pytest.mark.parametrize("name", ["umi", "uma", "inh", "inh-open"])
def test_line_of_sight_probability(name: str) -> None:
    distances = np.concatenate([np.linspace(1, 18, 5), np.linspace(18.01, 600, 400)])
    for height in (1.5, 13.0, 20.0):
        ours = model(name, client_height_m=height).line_of_sight_probability(distances)
        theirs = [min(1.0, tr38901.line_of_sight_probability(name, d, height)) for d in distances]
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_shadowing_is_that_of_the_standard() -> None:
    for (name, in_sight), std_db in tr38901.SHADOWING_STD_DB.items():
        assert model(name).shadowing_std_db(np.array([in_sight])).item() == std_db


def test_log_distance_by_hand() -> None:
    log_distance = model("log-distance")
    assert log_distance.loss_db(np.array([500.0]), np.array([True])).item() == pytest.approx(116.7813, abs=1e-4)
    assert log_distance.line_of_sight_probability(np.array([500.0])).item() == 1.0
    assert log_distance.shadowing_std_db(np.array([True])).item() == 8.0


class FreeSpace:
    """A user's own model."""

    def __init__(self, *, carrier_hz: float, base_height_m: float, client_height_m: float) -> None:
        self.carrier_hz = carrier_hz

    def loss_db(self, distances_m: np.ndarray, line_of_sight: np.ndarray) -> np.ndarray:
        return 20.0 * np.log10(4.0 * np.pi * distances_m * self.carrier_hz / 3e8)

    def line_of_sight_probability(self, distances_m: np.ndarray) -> np.ndarray:
        return np.ones(len(distances_m))

    def shadowing_std_db(self, line_of_sight: np.ndarray) -> np.ndarray:
        return np.zeros(len(line_of_sight))


def test_a_users_own_model_is_used_in_the_cell() -> None:
    radio = load_scenario("femnist", [f"cell.path_loss={__name__}:FreeSpace"]).radio_link()
    cell = place_clients(radio, num_clients=5, radius_m=500.0, distance_min_m=10.0, seed=1)
    wavelength_m = 3e8 / radio.carrier_hz
    assert cell.mean_gains == pytest.approx((wavelength_m / (4.0 * np.pi * cell.distances_m)) ** 2)


def test_unknown_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="path loss 'urban' is not one of umi, uma, inh, inh-open, log-distance"):
        model("urban")
    with pytest.raises(ConfigError, match="has no loss_db"):
        model("json:JSONDecoder")
