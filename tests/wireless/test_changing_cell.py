"""What changes from round to round: correlated fading, walking clients, neighbours; and what the server knows of it."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.core.units import linear_to_db
from qccf.rounds.world import build_world
from qccf.settings.loading import load_scenario
from qccf.wireless.cell import Cell
from qccf.wireless.placement import Ring, walked_positions_m


def cell(*settings: str, seed: int = 4) -> Cell:
    return build_world(load_scenario("femnist", settings), seed).cell


def gains(one: Cell, rates_bps: np.ndarray) -> np.ndarray:
    """Gains that have these rates, by Shannon's formula."""
    radio = one.radio
    noise_w = radio.bandwidth_hz * radio.noise_w_per_hz
    return np.expm1(rates_bps / radio.bandwidth_hz * np.log(2.0)) * noise_w / radio.transmit_power_w


def test_correlated_fading_moves_slowly_and_is_resumable() -> None:
    slow, plain = cell("radio.fading_correlation=0.99"), cell()
    np.testing.assert_array_equal(slow.round_rates_bps(0), plain.round_rates_bps(0))

    def step_db(one: Cell) -> float:
        rates = [one.round_rates_bps(n) for n in (30, 31)]
        return float(np.abs(linear_to_db(gains(one, rates[1]) / gains(one, rates[0]))).mean())

    assert step_db(slow) < 0.3 * step_db(plain)
    fresh = cell("radio.fading_correlation=0.99")
    np.testing.assert_array_equal(fresh.round_rates_bps(31), slow.round_rates_bps(31))


def test_walking_by_hand() -> None:
    """Each client goes straight to its waypoints: the way between two rounds is a step, or less at a corner."""
    ring = Ring(radius_m=500.0, distance_min_m=10.0)
    start_m = np.array([[100.0, 0.0], [0.0, -400.0]])
    way = np.array([walked_positions_m(start_m, 25.0 * n, ring, seed=7) for n in range(200)])
    np.testing.assert_array_equal(way[0], start_m)
    steps_m = np.hypot(*np.moveaxis(np.diff(way, axis=0), 2, 0))
    assert steps_m.max() <= 25.0 + 1e-9
    assert (steps_m > 25.0 - 1e-9).mean() > 0.9, "most steps are straight"
    assert np.hypot(way[..., 0], way[..., 1]).max() <= 500.0
    assert np.ptp(way[:, 0, 0]) > 400.0, "it sees much of the cell"


def test_walking_changes_the_path_loss_and_the_shadowing() -> None:
    still, walking = cell(), cell("cell.walk_step_m=30")
    np.testing.assert_array_equal(walking.round_rates_bps(0), still.round_rates_bps(0))
    here_m = walked_positions_m(walking.positions_m, 30.0 * 12, walking.ring, walking.seed)
    loss_db = walking.radio.path_loss_model().loss_db(np.maximum(np.hypot(*here_m.T), 10.0), np.ones(10, dtype=bool))
    np.testing.assert_allclose(walking._round_mean_gains(12), 10 ** (-loss_db / 10))
    shadowed = cell("cell.walk_step_m=30", "cell.shadowing=true", "cell.decorrelation_m=30")
    shadows_db = linear_to_db(shadowed._round_mean_gains(1)) + walking.radio.path_loss_model().loss_db(
        np.maximum(np.hypot(*walked_positions_m(walking.positions_m, 30.0, walking.ring, walking.seed).T), 10.0),
        np.ones(10, dtype=bool),
    )
    from qccf.core.streams import stream

    fresh = stream(4, "shadowing", 1).standard_normal(10)
    kept = np.exp(-1.0)  # one decorrelation distance
    expected_db = -4.0 * (kept * shadowed.shadow_draws + np.sqrt(1 - kept**2) * fresh)
    np.testing.assert_allclose(shadows_db, expected_db, atol=1e-9)


def test_interference_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six clients at their base stations 1 km away, 128.1 dB each: 6 · 0.2 W · 10^-12.81 on every channel."""
    layout = ["cell.neighbours=6", "cell.neighbour_distance_m=1000", "cell.path_loss=log-distance", "radio.gain_db=20"]
    one = cell(*layout)
    monkeypatch.setattr(Ring, "draw", lambda _, __, shape: (np.zeros(shape), np.zeros(shape)))
    received_w = one._interference_w(3)
    np.testing.assert_allclose(received_w, np.full(10, 6 * 0.2 * 10**-12.81 * 100.0))
    noise_w = one.radio.bandwidth_hz * one.radio.noise_w_per_hz
    expected = 1e7 * np.log2(1.0 + 0.2 * one._gains(3) / (noise_w + received_w))
    np.testing.assert_allclose(one.round_rates_bps(3), expected)


def test_interference_follows_load_and_round() -> None:
    full, half, none = (cell("cell.neighbours=6", f"cell.neighbour_load={load}") for load in (1.0, 0.5, 0.0))
    np.testing.assert_array_equal(none.round_rates_bps(2), cell().round_rates_bps(2))
    assert (full.round_rates_bps(2) < none.round_rates_bps(2)).all()
    powers = np.array([[one._interference_w(n) for n in range(200)] for one in (full, half)])
    assert powers[1].sum() == pytest.approx(0.5 * powers[0].sum(), rel=0.2)
    assert (powers[0][0] != powers[0][1]).any()
    np.testing.assert_array_equal(full._interference_w(7), cell("cell.neighbours=6")._interference_w(7))


def test_a_margin_raises_the_noise() -> None:
    radio = load_scenario("femnist", ["radio.interference_margin_db=6"]).radio_link()
    plain = load_scenario("femnist").radio_link()
    assert radio.noise_w_per_hz == pytest.approx(plain.noise_w_per_hz * 10**0.6)


def test_an_estimate_without_error_is_the_channel_of_some_rounds_ago() -> None:
    stale = cell("radio.estimate_age=3", "radio.fading_correlation=0.9", "cell.walk_step_m=10", "cell.neighbours=2")
    for n, known in ((0, 0), (2, 0), (3, 0), (9, 6)):
        np.testing.assert_array_equal(stale.estimated_rates_bps(n), stale.round_rates_bps(known))
    plain = cell()
    np.testing.assert_array_equal(plain.estimated_rates_bps(5), plain.round_rates_bps(5))


def test_error_and_back_off_are_decibels_of_the_gain() -> None:
    one = cell("radio.backoff_db=3")
    ratio_db = linear_to_db(gains(one, one.estimated_rates_bps(2)) / gains(one, one.round_rates_bps(2)))
    np.testing.assert_allclose(ratio_db, -3.0, atol=1e-6)
    wrong = cell("radio.estimate_error_db=2", "radio.backoff_db=1")
    errors_db = np.array(
        [
            linear_to_db(gains(wrong, wrong.estimated_rates_bps(n)) / gains(wrong, wrong.round_rates_bps(n)))
            for n in range(50)
        ]
    )
    count = errors_db.size
    assert errors_db.mean() == pytest.approx(-1.0, abs=5 * 2.0 / np.sqrt(count))
    assert errors_db.std() == pytest.approx(2.0, rel=5 / np.sqrt(2 * count))
    np.testing.assert_array_equal(
        wrong.estimated_rates_bps(4), cell(*["radio.estimate_error_db=2", "radio.backoff_db=1"]).estimated_rates_bps(4)
    )


def test_estimates_of_a_trace_of_rates(tmp_path) -> None:
    rates_bps = 1e8 + 1e6 * np.arange(5 * 10, dtype=float).reshape(5, 10, 1)
    np.savez(tmp_path / "t.npz", rates_bps=rates_bps)
    one = cell(f"radio.trace={tmp_path / 't.npz'}", "radio.estimate_age=1", "radio.backoff_db=3")
    np.testing.assert_allclose(one.estimated_rates_bps(2), np.repeat(rates_bps[1], 10, axis=1) * 10**-0.3)


def test_walking_clients_are_judged_where_they_may_come() -> None:
    walking = cell("cell.walk_step_m=5", seed=1)
    assert (walking.best_rates_bps(1.0) >= replace(walking, walk=None).best_rates_bps(1.0)).all()
    assert np.ptp(walking.best_rates_bps(1.0)) == 0.0, "all may come as near"
