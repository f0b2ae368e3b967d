"""Numbers for people: SI prefixes, and a mean that is rounded like its spread."""

import math
from collections.abc import Sequence
from typing import NamedTuple

NOTHING = "–"
"""Shown where there is no value."""

PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T"}
TIME_PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: ""}
"""Nobody reads kiloseconds."""

LARGEST_CHANGE = 9999.0
"""A larger number of per cent or points says no more than that it is large."""


class Spread(NamedTuple):
    """A mean and its standard deviation; zero where there is none."""

    mean: float
    std: float = 0.0


def quantity(value: float | None, unit: str, spread: float = 0.0) -> str:
    """One value with its unit, such as "1.21 kJ" or "1.21±0.37 kJ"."""
    if value is None or not math.isfinite(value):
        return NOTHING
    exponent = _exponent(value, unit)
    return f"{_scaled(Spread(value, spread), exponent)} {_prefixes(unit)[exponent]}{unit}"


def column(values: Sequence[Spread | None], unit: str) -> tuple[str, list[str]]:
    """A heading and cells. They share a unit, unless the values differ by more than a factor of a thousand."""
    known = [abs(one.mean) for one in values if one is not None and math.isfinite(one.mean) and one.mean]
    if known and max(known) > 1000 * min(known):
        return "", [quantity(None if one is None else one.mean, unit, one.std if one else 0.0) for one in values]
    exponent = _exponent(max(known, default=1.0), unit)
    cells = [NOTHING if one is None or not math.isfinite(one.mean) else _scaled(one, exponent) for one in values]
    return f"{_prefixes(unit)[exponent]}{unit}", cells


def with_spread(value: Spread | None, decimals: int, sign: str = "", *, most: int = 9) -> str:
    """A mean and ± with at most `most` decimals; without a spread the mean has `decimals`.

    A change that is too large to matter is cut off.
    """
    if value is None or not math.isfinite(value.mean):
        return NOTHING
    if sign and abs(value.mean) > LARGEST_CHANGE:
        return f">{LARGEST_CHANGE:,.0f}" if value.mean > 0 else f"<-{LARGEST_CHANGE:,.0f}"
    if not _spread_matters(value):
        return f"{value.mean:{sign},.{decimals}f}"
    places = min(_decimals(value.std, 2), most)
    return f"{value.mean:{sign},.{places}f}±{value.std:,.{places}f}"


def number(value: float | None, form: str = ".3g") -> str:
    return NOTHING if value is None or math.isnan(value) else f"{value:{form}}"


def significant(value: float, digits: int = 3) -> str:
    """A number with that many digits and without an exponent."""
    return f"{value:,.{_decimals(value, digits)}f}" if value else "0"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _prefixes(unit: str) -> dict[int, str]:
    return TIME_PREFIXES if unit == "s" else PREFIXES


def _exponent(value: float, unit: str) -> int:
    """The power of ten of the prefix with which the rounded value has one to three digits before the point."""
    known = _prefixes(unit)
    if not value:
        return 0
    power = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    return min(max(3 * (power // 3), min(known)), max(known))


def _scaled(value: Spread, exponent: int) -> str:
    mean, std = value.mean / 10.0**exponent, value.std / 10.0**exponent
    if not _spread_matters(value):
        return significant(mean)
    places = _decimals(std, 2)
    return f"{mean:,.{places}f}±{std:,.{places}f}"


def _spread_matters(value: Spread) -> bool:
    """Less than a thousandth of the mean is rounding."""
    return math.isfinite(value.std) and value.std > 1e-3 * abs(value.mean)


def _decimals(value: float, digits: int) -> int:
    """The decimals with which a value shows that many significant digits; 0 for a large value."""
    if not value:
        return 0
    rounded = float(f"{value:.{digits - 1}e}")
    return max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
