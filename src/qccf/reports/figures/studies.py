"""The two studies without training as figures, with the savings of training runs beside them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from qccf.core.intervals import Estimate, estimate
from qccf.paper.families import Family, dotted, fixed_settings, setting_of
from qccf.paper.findings import PAPERS_SAVINGS
from qccf.paper.run_measures import energy_saved
from qccf.paper.studies import FACTORS, PAYERS, SOLVERS, Factor
from qccf.reports.figures.builders import BITS_LABEL, estimated
from qccf.reports.figures.chart import Chart, Panel, Series
from qccf.reports.figures.style import PALETTE, Style, Styles
from qccf.settings.loading import Scenario, load_scenario
from qccf.settings.schema import PAPERS_CODEC

Study = dict[str, Any]

# The first is QCCF's own style.
SOLVER_STYLES = dict(zip(("exact", *SOLVERS), map(Style, PALETTE, "o^vD"), strict=False))


@dataclass(frozen=True)
class SavingRow:
    """QCCF's savings with one setting at one value; `source` names the training runs, if they come from training."""

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
    """The savings of the studies, in the order of the factors and their values."""
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
    """Savings of one family per baseline and seed, and the one setting in which it differs from the preset."""

    family: Family
    changed: Factor | None
    savings: dict[str, dict[int, float]]

    @property
    def seeds(self) -> set[int]:
        return set.intersection(*(set(values) for values in self.savings.values()))


def trained_rows(groups: Sequence[Family]) -> list[SavingRow]:
    """The same savings from training runs of the first task that differ from the preset in at most one factor.

    Where a factor has several values, the preset's value uses only the seeds of the other values, because a seed
    determines the cell.
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
                value = max(2, one.family.rounds // 10)  # principle's default
            if mine:
                savings = {name: estimate(of[seed] for seed in sorted(mine)) for name, of in one.savings.items()}
                source = f"{one.family.dataset_title}, {one.family.rounds} rounds"
                rows.append(SavingRow(factor, value, savings, source))
    return rows


def _trained(family: Family) -> _Trained | None:
    """None if the runs have another task, codec, V or β, or differ from the preset in more than one factor."""
    usual = load_scenario("femnist", ["control.form=paper"])
    own, preset = fixed_settings(family.scenario), fixed_settings(usual)
    keys = {factor.key for factor in FACTORS}
    free = {"federation.rounds", "device.cycles_per_sample"}
    compared = [k for k in own if not k.startswith(("data.", "evaluation.")) and k not in free]
    different = [k for k in compared if k not in preset or own[k] != preset[k]]  # options are keys of their own
    changed = [factor for factor in FACTORS if factor.key in different]
    finished = [run for run in family.records if run.finished and run.codec == PAPERS_CODEC]
    weight = usual.control.paper.energy_weight
    fitting = [s for s in {setting_of(run) for run in finished} if s.is_papers(300.0) and s.energy_weight == weight]
    if family.task != "femnist" or not fitting or len(changed) > 1 or not set(different) <= keys:
        return None
    runs = replace(family, records=tuple(finished))
    savings = {
        name: {q.seed: energy_saved(b, q) for b, q in runs.paired((fitting[0], name), (fitting[0], "qccf"))}
        for name in PAPERS_SAVINGS
    }
    return _Trained(family, changed[0] if changed else None, savings)


def _value(scenario: Scenario, factor: Factor) -> Any:
    """A scenario's value of a factor. The rule for missed deadlines is the policy's own in every scenario."""
    return dict(dotted(scenario.model_dump())).get(factor.key, factor.values[0])


def study_charts(studies: Sequence[Study], trained: Sequence[SavingRow], styles: Styles) -> list[Chart]:
    charts = []
    solvers = [s for s in studies if s["study"] == "solvers"]
    if solvers:
        charts.append(_solvers(sorted(solvers, key=lambda s: (s["clients"], -s["channels"]))))
    rows = saving_rows(studies)
    if rows:
        seeds = min(row.savings["principle"].count for row in rows)
        rounds = max(study["rounds"] for study in studies if study["study"] == "savings")
        charts.append(_savings(rows, trained, styles, seeds, rounds))
    return charts


def _savings(rows: list[SavingRow], trained: Sequence[SavingRow], styles: Styles, seeds: int, rounds: int) -> Chart:
    panels = []
    for factor in FACTORS:
        mine = [row for row in rows if row.factor == factor]
        if not mine:
            continue
        words = isinstance(mine[0].value, str)
        tried = [row.value for row in mine]
        scale = 1e-6 if factor.unit == "Hz" else 1.0
        series = []
        for number, name in enumerate(PAPERS_SAVINGS):
            style = styles.policies[name]
            shift = (0.12 * number - 0.06) * words  # points of one category stand side by side
            x = [float(k) + shift if words else value * scale for k, value in enumerate(tried)]
            kind: Literal["line", "points"] = "points" if words else "line"
            series.append(estimated(f"against {name}", x, [row.savings[name] for row in mine], style, kind))
            real = [row for row in trained if row.factor == factor and (not words or row.value in tried)]
            if real:
                shift = (0.3 * number - 0.15) * words
                x = [tried.index(row.value) + shift if words else row.value * scale for row in real]
                dots = Style(style.colour, "o")
                estimates = [row.savings[name] for row in real]
                series.append(estimated(f"trained, against {name}", x, estimates, dots, "points"))
        unit = "MHz" if factor.unit == "Hz" else factor.unit
        panels.append(
            Panel(
                factor.name,
                f"{factor.name} ({unit})" if unit else factor.name,
                "energy that QCCF saves",
                tuple(series),
                x_log=factor.log,
                percent=True,
                categories=tuple(map(str, tried)) if words else (),
                references=tuple((value, f"paper, {name}") for name, value in PAPERS_SAVINGS.items()),
            )
        )
    sources = "; ".join(dict.fromkeys(row.source for row in trained))
    dots_caption = (
        f"Dots are training runs ({sources}) with the seeds that the table gives; in them principle's bits rise only "
        "when the loss stalls. "
    )
    payers = "; ".join(f"{key}: {words.removeprefix(f'{key}: ')}" for key, (_, words) in PAYERS.items())
    caption = (
        "QCCF's savings when one setting of the first task's preset changes, β = 300, decisions without training, "
        f"{rounds} rounds, {seeds} cells. The studies use the preset where training runs override it. The loss is "
        "constant in the studies, so principle's bits rise as often as its rule allows; one panel shows what happens "
        f"when they rise less often. {dots_caption if sources else ''}Bands and bars are 95 % intervals of the mean "
        "(Student's t), dotted lines the paper's two numbers. Who pays for a missed deadline of principle: "
        f"{payers}."
    )
    return Chart("savings", "What the savings depend on", caption, tuple(panels))


def _solvers(studies: list[Study]) -> Chart:
    first = studies[0]
    sizes = tuple(f"{s['clients']} × {s['channels']}" for s in studies)
    bits = []
    for name in ("exact", next(iter(SOLVERS))):
        columns = np.array(first["mean_bits"][name], dtype=float).T
        estimates = [estimate(column) for column in columns]
        bits.append(estimated(name, np.arange(1.0, len(columns) + 1.0), estimates, SOLVER_STYLES[name]))
    panels = [Panel(f"(a) Bits, {sizes[0]}", "round", BITS_LABEL, tuple(bits), integers=True)]
    for title, label, of, percent in (
        ("(b) Energy against exact decisions", "more energy in the whole run", _more_share, True),
        ("(c) Energy against exact decisions", "more energy in the whole run (J)", _more_j, False),
        ("(d) Gap on the same rounds", "(J − J exact)/V per round (J)", _gap_j, False),
    ):
        series = tuple(_solver_points(studies, name, of) for name in SOLVERS)
        panels.append(Panel(title, "clients × channels", label, series, percent=percent, categories=sizes))
    caption = (
        "Decisions of the paper's solvers (the genetic algorithm with the closed form) and of each of them alone, "
        f"compared with the exact solver. Decisions without training, {first['rounds']} rounds, "
        f"{len(first['energy_j']['exact'])} cells, 95 % intervals of the mean (Student's t). (b) and (c): each solver "
        "decides the whole run. (d): each solver decides the rounds of the exact run; J divided by V states the whole "
        "loss in joules, learning included."
    )
    return Chart("solvers", "Decisions of the paper's solvers, and the cost of their gap", caption, tuple(panels))


def _more_share(study: Study, name: str) -> Any:
    return np.array(study["energy_j"][name]) / np.array(study["energy_j"]["exact"]) - 1.0


def _more_j(study: Study, name: str) -> Any:
    return np.array(study["energy_j"][name]) - np.array(study["energy_j"]["exact"])


def _gap_j(study: Study, name: str) -> Any:
    return np.array(study["gap_j"][name])


def _solver_points(studies: list[Study], name: str, of: Callable[[Study, str], Any]) -> Series:
    estimates = [estimate(of(study, name)) for study in studies]
    offset = 0.12 * (list(SOLVERS).index(name) - 1)
    return estimated(name, [k + offset for k in range(len(studies))], estimates, SOLVER_STYLES[name], "points")
