"""CPU frequencies through the kernel's cpufreq files: what a machine offers, and setting one for a while."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from qccf.core.errors import FrequencyError, MeterError
from qccf.devices.meters.sysfs import read_count, read_word
from qccf.devices.profile import FIGURES

SYSTEM = Path("/sys")
CPUINFO = Path("/proc/cpuinfo")
STEPS = 4
"""Frequencies between lowest and highest where a driver lists none."""


class Cpufreq:
    """The frequencies of all groups of cores that share a clock. Frequencies are in Hz; the kernel's files are in kHz.

    A machine with fast and slow cores has groups with different limits: a frequency is set in each group as far as its
    limits allow, and the steps are those of the fastest.
    """

    def __init__(self, root: Path = SYSTEM) -> None:
        folder = root / "devices" / "system" / "cpu" / "cpufreq"
        self._groups = [one for one in sorted(folder.glob("policy*")) if (one / "cpuinfo_max_freq").exists()]
        if not self._groups:
            raise FrequencyError(f"{folder} lists no CPU frequencies.")
        self._limits_khz = {
            one: (_count(one / "cpuinfo_min_freq"), _count(one / "cpuinfo_max_freq")) for one in self._groups
        }
        self._fastest = max(self._groups, key=lambda one: self._limits_khz[one][1])

    def steps_hz(self) -> list[float]:
        """The frequencies that can be set, lowest first."""
        listed = self._fastest / "scaling_available_frequencies"
        lowest, highest = self._limits_khz[self._fastest]
        if listed.exists():
            found = {int(word) for word in _word(listed).split() if word.isdigit()}
            steps = sorted(khz for khz in found if lowest <= khz <= highest)
        else:
            steps = sorted({round(lowest + (highest - lowest) * k / (STEPS - 1)) for k in range(STEPS)})
        return [1e3 * khz for khz in steps or [highest]]

    def limits_hz(self) -> tuple[float, float]:
        """The lowest and the highest frequency of the fastest group."""
        lowest, highest = self._limits_khz[self._fastest]
        return 1e3 * lowest, 1e3 * highest

    def current_hz(self) -> float:
        """The frequency of the fastest group now; raises `FrequencyError` where the driver does not tell it."""
        file, limits = self._fastest / "scaling_cur_freq", FIGURES["frequency_max_hz"]
        khz = _count(file)
        if not limits.least <= 1e3 * khz <= limits.most:
            raise FrequencyError(f"{file} holds {khz}, which is no frequency in kHz.")
        return 1e3 * khz

    @contextmanager
    def held(self, frequency_hz: float) -> Iterator[None]:
        """All cores at this frequency inside; afterwards the files hold what they held before.

        Raises `FrequencyError` where this process may not, or where the driver takes another value.
        """
        with ExitStack() as undo:
            for group in self._groups:
                lowest, highest = self._limits_khz[group]
                khz = min(max(round(frequency_hz / 1e3), lowest), highest)
                _hold(group, khz, undo)
            yield


def _hold(group: Path, khz: int, undo: ExitStack) -> None:
    """Set one group; `undo` gets how to set it back."""
    if _word(group / "scaling_governor") == "userspace" and (group / "scaling_setspeed").exists():
        undo.callback(_write, group / "scaling_setspeed", _count(group / "scaling_setspeed"))
        _write(group / "scaling_setspeed", khz)
        _require(group / "scaling_setspeed", khz)
        return
    low, high = group / "scaling_min_freq", group / "scaling_max_freq"
    before = {low: _count(low), high: _count(high)}
    undo.callback(_set_range, low, high, before[low], before[high])
    _set_range(low, high, khz, khz)
    _require(low, khz)
    _require(high, khz)


def _set_range(low: Path, high: Path, low_khz: int, high_khz: int) -> None:
    """The kernel refuses a minimum above the maximum, so the side that widens the range comes first."""
    if _count(high) >= low_khz:
        _write(low, low_khz)
        _write(high, high_khz)
    else:
        _write(high, high_khz)
        _write(low, low_khz)


def _count(path: Path) -> int:
    try:
        return read_count(path)
    except MeterError as error:
        raise FrequencyError(str(error)) from None


def _word(path: Path) -> str:
    try:
        return read_word(path)
    except MeterError as error:
        raise FrequencyError(str(error)) from None


def _write(path: Path, khz: int) -> None:
    try:
        path.write_text(f"{khz}\n", encoding="ascii")
    except OSError as error:
        raise FrequencyError(f"{path} cannot be written: {error.strerror}; root may set CPU frequencies.") from None


def _require(path: Path, khz: int) -> None:
    found = _count(path)
    if found != khz:
        raise FrequencyError(f"{path} was set to {khz} kHz, but holds {found}: the driver does not offer it.")


def stated_hz(cpuinfo: Path = CPUINFO) -> float | None:
    """The frequency that the kernel states of the fastest core where there is no cpufreq, as in virtual machines."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "cpu MHz":
            try:
                found.append(1e6 * float(value))
            except ValueError:
                continue
    return max((hertz for hertz in found if hertz > 0.0), default=None)
