"""Path loss against an independent implementation, fading against its moments, placement against geometry."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest, ncx2

from qccf.core.units import db_to_linear, dbm_to_w, linear_to_db
from qccf.settings.loading import load_scenario
from qccf.wireless import (
    line_of_sight_probability,
    path_loss_db,
    place_clients,
    rates_bps,
    rician_power_gains,
    shadowing_std_db,
)
from qccf.wireless.fading import rician_power_quantile
from tests.helpers import tr38901


@pytest.mark.parametrize("scenario", ["umi", "uma"])
@pytest.mark.parametrize("in_sight", [True, False])
def test_path_loss_agrees_with_an_independent_implementation(scenario: str, in_sight: bool) -> None:
    rng = np.random.default_rng(31)
    n = 3000
    distance, carrier = 10 ** rng.uniform(1, 3.69, n), 10 ** rng.uniform(8.7, 11, n)
    base, client = rng.uniform(3, 60, n), rng.uniform(1.5, 22.5, n)
    ours = path_loss_db(
        scenario,
        line_of_sight=in_sight,
        distance_2d_m=distance,
        carrier_hz=carrier,
        base_height_m=base,
        client_height_m=client,
    )
    theirs = [
        tr38901.path_loss_db(scenario, in_sight, *row) for row in zip(distance, carrier, base, client, strict=True)
    ]
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("row", tr38901.BY_HAND)
def test_path_loss_by_hand(row: tuple) -> None:
    scenario, in_sight, distance, carrier, base, client, expected = row
    loss = path_loss_db(
        scenario,
        line_of_sight=in_sight,
        distance_2d_m=distance,
        carrier_hz=carrier,
        base_height_m=base,
        client_height_m=client,
    )
    assert float(loss) == pytest.approx(expected, abs=5.1e-5)


def test_path_loss_broadcasts_and_mixes_sight() -> None:
    loss = path_loss_db(
        "umi",
        line_of_sight=np.array([True, False]),
        distance_2d_m=np.array([[50.0], [200.0]]),
        carrier_hz=2.4e9,
        base_height_m=10.0,
        client_height_m=1.5,
    )
    assert loss.shape == (2, 2)
    assert (loss[:, 1] > loss[:, 0]).all()


def test_log_distance_and_unknown_scenario() -> None:
    arguments = {"line_of_sight": True, "carrier_hz": 2e9, "base_height_m": 10, "client_height_m": 1.5}
    assert float(path_loss_db("log-distance", distance_2d_m=500.0, **arguments)) == pytest.approx(116.7813, abs=1e-4)
    with pytest.raises(ValueError, match="'urban'"):
        path_loss_db("urban", distance_2d_m=500.0, **arguments)


@pytest.mark.parametrize("scenario", ["umi", "uma"])
def test_line_of_sight_probability(scenario: str) -> None:
    distances = np.concatenate([np.linspace(1, 18, 5), np.linspace(18.01, 600, 400)])
    for height in (1.5, 13.0, 20.0):
        ours = line_of_sight_probability(scenario, distance_2d_m=distances, client_height_m=height)
        theirs = [min(1.0, tr38901.line_of_sight_probability(scenario, d, height)) for d in distances]
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert (line_of_sight_probability("log-distance", distance_2d_m=distances, client_height_m=1.5) == 1.0).all()


def test_shadowing_is_the_tables() -> None:
    for (scenario, in_sight), std_db in tr38901.SHADOWING_STD_DB.items():
        assert float(shadowing_std_db(scenario, line_of_sight=in_sight)) == std_db


@pytest.mark.parametrize(("k", "zeta"), [(4.0, 1.0), (0.0, 2.0), (10.0, 0.5)])
def test_rician_power_has_the_stated_moments_and_law(k: float, zeta: float) -> None:
    n = 400_000
    gains = rician_power_gains((n,), rician_k=k, mean_power=zeta, rng=np.random.default_rng(32))
    variance = zeta**2 * (2 * k + 1) / (k + 1) ** 2
    fourth = ncx2(2, 2 * k).stats(moments="k") + 3.0
    assert gains.mean() == pytest.approx(zeta, abs=5 * np.sqrt(variance / n))
    assert gains.var() == pytest.approx(variance, abs=5 * variance * np.sqrt((fourth - 1) / n))
    law = ncx2(2, 2 * k, scale=zeta / (2 * (k + 1)))
    assert kstest(gains[:20_000], law.cdf).pvalue > 1e-6
    assert rician_power_quantile(0.9, rician_k=k, mean_power=zeta) == pytest.approx(law.ppf(0.9))


def test_rate_by_hand() -> None:
    """1 W over a gain of 1e-9 in 1 MHz of 1e-18 W/Hz is an SNR of 1000: log2(1001) b/s/Hz."""
    rate = rates_bps(1e-9, transmit_power_w=1.0, bandwidth_hz=1e6, noise_w_per_hz=1e-18)
    assert float(rate) == pytest.approx(1e6 * np.log2(1001.0))


def test_decibels() -> None:
    assert float(db_to_linear(30.0)) == pytest.approx(1000.0)
    assert float(linear_to_db(1000.0)) == pytest.approx(30.0)
    assert float(dbm_to_w(-174.0)) == pytest.approx(3.981071706e-21)


def test_placement_is_uniform_in_the_ring() -> None:
    radio = load_scenario("femnist").radio_link()
    cell = place_clients(radio, num_clients=20_000, radius_m=500.0, distance_min_m=100.0, seed=1)
    squared = (cell.distances_m**2 - 100.0**2) / (500.0**2 - 100.0**2)
    assert kstest(squared, "uniform").pvalue > 1e-6
    angles = np.arctan2(cell.positions_m[:, 1], cell.positions_m[:, 0])
    assert kstest((angles + np.pi) / (2 * np.pi), "uniform").pvalue > 1e-6


def test_sight_and_shadowing_settings_reach_the_cell() -> None:
    radio = load_scenario("femnist").radio_link()

    def cell(**changes):
        return place_clients(replace(radio, **changes), num_clients=4000, radius_m=500.0, distance_min_m=10.0, seed=2)

    plain, blocked, drawn = cell(), cell(line_of_sight="never"), cell(line_of_sight="random")
    assert plain.in_sight.all()
    assert not blocked.in_sight.any()
    chance = line_of_sight_probability("umi", distance_2d_m=drawn.distances_m, client_height_m=1.5)
    assert drawn.in_sight.mean() == pytest.approx(chance.mean(), abs=5 * 0.5 / np.sqrt(4000))
    assert (blocked.mean_gains < plain.mean_gains).all()
    shadows_db = linear_to_db(cell(shadowing=True).mean_gains / plain.mean_gains)
    assert shadows_db.std() == pytest.approx(4.0, rel=5 / np.sqrt(2 * 4000))
    assert cell(gain_db=10.0).mean_gains == pytest.approx(plain.mean_gains * 10.0)


def test_positions_stay_and_fading_changes_with_the_round_only() -> None:
    radio = load_scenario("femnist").radio_link()
    first = place_clients(radio, num_clients=5, radius_m=500.0, distance_min_m=10.0, seed=3)
    again = place_clients(radio, num_clients=5, radius_m=500.0, distance_min_m=10.0, seed=3)
    np.testing.assert_array_equal(first.positions_m, again.positions_m)
    np.testing.assert_array_equal(first.round_rates_bps(7), again.round_rates_bps(7))
    assert first.round_rates_bps(7).shape == (5, 10)
    assert not np.array_equal(first.round_rates_bps(7), first.round_rates_bps(8))
