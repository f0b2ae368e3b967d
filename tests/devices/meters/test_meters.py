"""Energy meters against a made-up tree of kernel files."""

import os

import pytest

from qccf.core.errors import ConfigError, MeterError
from qccf.devices.meters.battery import Battery, capacity_j
from qccf.devices.meters.powercap import Powercap
from qccf.devices.meters.registry import METERS, first_meter, open_meter
from qccf.devices.meters.sysfs import read_count
from tests.helpers.made_sysfs import add_battery, add_package, write


class Clock:
    """It has run for a while when a meter is opened."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_packages_are_added_and_their_parts_are_not(tmp_path) -> None:
    """Nor is the zone of the whole platform."""
    zones = [add_package(tmp_path, index, energy_uj=1_000_000) for index in (0, 1)]
    whole = add_package(tmp_path, 2, energy_uj=1_000_000)
    write(whole / "name", "psys")
    clock = Clock()
    meter = Powercap(tmp_path, clock=clock)
    clock.now_s += 1.0
    write(zones[0] / "energy_uj", 3_000_000)
    write(zones[1] / "energy_uj", 1_500_000)
    write(tmp_path / "class" / "powercap" / "intel-rapl:0:0" / "energy_uj", 1_900_000)
    write(whole / "energy_uj", 9_000_000)
    assert meter.energy_j() == pytest.approx(2.5)
    assert meter.energy_j() == pytest.approx(2.5)


def test_a_counter_that_starts_again_is_followed(tmp_path) -> None:
    """By hand: 9 999 of 0 … 9 999 999 µJ is left before the wrap, one step goes to 0, then 500 000 more."""
    zone = add_package(tmp_path, 0, energy_uj=9_990_000, range_uj=9_999_999)
    clock = Clock()
    meter = Powercap(tmp_path, clock=clock)
    clock.now_s += 1.0
    write(zone / "energy_uj", 500_000)
    assert meter.energy_j() == pytest.approx((9_999 + 1 + 500_000) * 1e-6)
    clock.now_s += 2.0
    write(zone / "energy_uj", 400_000)
    assert meter.energy_j() == pytest.approx(0.51 + 9.9)


def test_a_counter_that_goes_backwards_is_refused(tmp_path) -> None:
    zone = add_package(tmp_path, 0, energy_uj=5_000_000)
    clock = Clock()
    meter = Powercap(tmp_path, clock=clock)
    clock.now_s += 0.1
    write(zone / "energy_uj", 4_000_000)  # as a wrap it would be 262 kJ in 0.1 s
    with pytest.raises(MeterError, match="goes backwards, from 5000000 to 4000000"):
        meter.energy_j()


@pytest.mark.parametrize(
    ("seconds", "joules", "follows"),
    [(0.1, 999.0, True), (1.0, 10_000.0, True), (0.1, 1001.0, False), (5.0, 49_999.0, True), (5.0, 50_001.0, False)],
)
def test_a_counter_that_starts_again_took_at_most_ten_kilowatts(tmp_path, seconds, joules, follows) -> None:
    zone = add_package(tmp_path, 0, energy_uj=100_000_000_000, range_uj=100_000_000_000)
    clock = Clock()
    meter = Powercap(tmp_path, clock=clock)
    clock.now_s += seconds
    write(zone / "energy_uj", round(joules * 1e6) - 1)
    if follows:
        assert meter.energy_j() == pytest.approx(joules)
    else:
        with pytest.raises(MeterError, match="goes backwards"):
            meter.energy_j()


@pytest.mark.parametrize(
    ("text", "says"),
    [("many", "instead of a whole number"), ("-1", "outside its range"), ("999999999999999", "outside its range")],
)
def test_a_counter_with_nonsense_is_refused(tmp_path, text: str, says: str) -> None:
    zone = add_package(tmp_path, 0, energy_uj=1)
    meter = Powercap(tmp_path)
    write(zone / "energy_uj", text)
    with pytest.raises(MeterError, match=says):
        meter.energy_j()


def test_a_counter_may_hold_0_and_its_whole_range(tmp_path) -> None:
    zone = add_package(tmp_path, 0, energy_uj=0, range_uj=1_000_000)
    clock = Clock()
    meter = Powercap(tmp_path, clock=clock)
    for count_uj, joules in ((1_000_000, 1.0), (0, 1.000001)):
        clock.now_s += 1.0
        write(zone / "energy_uj", count_uj)
        assert meter.energy_j() == pytest.approx(joules, rel=1e-9)


def test_a_file_that_is_not_text_is_a_sentence(tmp_path) -> None:
    (tmp_path / "energy_uj").write_bytes(b"\xff\xfe")
    with pytest.raises(MeterError, match="energy_uj cannot be read: it is not text"):
        read_count(tmp_path / "energy_uj")
    with pytest.raises(MeterError, match="none cannot be read: No such file or directory"):
        read_count(tmp_path / "none")


def test_a_counter_that_may_not_be_read_is_a_reason(tmp_path) -> None:
    zone = add_package(tmp_path, 0, energy_uj=1)
    (zone / "energy_uj").chmod(0)
    if os.access(zone / "energy_uj", os.R_OK):  # root reads everything
        (zone / "energy_uj").unlink()
    meter, reasons = first_meter(tmp_path)
    assert meter is None
    assert len(reasons) == len(METERS)
    assert "energy_uj cannot be read" in reasons[0]
    assert "has no battery" in reasons[1]


def test_the_power_of_a_battery_is_added_up(tmp_path) -> None:
    """By hand: 5 W, then 7 W after 2 s: 12 J by the trapezoidal rule. Neither a mouse nor a charger is a battery."""
    battery = add_battery(tmp_path, power_now=5_000_000, scope="System")
    add_battery(tmp_path, "mouse", scope="Device", power_now=100)
    add_battery(tmp_path, "AC", type="Mains", status="Discharging", power_now=9_000_000)
    (tmp_path / "class" / "power_supply" / "empty").mkdir()
    clock = Clock()
    meter = Battery(tmp_path, clock=clock)
    clock.now_s += 2.0
    write(battery / "power_now", 7_000_000)
    assert meter.energy_j() == pytest.approx(12.0)
    clock.now_s += 1.0
    assert meter.energy_j() == pytest.approx(19.0)


def test_the_power_of_a_battery_counts_before_its_energy(tmp_path) -> None:
    """An energy is told in coarse steps."""
    battery = add_battery(tmp_path, power_now=5_000_000, energy_now=10_000_000)
    clock = Clock()
    meter = Battery(tmp_path, clock=clock)
    clock.now_s += 2.0
    write(battery / "energy_now", 9_000_000)
    assert meter.energy_j() == pytest.approx(10.0)


def test_the_energy_counts_where_not_all_batteries_tell_their_power(tmp_path) -> None:
    first = add_battery(tmp_path, power_now=5_000_000, energy_now=10_000_000)
    second = add_battery(tmp_path, "BAT1", energy_now=10_000_000)
    meter = Battery(tmp_path)
    write(first / "energy_now", 9_999_000)
    write(second / "energy_now", 9_998_000)
    assert meter.energy_j() == pytest.approx(3 * 3.6)


def test_a_battery_with_current_and_voltage(tmp_path) -> None:
    add_battery(tmp_path, current_now=-500_000, voltage_now=4_000_000)
    clock = Clock()
    meter = Battery(tmp_path, clock=clock)
    clock.now_s += 3.0
    assert meter.energy_j() == pytest.approx(6.0)


def test_a_battery_that_tells_only_its_energy(tmp_path) -> None:
    battery = add_battery(tmp_path, energy_now=10_000_000)
    meter = Battery(tmp_path)
    write(battery / "energy_now", 9_999_000)
    assert meter.energy_j() == pytest.approx(3.6)


def test_a_battery_that_is_charged_is_refused_also_later(tmp_path) -> None:
    battery = add_battery(tmp_path, power_now=5_000_000)
    meter = Battery(tmp_path)
    write(battery / "status", "Charging")
    with pytest.raises(MeterError, match="BAT0 is charging: unplug it"):
        meter.energy_j()
    with pytest.raises(MeterError, match="unplug"):
        Battery(tmp_path)


def test_a_battery_that_tells_nothing_is_refused(tmp_path) -> None:
    add_battery(tmp_path)
    with pytest.raises(MeterError, match="neither its power nor its energy"):
        Battery(tmp_path)
    for files in ({"power_now": 5_000_000}, {"energy_now": 10_000_000}):
        battery = add_battery(tmp_path, "BAT1", **files)
        with pytest.raises(MeterError, match="neither its power nor its energy"):
            Battery(tmp_path)
        (battery / next(iter(files))).unlink()


def test_the_capacity_of_a_battery(tmp_path) -> None:
    assert capacity_j(tmp_path) is None
    add_battery(tmp_path, energy_full=50_000_000)
    assert capacity_j(tmp_path) == pytest.approx(180_000.0)  # 50 Wh
    add_battery(tmp_path, "BAT1", charge_full=2_000_000, voltage_now=4_000_000)
    assert capacity_j(tmp_path) == pytest.approx(180_000.0 + 28_800.0)  # 8 Wh


class Own:
    readings = (0.0, 1.0, 3.0)

    def __init__(self) -> None:
        self._left = list(self.readings)

    def energy_j(self):
        return self._left.pop(0)


class Falling(Own):
    readings = (5.0, 4.0)


class Words(Own):
    readings = (0.0, "much")


class NoMeter:
    pass


def test_a_users_own_meter() -> None:
    meter = open_meter(f"{__name__}:Own")
    assert [meter.energy_j(), meter.energy_j()] == [1.0, 3.0]


@pytest.mark.parametrize(
    ("name", "says"), [("Falling", "goes backwards, from 5 J to 4 J"), ("Words", "'much' instead")]
)
def test_a_users_own_meter_that_cannot_be_right(name: str, says: str) -> None:
    meter = open_meter(f"{__name__}:{name}")
    with pytest.raises(MeterError, match=says):
        meter.energy_j()


def test_an_unknown_meter_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'powercap'"):
        open_meter("powercup")
    with pytest.raises(ConfigError, match="has no energy_j"):
        open_meter(f"{__name__}:NoMeter")


def test_a_battery_that_does_not_tell_its_capacity_has_none(tmp_path) -> None:
    add_battery(tmp_path, energy_full=50_000_000)
    add_battery(tmp_path, "BAT1", power_now=1_000_000)
    assert capacity_j(tmp_path) is None
