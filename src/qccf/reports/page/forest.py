"""The claims as a forest plot: one line per claim with its estimate, its interval and the paper's figure.

Positions are percentages of the line's width, so that the template draws them without a script. Claims in the same unit
share one axis.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qccf.paper.claims import Judged
from qccf.paper.findings import Measure
from qccf.paper.verdicts import QUANTITIES, Answer, Quantity

PADDING = 0.06
"""Free space at both ends of an axis, as a share of its length."""
TICKS = 4


@dataclass(frozen=True)
class Line:
    """One measured number: which part of the claim it belongs to, its words and its place on the axis (in %)."""

    name: str
    shown: str
    measure: Measure
    at: float
    low: float
    high: float
    cut_low: bool
    cut_high: bool

    @property
    def answer(self) -> Answer:
        return self.measure.answer


@dataclass(frozen=True)
class Row:
    """A claim: the number that decides its verdict, and all its numbers in the same unit."""

    judged: Judged
    deciding: Line
    lines: list[Line]
    papers_at: float | None


@dataclass(frozen=True)
class Axis:
    """Rows in one unit, with the ticks (place in % and label) and the place of zero."""

    name: str
    ticks: list[tuple[float, str]]
    zero: float
    rows: list[Row]


def measurable(one: Judged) -> bool:
    """Whether some part of the claim has a number with an interval."""
    return any(measure.estimate.known for finding in one.findings for measure in finding.measures)


def forest(judged: Sequence[Judged]) -> list[Axis]:
    """The measurable claims by the unit of the number that decides them."""
    chosen = [(one, decides) for one in judged if (decides := one.deciding())]
    axes = []
    for quantity in QUANTITIES:
        mine = [(one, name, measure) for one, (name, measure) in chosen if measure.quantity is quantity]
        if mine:
            axes.append(_axis(quantity, mine))
    return axes


def _numbers(one: Judged) -> list[tuple[str, Measure]]:
    """Every number of a claim that has an interval, with its name."""
    return [
        (", ".join(filter(None, (finding.part, measure.against))), measure)
        for finding in one.findings
        for measure in finding.measures
        if measure.estimate.known
    ]


def _axis(quantity: Quantity, claims: Sequence[tuple[Judged, str, Measure]]) -> Axis:
    numbers = {one.claim.key: [pair for pair in _numbers(one) if pair[1].quantity is quantity] for one, _, _ in claims}
    papers = {one.claim.key: one.claim.papers_value for one, _, _ in claims}
    start, end = _range(quantity, [m for pairs in numbers.values() for _, m in pairs], papers.values())

    def place(value: float) -> float:
        return round(100.0 * (value - start) / (end - start), 2)

    def line(name: str, measure: Measure) -> Line:
        e = measure.estimate
        shown = quantity.shown(e).replace("-", "−")
        low, high = max(e.low, start), min(e.high, end)
        return Line(name, shown, measure, place(e.mean), place(low), place(high), e.low < start, e.high > end)

    rows = []
    for one, name, measure in claims:
        lines = [line(*pair) for pair in numbers[one.claim.key]]
        value = papers[one.claim.key]
        rows.append(Row(one, line(name, measure), lines, None if value is None else place(value)))
    ticks = [(place(tick), _tick_label(tick, quantity)) for tick in _ticks(start, end)]
    unit = quantity.unit.strip()
    return Axis(quantity.name + (f" ({unit})" if unit not in ("", quantity.name) else ""), ticks, place(0.0), rows)


def _range(quantity: Quantity, measures: Sequence[Measure], papers: Iterable[float | None]) -> tuple[float, float]:
    """All means, zero and the paper's figures; intervals only as far as they do not squash the means."""
    means = [0.0, *(m.estimate.mean for m in measures), *(value for value in papers if value is not None)]
    span = max(max(means) - min(means), 4.0 * quantity.margin)
    ends = [end for m in measures for end in (m.estimate.low, m.estimate.high)]
    low = max(min(*means, *ends), min(means) - span)
    high = min(max(*means, *ends), max(means) + span)
    padding = PADDING * (high - low) or span or 1.0  # an axis has a width also if all is zero
    return low - padding, high + padding


def _ticks(start: float, end: float) -> list[float]:
    rough = (end - start) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough)
    return [k * step for k in range(math.ceil(start / step), math.floor(end / step) + 1)]


def _tick_label(value: float, quantity: Quantity) -> str:
    unit = " %" if quantity.unit == " %" else ""
    return f"{round(value * quantity.scale, 6):g}{unit}".replace("-", "−")
