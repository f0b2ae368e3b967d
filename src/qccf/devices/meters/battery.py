"""The power of a battery that discharges: of laptops and phones. It is the power of the whole machine."""

import time
from collections.abc import Callable
from pathlib import Path

from qccf.core.errors import MeterError
from qccf.devices.meters.sysfs import read_count, read_word

J_PER_UWH = 3.6e-3


def capacity_j(root: Path = Path("/sys")) -> float | None:
    """The energy of the full batteries of the machine; None without one, or where a battery does not tell."""
    try:
        full = [_full_j(one) for one in sorted((root / "class" / "power_supply").glob("*")) if _is_battery(one)]
    except MeterError:
        return None
    return sum(full) if full and all(full) else None


def _full_j(battery: Path) -> float:
    if (battery / "energy_full").exists():
        return read_count(battery / "energy_full") * J_PER_UWH
    if (battery / "charge_full").exists() and (battery / "voltage_now").exists():
        return read_count(battery / "charge_full") * read_count(battery / "voltage_now") * 1e-6 * J_PER_UWH
    return 0.0


class Battery:
    """Adds up the power over time, or reads the energy left where the battery does not tell its power."""

    def __init__(self, root: Path = Path("/sys"), *, clock: Callable[[], float] = time.monotonic) -> None:
        folder = root / "class" / "power_supply"
        batteries = [one for one in sorted(folder.glob("*")) if _is_battery(one)]
        if not batteries:
            raise MeterError(f"{folder} has no battery.")
        self._batteries, self._clock = batteries, clock
        self._require_discharging()
        self._counts = all((one / "energy_now").exists() for one in batteries) and not all(map(_tells_power, batteries))
        if not self._counts and not all(map(_tells_power, batteries)):
            raise MeterError(f"{batteries[0]} tells neither its power nor its energy.")
        self._start_uwh = self._left_uwh() if self._counts else 0
        self._joules, self._read_s = 0.0, clock()
        self._power_w = 0.0 if self._counts else self._drawn_w()

    def _require_discharging(self) -> None:
        states = {one.name: read_word(one / "status") for one in self._batteries}
        if "Discharging" not in states.values():
            listed = ", ".join(f"{name} is {state.lower()}" for name, state in states.items())
            raise MeterError(
                f"a battery shows what the machine takes only while it discharges, but {listed}: unplug it."
            )

    def _left_uwh(self) -> int:
        return sum(read_count(one / "energy_now") for one in self._batteries)

    def _drawn_w(self) -> float:
        return sum(_power_w(one) for one in self._batteries)

    def energy_j(self) -> float:
        self._require_discharging()
        if self._counts:
            return (self._start_uwh - self._left_uwh()) * J_PER_UWH
        now_s, power_w = self._clock(), self._drawn_w()
        self._joules += 0.5 * (power_w + self._power_w) * (now_s - self._read_s)
        self._read_s, self._power_w = now_s, power_w
        return self._joules


def _tells_power(battery: Path) -> bool:
    return (battery / "power_now").exists() or (battery / "current_now").exists()


def _power_w(battery: Path) -> float:
    """Some drivers give a negative current while the battery discharges."""
    if (battery / "power_now").exists():
        return abs(read_count(battery / "power_now")) * 1e-6
    return abs(read_count(battery / "current_now")) * 1e-6 * read_count(battery / "voltage_now") * 1e-6


def _is_battery(folder: Path) -> bool:
    """A battery of the machine, not one of a mouse."""
    if not (folder / "type").exists() or read_word(folder / "type") != "Battery":
        return False
    return not (folder / "scope").exists() or read_word(folder / "scope") != "Device"
