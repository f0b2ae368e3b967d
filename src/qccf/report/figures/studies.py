"""The two decision-only studies as figures, with what training runs say to the savings beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qccf.core.intervals import Estimate, band, estimate
from qccf.paper.families import Family, fixed_settings, setting_of
from qccf.paper.findings import PAPERS_SAVINGS, energy_saved
from qccf.paper.studies import FACTORS, PAYERS, SOLVERS, Factor
from qccf.report.figures.chart import Chart, Panel, Series
from qccf.report.figures.style import run_style
from qccf.settings.loading import Scenario, load_scenario
from qccf.settings.schema import PAPERS_CODEC

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
    """QCCF's savings with one setting at one value; `source` says which training runs they come from, if any."""

    factor: Factor
    value: Any
    savings: dict[str, Estimate]
    source: str = ""

    @property
    def trained(self) -> bool:
        return bool(self.source)

    @property
    def shown_value(self) -> str:
        count = next(iter(self.savings.values())).count
        suffix = f", trained, {count} seed{'s' * (count > 1)}" if self.trained else ""
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


@dataclass(frozen=True)
class _Trained:
    """Savings of one family, seed by seed, and the one setting in which it differs from the preset."""

    family: Family
    changed: Factor | None
    savings: dict[str, dict[int, float]]

    @property
    def seeds(self) -> set[int]:
        return set.intersection(*(set(values) for values in self.savings.values()))


def trained_rows(groups: Sequence[Family]) -> list[SavingRow]:
    """The same savings from training runs of the first task that differ in one factor at most.

    Where a factor has several values, the preset's is taken on the seeds of the others: a seed is a cell of its own.
    """
    found = [one for one in (_trained(family) for family in groups) if one is not None and one.seeds]
    rows = []
    for factor in FACTORS:
        others = [one for one in found if one.changed == factor]
        seeds = set.union(*(one.seeds for one in others)) if others else None
        for one in [one for one in found if one.changed is None] + others:
            mine = one.seeds if seeds is None else one.seeds & seeds
            value = _value(one.family.scenario, factor)
            if factor.key == "principle.patience" and not value:
                value = max(2, one.family.rounds // 10)  # what principle takes by itself
            if mine:
                savings = {name: estimate(of[seed] for seed in sorted(mine)) for name, of in one.savings.items()}
                source = f"{one.family.dataset_title}, {one.family.rounds} rounds"
                rows.append(SavingRow(factor, value, savings, source))
    return rows


def _trained(family: Family) -> _Trained | None:
    """None where the runs are of another task or codec, of another V or β, or differ from the preset otherwise."""
    usual = load_scenario("femnist")
    own, preset = fixed_settings(family.scenario), fixed_settings(usual)
    keys = {factor.key for factor in FACTORS}
    free = {"federation.rounds", "device.cycles_per_sample"}
    different = [k for k in own if own[k] != preset[k] and not k.startswith(("data.", "evaluation.")) and k not in free]
    changed = [factor for factor in FACTORS if factor.key in different]
    ended = [record for record in family.records if record.finished and record.codec == PAPERS_CODEC]
    weight = usual.control.energy_weight
    fitting = [s for s in {setting_of(r) for r in ended} if s.is_papers(300.0) and s.energy_weight == weight]
    if family.task != "femnist" or not fitting or len(changed) > 1 or not set(different) <= keys:
        return None
    runs = replace(family, records=tuple(ended))
    savings = {
        name: {q.seed: energy_saved(b, q) for b, q in runs.paired((fitting[0], name), (fitting[0], "qccf"))}
        for name in PAPERS_SAVINGS
    }
    return _Trained(family, changed[0] if changed else None, savings)


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
        rounds = max(study["rounds"] for study in studies if study["study"] == "savings")
        charts.append(_savings(rows, trained, seeds, rounds))
    return charts


def _ends(points: Sequence[Estimate]) -> dict[str, Any]:
    """Ends of the intervals; NaN where one seed has none."""
    known = any(point.known for point in points)
    return {"low": [p.low for p in points], "high": [p.high for p in points]} if known else {}


def _savings(rows: list[SavingRow], trained: Sequence[SavingRow], seeds: int, rounds: int) -> Chart:
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
                tried = [row.value for row in mine]
                real = [row for row in real if not words or row.value in tried]
                points = [row.savings[name] for row in real]
                places = [float(tried.index(row.value)) if words else row.value * scale for row in real]
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
    sources = "; ".join(dict.fromkeys(row.source for row in trained))
    rises = "there principle's bits rise only when the loss stalls"
    dots = f"Dots are training runs ({sources}), on the seeds that the table gives; {rises}." if sources else ""
    payers = "; ".join(f"{key}: {words}" for key, (_, words) in PAYERS.items())
    caption = (
        f"QCCF's savings with one setting of the first task's preset changed at a time (whatever the training runs "
        f"override), β = 300, decisions only, {rounds} rounds, {seeds} cells. The loss stands still in these runs, so "
        "principle's bits rise as often as its rule allows; one panel shows them rising less often. "
        f"{dots} Bands and bars are 95 % intervals, dotted lines the paper's two numbers. Who pays for a missed "
        f"deadline of principle: {payers}."
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
