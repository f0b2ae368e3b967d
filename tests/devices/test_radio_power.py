"""What a radio takes: TR 38.840 by hand, decisions that use it, and models that cannot be."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.devices import cost, power
from qccf.devices.radio_power.protocol import with_radio_power
from qccf.devices.radio_power.radiated import Radiated
from qccf.devices.radio_power.registry import RADIO_POWERS, build_radio_power
from qccf.devices.radio_power.ue import UserEquipment
from qccf.settings.loading import load_scenario
from support.problems import CONSTANTS
from tests.devices.test_power import constants, drawn


def sending_w(model, radiated_w: float) -> float:
    return model.constant_w + model.slope * radiated_w


@pytest.mark.parametrize(
    ("dbm", "units"), [(0.0, 250.0), (23.0, 700.0), (20.0, 250.0 + 450.0 * 99.0 / (10**2.3 - 1.0))]
)
def test_sending_by_hand(dbm: float, units: float) -> None:
    """TR 38.840, clause 8.1: 250 units at 0 dBm and 700 at 23 dBm; linear in milliwatts between."""
    assert sending_w(UserEquipment(0.01), 10 ** (dbm / 10.0) * 1e-3) == pytest.approx(0.01 * units)


@pytest.mark.parametrize(("sleep", "units", "unit_ms"), [("deep", 1, 450), ("light", 20, 100), ("micro", 45, 0)])
def test_sleeping_and_waking_by_hand(sleep: str, units: float, unit_ms: float) -> None:
    model = UserEquipment(0.01, sleep)
    assert model.sleep_w == pytest.approx(0.01 * units)
    assert model.wake_energy_j == pytest.approx(0.01 * unit_ms * 1e-3)


def test_an_upload_by_hand() -> None:
    """1 Mbit at 2 Mbit/s with 23 dBm: half a second of 700 units, and one waking from deep sleep, at 5 mW per unit."""
    radiated_w = 10**2.3 * 1e-3
    c = with_radio_power(replace(CONSTANTS, transmit_power_w=radiated_w), UserEquipment(), rests=False)
    sent = cost.transmission(np.array([1e6]), np.array([2e6]), np.array([1e6]), c)
    assert cost.upload_energy_j(sent, c) == pytest.approx(0.5 * 3.5 + 0.45 * 0.005)
    assert c.upload_power_w == pytest.approx(3.5)
    assert c.idle_power_w == 0.0


def test_where_resting_is_charged_a_radio_adds_what_it_takes_above_its_sleep() -> None:
    model = UserEquipment(5e-3, "light")
    rests = with_radio_power(replace(CONSTANTS, idle_power_w=1.0), model, rests=True)
    assert rests.idle_power_w == pytest.approx(1.0 + 0.1)
    assert rests.circuit_power_w == pytest.approx(model.constant_w - 0.1)


def test_the_papers_radio_changes_nothing() -> None:
    c = replace(CONSTANTS, circuit_power_w=0.3, idle_power_w=0.1)
    assert with_radio_power(c, Radiated(), rests=True) == c


@pytest.mark.parametrize("energy_coefficient", [1e-28, 1e-26, 1e-24])
def test_with_adapted_power_no_power_of_a_fine_grid_takes_less(energy_coefficient: float) -> None:
    """In plain words: rate, time left, frequency, and what the phone takes, for each of 4001 powers."""
    c = with_radio_power(constants(energy_coefficient=energy_coefficient), UserEquipment(1e-4), rests=False)
    bits, rates_bps, cycles = drawn(np.random.default_rng(7), 60, c)
    powers_w = np.geomspace(c.transmit_power_min_w, c.transmit_power_w, 4001)
    sent = cost.transmission(bits, rates_bps, cycles, c)
    frequency_hz = cost.slowest_frequency_hz(cycles, sent.upload_s, c)
    found = cost.compute_energy_j(cycles, frequency_hz, c) + cost.upload_energy_j(sent, c)
    best = np.full(len(bits), np.inf)
    for client in range(len(bits)):
        snr = (2.0 ** (rates_bps[client] / c.bandwidth_hz) - 1.0) * powers_w / c.transmit_power_w
        upload_s = bits[client] / (c.bandwidth_hz * np.log2(1.0 + snr))
        left_s = c.deadline_s - upload_s
        needed_hz = np.where(left_s > 0.0, cycles[client] / np.where(left_s > 0.0, left_s, 1.0), np.inf)
        units = 250.0 + 450.0 * (powers_w * 1e3 - 1.0) / (10**2.3 - 1.0)
        compute_j = c.energy_coefficient * cycles[client] * np.maximum(needed_hz, c.frequency_min_hz) ** 2
        spent_j = compute_j + 1e-4 * (units * upload_s + 0.45)
        best[client] = np.where(needed_hz <= c.frequency_max_hz, spent_j, np.inf).min()
    feasible = np.isfinite(best)
    np.testing.assert_array_equal(np.isfinite(found), feasible)
    assert (found[feasible] <= best[feasible] * (1.0 + 1e-9)).all()
    assert (found[feasible] >= best[feasible] * (1.0 - 1e-3)).all()
    assert len(np.unique(np.round(sent.power_w[feasible], 4))) > 3, "powers between the limits are chosen"


def test_a_bit_costs_at_least_the_bound() -> None:
    """The energy of one more bit in the same second, where neither limit of the power binds."""
    c = with_radio_power(constants(), UserEquipment(1e-4), rests=False)
    rates_bps, bits = np.array([1e6, 1e7, 5e7]), np.array([5e5, 3e6, 2e7])
    more_w, less_w = (power.needed_power_w(count, 1.0, rates_bps, c) for count in (bits + 1.0, bits))
    assert (c.transmit_power_min_w < less_w).all()
    assert (more_w < c.transmit_power_w).all()
    extra_j = c.power_per_radiated * (more_w - less_w)
    assert (extra_j >= power.least_energy_per_bit_j(rates_bps, c)).all()
    assert extra_j[0] == pytest.approx(power.least_energy_per_bit_j(rates_bps, c)[0], rel=0.1)


def test_the_settings_choose_the_model() -> None:
    c = load_scenario("quick", ['radio.power="ue"', "radio.ue.watts_per_unit=0.01"]).constants()
    assert c.wake_energy_j == pytest.approx(4.5e-3)
    assert c.upload_power_w == pytest.approx(0.01 * (250 + 450 * 199.0 / (10**2.3 - 1.0)))
    assert load_scenario("quick", []).constants().power_per_radiated == 1.0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (['radio.power="eu"'], "radio power 'eu' is not one of radiated, ue"),
        (['radio.power="ue"', "radio.circuit_power_w=1"], "contradicts"),
        (["radio.ue.watts_per_unit=5"], "watts_per_unit = 5 is out of range: it must be at most 1"),
        (['radio.power="ue"', 'radio.power_options={a="b"}'], "power_options are for"),
    ],
)
def test_mistakes_are_refused(settings, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_scenario("quick", settings).constants()


class Own:
    slope, replaces_circuits, constant_w, wake_energy_j, sleep_w = 4.0, True, 0.5, 0.0, 0.1


class Negative(Own):
    wake_energy_j = -1.0


class Words(Own):
    slope = "four"


class Sleepless(Own):
    sleep_w = 2.0


class Vague(Own):
    replaces_circuits = None


def test_a_users_own_model() -> None:
    c = load_scenario("quick", [f'radio.power="{__name__}:Own"']).constants()
    assert c.upload_power_w == pytest.approx(4.0 * 0.2 + 0.5)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Negative", "wake_energy_j = -1"),
        ("Words", "slope = 'four'"),
        ("Sleepless", "lower sleep_w"),
        ("Vague", "replaces"),
    ],
)
def test_a_users_own_model_that_cannot_be(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build_radio_power(f"{__name__}:{name}", {})


def test_the_least_slope_is_a_microwatt_per_watt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Own, "slope", 1e-6)
    assert build_radio_power(f"{__name__}:Own", {}).slope == 1e-6
    monkeypatch.setattr(Own, "slope", 0.99e-6)
    with pytest.raises(ConfigError, match=r"slope = 9\.9e-07: give a number of at least 1e-06"):
        build_radio_power(f"{__name__}:Own", {})


@pytest.mark.parametrize("name", RADIO_POWERS)
def test_every_model_takes_at_least_what_it_radiates(name: str) -> None:
    model = build_radio_power(name, {})
    assert model.slope >= 1.0
    assert model.sleep_w <= max(model.constant_w, 0.0)


def test_a_constant_adds_to_the_circuits_that_it_does_not_replace() -> None:
    """2 W for each of 0.2 W radiated, 5 W besides, and 0.3 W of circuits; asleep it takes 1 W, which resting has."""
    model = SimpleNamespace(slope=2.0, constant_w=5.0, replaces_circuits=False, wake_energy_j=0.0, sleep_w=1.0)
    c = replace(CONSTANTS, transmit_power_w=0.2, circuit_power_w=0.3)
    assert with_radio_power(c, model, rests=False).upload_power_w == pytest.approx(0.4 + 5.0 + 0.3)
    assert with_radio_power(c, model, rests=True).upload_power_w == pytest.approx(0.4 + 5.0 + 0.3 - 1.0)


def test_the_constant_of_a_phone_takes_the_place_of_its_circuits() -> None:
    c = replace(CONSTANTS, circuit_power_w=0.3)
    model = UserEquipment()
    assert with_radio_power(c, model, rests=False).circuit_power_w == model.constant_w


@pytest.mark.parametrize(("watts", "allowed"), [(0.9e-6, False), (1e-6, True), (1.0, True), (1.1, False)])
def test_a_unit_has_a_microwatt_to_a_watt(watts: float, allowed: bool) -> None:
    settings = ['radio.power="ue"', f"radio.ue.watts_per_unit={watts}"]
    if allowed:
        assert load_scenario("quick", settings).constants().wake_energy_j == pytest.approx(0.45 * watts)
    else:
        with pytest.raises(ConfigError, match=r"watts_per_unit = .* is out of range"):
            load_scenario("quick", settings)
