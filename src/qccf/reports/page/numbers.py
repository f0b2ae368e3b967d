"""Numbers as a reader wants them: one unit and one precision per column, never an exponent."""

import math
from collections.abc import Iterable, Sequence

from qccf.core.intervals import Estimate

NO_BREAK = "\N{NO-BREAK SPACE}"
ENERGY_UNITS = ((1e3, 1e-3, "kJ"), (1.0, 1.0, "J"), (1e-3, 1e3, "mJ"), (0.0, 1e6, "µJ"))
"""From which energy in joules a unit is used, its factor, and its name."""


def energies_shown(estimates: Sequence[Estimate]) -> list[str]:
    """Energies that are compared with each other, in the unit that suits the smallest: 3 significant digits of it."""
    smallest = min((e.mean for e in estimates if e.count and e.mean > 0), default=1.0)
    factor, unit = next((factor, unit) for least, factor, unit in ENERGY_UNITS if smallest >= least)
    decimals = max(0, 2 - math.floor(math.log10(smallest * factor)))
    return [shown(e, min(decimals, 3), factor, f" {unit}") for e in estimates]


def percent_shown(e: Estimate, decimals: int = 1) -> str:
    return shown(e, decimals, 100.0, " %")


def shown(e: Estimate, decimals: int, factor: float = 1.0, unit: str = "") -> str:
    """A mean and its interval in one piece that no line breaks; without the interval where all seeds agree."""
    certain = Estimate(e.mean, math.nan, e.count) if e.half == 0.0 else e
    return certain.shown(f",.{decimals}f", factor, unit).replace(" ", NO_BREAK)


def listed(words: Iterable[str]) -> str:
    """a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counted(numbers: Iterable[int], noun: str) -> str:
    """`10 clients`, or `10 to 30 clients` where they differ."""
    found = sorted(set(numbers))
    plural = "s" * (found[-1] != 1)
    return f"{found[0]} {noun}{plural}" if len(found) == 1 else f"{found[0]} to {found[-1]} {noun}{plural}"
