"""The kernel's powercap counters: RAPL of Intel and AMD processors."""

import time
from collections.abc import Callable
from pathlib import Path

from qccf.core.errors import MeterError
from qccf.devices.meters.sysfs import read_count, read_word

MOST_POWER_W = 10_000.0
"""More than any package takes. A counter that seems to have gone once around with more than this went backwards."""


class _Zone:
    """The counter of one package. It starts again from 0 after `max_energy_range_uj`."""

    def __init__(self, folder: Path) -> None:
        self._counter = folder / "energy_uj"
        self._range_uj = read_count(folder / "max_energy_range_uj")
        self._last_uj = self._checked(read_count(self._counter))

    def _checked(self, count_uj: int) -> int:
        if not 0 <= count_uj <= self._range_uj:
            raise MeterError(f"{self._counter} holds {count_uj}, outside its range of 0 to {self._range_uj}.")
        return count_uj

    def advance_j(self, seconds: float) -> float:
        """Joules since the last call."""
        now_uj = self._checked(read_count(self._counter))
        grown_uj = now_uj - self._last_uj
        if grown_uj < 0:
            grown_uj += self._range_uj + 1
            if grown_uj * 1e-6 > MOST_POWER_W * seconds:
                raise MeterError(f"{self._counter} goes backwards, from {self._last_uj} to {now_uj}.")
        self._last_uj = now_uj
        return grown_uj * 1e-6


class Powercap:
    """The sum of all packages. Cores, graphics and memory are parts of a package, so they are not added again."""

    def __init__(self, root: Path = Path("/sys"), *, clock: Callable[[], float] = time.monotonic) -> None:
        folder = root / "class" / "powercap"
        packages: dict[str, Path] = {}
        for zone in sorted(folder.glob("*-rapl:*")):
            # intel-rapl-mmio and intel-rapl count the same package; a name with two colons is a part of a package.
            if zone.name.count(":") == 1 and read_word(zone / "name").startswith("package"):
                packages.setdefault(read_word(zone / "name"), zone)
        if not packages:
            raise MeterError(f"{folder} has no processor package with an energy counter.")
        self._clock = clock
        self._zones = [_Zone(zone) for zone in packages.values()]
        self._joules = 0.0
        self._read_s = clock()

    def energy_j(self) -> float:
        now_s = self._clock()
        seconds, self._read_s = now_s - self._read_s, now_s
        self._joules += sum(zone.advance_j(seconds) for zone in self._zones)
        return self._joules
