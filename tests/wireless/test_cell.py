"""Positions, line of sight, shadowing and rates of a cell."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from qccf.core.units import linear_to_db
from qccf.settings.loading import load_scenario
from qccf.wireless.cell import place_clients


def test_placement_is_uniform_in_the_ring() -> None:
    radio = load_scenario("femnist").radio_link()
    cell = place_clients(radio, num_clients=20_000, radius_m=500.0, distance_min_m=100.0, seed=1)
    squared = (cell.distances_m**2 - 100.0**2) / (500.0**2 - 100.0**2)
    assert kstest(squared, "uniform").pvalue > 1e-6
    angles = np.arctan2(cell.positions_m[:, 1], cell.positions_m[:, 0])
    assert kstest((angles + np.pi) / (2 * np.pi), "uniform").pvalue > 1e-6


def test_settings_of_sight_shadowing_and_path_loss_change_the_gains() -> None:
    radio = load_scenario("femnist").radio_link()

    def cell(**changes):
        return place_clients(replace(radio, **changes), num_clients=4000, radius_m=500.0, distance_min_m=10.0, seed=2)

    plain, blocked, drawn = cell(), cell(line_of_sight="never"), cell(line_of_sight="random")
    assert plain.in_sight.all()
    assert not blocked.in_sight.any()
    chance = radio.path_loss_model().line_of_sight_probability(drawn.distances_m)
    assert drawn.in_sight.mean() == pytest.approx(chance.mean(), abs=5 * 0.5 / np.sqrt(4000))
    assert (blocked.mean_gains < plain.mean_gains).all()
    shadows_db = linear_to_db(cell(shadowing=True).mean_gains / plain.mean_gains)
    assert shadows_db.std() == pytest.approx(4.0, rel=5 / np.sqrt(2 * 4000))
    assert cell(path_loss="log-distance").mean_gains == pytest.approx(
        10 ** -(12.81 + 3.76 * np.log10(plain.distances_m / 1e3))
    )
    assert cell(gain_db=10.0).mean_gains == pytest.approx(plain.mean_gains * 10.0)


def test_positions_are_fixed_and_fading_depends_on_the_round() -> None:
    radio = load_scenario("femnist").radio_link()
    first = place_clients(radio, num_clients=5, radius_m=500.0, distance_min_m=10.0, seed=3)
    again = place_clients(radio, num_clients=5, radius_m=500.0, distance_min_m=10.0, seed=3)
    np.testing.assert_array_equal(first.positions_m, again.positions_m)
    np.testing.assert_array_equal(first.round_rates_bps(7), again.round_rates_bps(7))
    assert first.round_rates_bps(7).shape == (5, 10)
    assert not np.array_equal(first.round_rates_bps(7), first.round_rates_bps(8))


def test_given_positions_replace_only_the_drawn_ones() -> None:
    """Clients that stay where they were drawn keep their gains, also with sight and shadowing drawn at random."""
    radio = replace(load_scenario().radio_link(), line_of_sight="random", shadowing=True)
    ring = {"num_clients": 4, "radius_m": 500.0, "distance_min_m": 10.0, "seed": 3}
    drawn = place_clients(radio, **ring)
    moved = drawn.positions_m.copy()
    moved[2] = [0.0, 20.0]
    placed = place_clients(radio, **ring, positions_m=moved.tolist())
    np.testing.assert_array_equal(placed.positions_m, moved)
    assert placed.distances_m[2] == 20.0
    others = [0, 1, 3]
    np.testing.assert_allclose(placed.mean_gains[others], drawn.mean_gains[others], rtol=1e-12)
    assert placed.mean_gains[2] != drawn.mean_gains[2]
    np.testing.assert_allclose(placed.round_rates_bps(1)[others], drawn.round_rates_bps(1)[others], rtol=1e-12)
