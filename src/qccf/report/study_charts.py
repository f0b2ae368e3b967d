"""The two decision-only studies as figures, with what training runs say to the savings beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.config import Scenario, load_scenario
from qccf.report.charts import Chart, Panel, Series
from qccf.report.claims import PAPERS_SAVINGS, energy_saved
from qccf.report.intervals import Estimate, band, estimate
from qccf.report.records import Family
from qccf.report.style import run_style
from qccf.studies import FACTORS, PAYERS, SOLVERS, Factor

Study = dict[str, Any]

# Solvers are no policies: the exact one keeps QCCF's look.
SOLVER_STYLES = {
    "exact": ("#0072B2", "o"),
    "genetic, closed form": ("#D55E00", "^"),
    "genetic, exact bits": ("#CC79A7", "v"),
    "assignment, closed form": ("#009E73", "D"),
}


@dataclass(frozen=True)
class SavingRow:
    """QCCF's savings with one setting at one value."""

    factor: Factor
    value: Any
    savings: dict[str, Estimate]
    trained: bool = False

    @property
    def shown_value(self) -> str:
        suffix = ", trained" * self.trained
        if isinstance(self.value, str):
            return PAYERS[self.value][1] + suffix
        number = f"{self.value / 1e6:g} MHz" if self.factor.unit == "Hz" else f"{self.value:g} {self.factor.unit}"
        return number.strip() + suffix


def saving_rows(studies: Sequence[Study]) -> list[SavingRow]:
    """In the order of the factors and their values."""
    rows = []
    for factor in FACTORS:
        mine = [s for s in studies if s["study"] == "savings" and s["factor"] == factor.name]
        for study in sorted(mine, key=lambda s: factor.values.index(s["value"]) if s["value"] in factor.values else 0):
            ours = np.array(study["energy_j"]["qccf"])
            savings = {name: estimate(1.0 - ours / np.array(study["energy_j"][name])) for name in PAPERS_SAVINGS}
            rows.append(SavingRow(factor, study["value"], savings))
    return rows


def trained_rows(groups: Sequence[Family]) -> list[SavingRow]:
    """The same savings, at the highest β, from training runs of the first task that differ in one factor at most."""
    usual = load_scenario("femnist")
    rows = []
    for family in groups:
        setting = family.comparisons()[-1]
        savings = {
            name: estimate(energy_saved(b, q) for b, q in family.paired((setting, name), (setting, "qccf")))
            for name in PAPERS_SAVINGS
        }
        if family.task != "femnist" or not all(e.count for e in savings.values()):
            continue
        changed = [factor for factor in FACTORS if _value(family.scenario, factor) != _value(usual, factor)]
        for factor in FACTORS if not changed else changed if len(changed) == 1 else ():
            value = _value(family.scenario, factor)
            if factor.key == "principle.patience" and not value:
                value = family.rounds // 10  # what principle takes by itself
            rows.append(SavingRow(factor, value, savings, trained=True))
    return rows


def _value(scenario: Scenario, factor: Factor) -> Any:
    """What a scenario has for a factor; who pays for a missed deadline is the policy's own rule in every scenario."""
    section, _, name = factor.key.partition(".")
    return getattr(getattr(scenario, section), name) if name else factor.values[0]


def study_charts(studies: Sequence[Study], trained: Sequence[SavingRow] = ()) -> list[Chart]:
    charts = []
    solvers = [s for s in studies if s["study"] == "solvers"]
    if solvers:
        charts.append(_solvers(sorted(solvers, key=lambda s: (s["clients"], -s["channels"]))))
    rows = saving_rows(studies)
    if rows:
        seeds = min(row.savings["principle"].count for row in rows)
        charts.append(_savings(rows, trained, seeds))
    return charts


def _ends(points: Sequence[Estimate]) -> dict[str, Any]:
    known = all(point.known for point in points)
    return {"low": [p.low for p in points], "high": [p.high for p in points]} if known else {}


def _savings(rows: list[SavingRow], trained: Sequence[SavingRow], seeds: int) -> Chart:
    panels = []
    for factor in FACTORS:
        mine = [row for row in rows if row.factor == factor]
        if not mine:
            continue
        words = isinstance(mine[0].value, str)
        scale = 1e-6 if factor.unit == "Hz" else 1.0
        x: list[float] = [float(k) if words else row.value * scale for k, row in enumerate(mine)]
        series = []
        for number, name in enumerate(PAPERS_SAVINGS):
            points = [row.savings[name] for row in mine]
            colour, marker = run_style(name)
            ends = _ends(points)
            places = [place + (0.12 * number - 0.06) * words for place in x]  # side by side
            series.append(
                Series(f"against {name}", places, [p.mean for p in points], colour, marker, line=not words, **ends)
            )
            real = [row for row in trained if row.factor == factor]
            if real:
                points = [row.savings[name] for row in real]
                places = [float(factor.values.index(row.value)) if words else row.value * scale for row in real]
                shift = [place + (0.3 * number - 0.15) * words for place in places]
                means = [p.mean for p in points]
                series.append(
                    Series(f"trained, against {name}", shift, means, colour, "o", line=False, **_ends(points))
                )
        unit = "MHz" if factor.unit == "Hz" else factor.unit
        panels.append(
            Panel(
                f"{factor.name}",
                f"{factor.name} ({unit})" if unit else factor.name,
                "energy that QCCF saves",
                tuple(series),
                x_log=factor.log,
                percent=True,
                categories=tuple(str(row.value) for row in mine) if words else (),
                references=tuple((value, f"paper, {name}") for name, value in PAPERS_SAVINGS.items()),
            )
        )
    payers = "; ".join(f"{key}: {words}" for key, (_, words) in PAYERS.items())
    caption = (
        f"QCCF's savings with one setting changed at a time, β = 300, decisions only, {seeds} cells. The loss stands "
        "still in these runs, so principle's bits rise as often as its rule allows; one panel shows them rising less "
        "often. Dots are training runs, as far as there are some. Bands and bars are 95 % intervals, dotted lines the "
        f"paper's two numbers. Who pays for a missed deadline of principle: {payers}."
    )
    return Chart("savings", "What the savings hang on", caption, tuple(panels))


def _solvers(studies: list[Study]) -> Chart:
    first = studies[0]
    sizes = tuple(f"{s['clients']} × {s['channels']}" for s in studies)
    bits = []
    for name in ("exact", next(iter(SOLVERS))):
        values = np.array(first["mean_bits"][name], dtype=float)
        mean, low, high = band(values)
        ends: dict[str, Any] = {"low": low, "high": high} if len(values) > 1 else {}
        bits.append(Series(name, np.arange(1.0, len(mean) + 1.0), mean, *SOLVER_STYLES[name], **ends))
    panels = [
        Panel(f"(a) Bits, {sizes[0]}", "round", "mean bits a parameter", tuple(bits), integers=True),
        Panel(
            "(b) Energy against exact decisions",
            "clients × channels",
            "more energy in the whole run",
            tuple(_points(studies, name, _more_share)
                  for name in SOLVERS),
            percent=True,
            categories=sizes,
        ),
        Panel(
            "(c) Energy against exact decisions",
            "clients × channels",
            "more energy in the whole run (J)",
            tuple(_points(studies, name, _more_j)
                  for name in SOLVERS),
            categories=sizes,
        ),
        Panel(
            "(d) Gap on the same rounds",
            "clients × channels",
            "(J − J exact)/V a round (J)",
            tuple(_points(studies, name, _gap_j) for name in SOLVERS),
            categories=sizes,
        ),
    ]  # fmt: skip
    caption = (
        "What the paper's own pair, the genetic algorithm with the closed form, decides instead of the exact solver, "
        f"and each half of it alone. Decisions only, {first['rounds']} rounds, {len(first['energy_j']['exact'])} "
        "cells, 95 % intervals. (b) and (c): each left to itself for the whole run. (d): on the rounds of the exact "
        "run; dividing J by V states in joules all that is lost, learning included."
    )
    return Chart("solvers", "What the paper's own solvers decide, and what their gap costs", caption, tuple(panels))


def _more_share(study: Study, name: str) -> Any:
    return np.array(study["energy_j"][name]) / np.array(study["energy_j"]["exact"]) - 1.0


def _more_j(study: Study, name: str) -> Any:
    return np.array(study["energy_j"][name]) - np.array(study["energy_j"]["exact"])


def _gap_j(study: Study, name: str) -> Any:
    return np.array(study["gap_j"][name])


def _points(studies: list[Study], name: str, of: Any) -> Series:
    points = [estimate(of(study, name)) for study in studies]
    ends: dict[str, Any] = _ends(points)
    offset = 0.12 * (list(SOLVERS).index(name) - 1)
    x = [k + offset for k in range(len(studies))]
    return Series(name, x, [p.mean for p in points], *SOLVER_STYLES[name], line=False, **ends)
