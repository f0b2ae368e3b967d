"""A profile: what one kind of device computes, sends and consumes, each figure with its source.

A profile is a TOML file. Its keys are the figures below; the table `[sources]` says for each of them where it comes
from, or "assumed". The energy of computing follows either from `energy_coefficient`, as in the paper (a power of α·f³
at any frequency in a range), or from `steps`: the frequencies that a governor offers, each with its power.

Powers are what an activity adds to a device that is at rest: a meter's reading minus `idle_power_w`. So the energy of a
round is what training adds, and resting can be charged or not (see `accounts.idle_power_w`).
"""

import math
import re
import sys
import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from qccf.core.errors import ConfigError
from qccf.core.suggest import hint

MAX_STEPS = 64
MAX_BYTES = 1 << 20
MAX_COMPUTE_POWER_W = 1000.0
MAX_LAW_POWER_W = MAX_COMPUTE_POWER_W * (1.0 + 1e-9)
"""The same for a power that follows from a coefficient, which has a rounding error."""
ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Figure:
    """The limits of a figure, wide enough for any device and narrow enough to refuse a wrong unit."""

    least: float
    most: float
    unit: str
    meaning: str


FIGURES = {
    "cycles_per_sample": Figure(1.0, 1e12, "cycles", "clock cycles per sample and epoch, γ, of the clock below"),
    "flops_per_cycle": Figure(1e-4, 1e6, "FLOP", "floating-point operations per cycle that training really achieves"),
    "energy_coefficient": Figure(1e-32, 1e-18, "J·s²", "energy per cycle and squared frequency, α"),
    "frequency_min_hz": Figure(1e6, 1e11, "Hz", "lowest frequency"),
    "frequency_max_hz": Figure(1e6, 1e11, "Hz", "highest frequency"),
    "transmit_power_w": Figure(1e-6, 10.0, "W", "highest power that the antenna radiates"),
    "circuit_power_w": Figure(0.0, 100.0, "W", "power of the radio besides what it radiates, while it sends"),
    "idle_power_w": Figure(0.0, 1000.0, "W", "power of the device at rest"),
    "battery_j": Figure(1e-6, math.inf, "J", "energy of a full battery; inf for mains"),
}
LAW = ("energy_coefficient", "frequency_min_hz", "frequency_max_hz")
"""Figures of the cubic law, in whose place steps may stand."""
STEP = (Figure(1e6, 1e11, "Hz", "frequency of a step"), Figure(1e-6, MAX_COMPUTE_POWER_W, "W", "power of a step"))
KEYS = (*FIGURES, "steps", "title", "sources")
STATED_NAME = re.compile(r"[\w .+()-]{1,64}")
DEFAULTS: dict[str, Any] = {
    "cycles_per_sample": "auto",
    "circuit_power_w": 0.0,
    "idle_power_w": 0.0,
    "battery_j": math.inf,
}
"""Figures that a profile may leave out."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of device, in SI units. `cycles_per_sample` is "auto" where it follows from the model's FLOPs.

    With `steps`, pairs of frequency and power in rising order of frequency, the frequency limits are the first and the
    last of them and `energy_coefficient` is 0. `sources` names where each figure comes from.
    """

    name: str
    title: str
    cycles_per_sample: float | Literal["auto"]
    flops_per_cycle: float
    energy_coefficient: float
    frequency_min_hz: float
    frequency_max_hz: float
    transmit_power_w: float
    circuit_power_w: float
    idle_power_w: float = 0.0
    battery_j: float = math.inf
    steps: tuple[tuple[float, float], ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def cycles(self, flops_per_sample: float) -> float:
        """γ: the stated cycles per sample, or those of a training step with this many floating-point operations."""
        return flops_per_sample / self.flops_per_cycle if self.cycles_per_sample == "auto" else self.cycles_per_sample

    def to_dict(self) -> dict[str, Any]:
        """The tree that `profile_from_dict` reads, for a TOML file."""
        tree: dict[str, Any] = {"title": self.title}
        tree |= {name: getattr(self, name) for name in FIGURES if name in self.sources}
        if self.steps:
            tree["steps"] = [list(step) for step in self.steps]
        return tree | {"sources": dict(self.sources)}


def read_profile(path: str | Path) -> Profile:
    """The profile in a TOML file; its name is the file's without the ending."""
    place = Path(path)
    try:
        if place.stat().st_size > MAX_BYTES:
            raise ConfigError(
                f"profile {str(path)!r} has more than {MAX_BYTES:,} bytes: a profile is a short TOML file."
            )
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"profile {str(path)!r} cannot be read: {error.strerror or 'it is no file'}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"profile {str(path)!r} is not a text file: write it as TOML in UTF-8.") from None
    return profile_from_text(text, place.stem, str(path))


def profile_from_text(text: str, name: str, place: str) -> Profile:
    """The profile that a TOML text states; `place` says in an error which text it was."""
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"profile {place!r} is not valid TOML: {str(error).rstrip('.')}.") from None
    try:
        return profile_from_dict(tree, name)
    except ConfigError as error:
        raise ConfigError(f"profile {place!r}: {error}") from None


def profile_from_dict(tree: Mapping[str, Any], name: str) -> Profile:
    """Check a profile's tree and build the profile."""
    for key in tree:
        if key not in (*FIGURES, "title", "steps", "sources"):
            raise ConfigError(
                f"{key} is not a figure of a profile; {hint(key, [*FIGURES, 'title', 'steps', 'sources'])}"
            )
    steps = checked_steps(tree.get("steps", []))
    figures = DEFAULTS | {key: _number(key, value) for key, value in tree.items() if key in FIGURES}
    if steps:
        figures |= figures_of_steps(steps, tree)
    missing = [key for key in FIGURES if key not in figures]
    if missing:
        remedy = ", or give steps = [[hertz, watts], …]" if "energy_coefficient" in missing else ""
        raise ConfigError(f"{', '.join(missing)} is missing: state it with its source{remedy}.")
    require_plausible(figures)
    return Profile(name=name, title=_title(tree, name), steps=steps, sources=_sources(tree), **figures)


def figures_of_steps(steps: tuple[tuple[float, float], ...], stated: Container[str]) -> dict[str, float]:
    """What steps give in place of the cubic law; refused where it is stated beside them."""
    for key in LAW:
        if key in stated:
            raise ConfigError(f"{key} contradicts steps, which state it for each frequency: leave one of them out.")
    return dict(zip(LAW, (0.0, steps[0][0], steps[-1][0]), strict=True))


def stated_figures(profile: Profile) -> dict[str, Any]:
    """A profile's name, figures and steps without sources, as a node of Flower states it to the server."""
    left_out = LAW if profile.steps else ()
    tree: dict[str, Any] = {"name": profile.name}
    tree |= {key: getattr(profile, key) for key in FIGURES if key not in left_out}
    if profile.battery_j == math.inf:
        del tree["battery_j"]
    return tree | ({"steps": [list(step) for step in profile.steps]} if profile.steps else {})


def stated_profile(tree: Mapping[str, Any]) -> Profile:
    """The profile in such a tree, checked like one in a file: it comes from another machine."""
    name, known = tree.get("name"), (*FIGURES, "steps")
    if not isinstance(name, str) or not STATED_NAME.fullmatch(name):
        raise ConfigError("name is not 1 to 64 letters, digits, blanks and any of . + - _ ( ): rename the profile.")
    figures = {key: value for key, value in tree.items() if key != "name"}
    unknown = [key for key in figures if key not in known]
    if unknown:
        raise ConfigError(f"{unknown[0][:40]!r} is not a figure of a profile; known: {', '.join(known)}.")
    return profile_from_dict({**figures, "title": name, "sources": dict.fromkeys(figures, "stated by the node")}, name)


def require_plausible(figures: Mapping[str, Any]) -> None:
    """Refuse frequencies in the wrong order and a power of computing that no device has."""
    low, high = figures["frequency_min_hz"], figures["frequency_max_hz"]
    if low > high:
        raise ConfigError(f"frequency_min_hz = {low:g} is above frequency_max_hz = {high:g}: swap them.")
    power_w = figures["energy_coefficient"] * high**3
    if power_w > MAX_LAW_POWER_W:
        raise ConfigError(
            f"energy_coefficient = {figures['energy_coefficient']:g} at frequency_max_hz = {high:g} is a power of "
            f"{power_w:g} W, above {MAX_COMPUTE_POWER_W:g} W: the coefficient is the power in watts divided by the "
            "cube of the frequency in hertz."
        )


def require_figure(key: str, value: Any) -> float:
    """A number within the limits of its figure."""
    figure = FIGURES[key]
    too_long = isinstance(value, int) and abs(value) > sys.float_info.max  # no float, so it cannot be formatted either
    if isinstance(value, bool) or not isinstance(value, int | float) or (not too_long and math.isnan(value)):
        raise ConfigError(f"{key} = {value!r} is not a number: it is in {figure.unit}.")
    if too_long or not figure.least <= value <= figure.most:
        shown = f"a number beyond {sys.float_info.max:.0e}" if too_long else f"{value:g}"
        raise ConfigError(
            f"{key} = {shown} is out of range: it must be from {figure.least:g} to {figure.most:g}, in {figure.unit}."
        )
    return float(value)


def _number(key: str, value: Any) -> float | str:
    if key == "cycles_per_sample" and value == "auto":
        return "auto"
    return require_figure(key, value)


def checked_steps(rows: Any) -> tuple[tuple[float, float], ...]:
    """Steps from a list of pairs of frequency and power."""
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
        raise ConfigError("steps is not a list of pairs [frequency in hertz, power in watts].")
    if len(rows) > MAX_STEPS:
        raise ConfigError(f"steps has {len(rows)} entries, more than {MAX_STEPS}: leave some out.")
    for index, row in enumerate(rows):
        for figure, value in zip(STEP, row, strict=True):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not figure.least <= value <= figure.most:
                raise ConfigError(
                    f"steps[{index}] has {value!r} as the {figure.meaning}: it must be a number from {figure.least:g} "
                    f"to {figure.most:g}, in {figure.unit}."
                )
        if index and row[0] <= rows[index - 1][0]:
            raise ConfigError(
                f"steps[{index}] has {row[0]:g} Hz after {rows[index - 1][0]:g} Hz: sort the frequencies."
            )
    return tuple((float(frequency_hz), float(power_w)) for frequency_hz, power_w in rows)


def _title(tree: Mapping[str, Any], name: str) -> str:
    title = tree.get("title", name)
    if not isinstance(title, str) or not title.strip():
        raise ConfigError(f"title = {title!r} is not a text: name the device.")
    return title


def _sources(tree: Mapping[str, Any]) -> dict[str, str]:
    """The source of every figure that is stated."""
    sources = tree.get("sources", {})
    if not isinstance(sources, dict):
        raise ConfigError('sources is not a table: state a source for each figure, or "assumed".')
    stated = [key for key in (*FIGURES, "steps") if key in tree]
    for key in stated:
        if not isinstance(sources.get(key), str) or not sources[key].strip():
            raise ConfigError(f'sources.{key} is missing: say where {key} comes from, or "assumed".')
    extra = [key for key in sources if key not in stated]
    if extra:
        raise ConfigError(f"sources.{extra[0]} is the source of no figure: state {extra[0]}, or leave its source out.")
    return dict(sources)
