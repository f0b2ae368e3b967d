"""The report: one HTML file that needs no other file, with the claims first."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qccf._version import __version__
from qccf.core.intervals import estimate
from qccf.paper.claims import CLAIMS, Judged, judge
from qccf.paper.claims_table import claims_to_csv
from qccf.paper.diagnosis import Note, evidence, not_confirmed, read_notes, unsettled
from qccf.paper.families import PAPERS_MEAN_SIZE, Family, Setting, families
from qccf.paper.findings import PAPERS_SAVINGS
from qccf.paper.studies import FACTORS
from qccf.paper.verdicts import QUANTITIES, RULES, SIGNS, Answer
from qccf.report.figures.chart import Chart, chart_to_csv, chart_to_json
from qccf.report.figures.drawing import chart_files
from qccf.report.figures.paper import family_charts
from qccf.report.figures.studies import saving_rows, study_charts, trained_rows
from qccf.report.figures.style import Styles
from qccf.report.page.provenance import literal_table, page_versions, provenance, run_name, run_versions
from qccf.report.page.render import asset, render
from qccf.rounds.run import Run, health_sentences

VERDICT_CLASSES: dict[Answer, str] = {
    "holds": "holds", "partly": "partly", "does not hold": "fails", "not settled": "unknown",
    "not measurable": "unknown",
}  # fmt: skip
CLAIMS_FILE = "claims.csv"
RESULT_HEADS = (
    "final accuracy", "energy (J)", "for computing", "bits, all rounds", "bits, last tenth", "participation", "missed",
    "empty rounds", "Jain's index", "error / budget",
)  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """What a reproduction was asked to do, and what it could not do."""

    command: str = ""
    scale: str = ""
    not_run: tuple[tuple[str, str], ...] = ()
    """Tasks that were left out, with the reasons."""
    failed: tuple[tuple[str, str], ...] = ()
    """Runs that failed, with the errors."""
    unfinished: int = 0


@dataclass(frozen=True)
class ReportPage:
    """The page and the files that it offers, by name."""

    page: str
    files: dict[str, bytes]
    judged: list[Judged]
    charts: list[Chart] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """The verdicts and charts of one family; `suffix` distinguishes its ids and files from those of others."""

    family: Family
    suffix: str
    judged: list[Judged]
    charts: list[Chart]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.family.records})

    @property
    def chart_keys(self) -> set[str]:
        return {chart.key for chart in self.charts}


@dataclass(frozen=True)
class Unconfirmed:
    """A claimed advantage that does not hold in full: the numbers, and the cause if somebody wrote it down."""

    judged: Judged
    evidence: list[str]
    note: Note | None


@dataclass(frozen=True)
class ResultTable:
    title: str
    rows: dict[str, list[str]]


def build_report(
    runs: Sequence[Run],
    studies: Sequence[dict[str, Any]],
    manifest: Manifest,
    notes: str = "",
    varied: Sequence[Run] = (),
) -> ReportPage:
    """Judge the claims by any runs, draw the figures and write the page; `notes` explains verdicts (`diagnosis.md`).

    Unfinished runs are left out because their totals are not comparable; if no run is finished, all are shown. Of the
    `varied` runs the page shows only the savings, beside the studies.
    """
    finished = [run for run in runs if run.finished]
    groups = families(finished or runs)
    styles = Styles([*runs, *varied])
    sections = _sections(groups, styles)
    trained = trained_rows([*groups, *families(varied)])
    study_figures = study_charts(studies, trained, styles)
    charts = [chart for section in sections for chart in section.charts] + study_figures
    judged = [one for section in sections for one in section.judged]
    files = {name: data for chart in charts for name, data in _files(chart).items()}
    shown = [(one, one.claim.chart + section.suffix) for section in sections for one in section.judged]
    files[CLAIMS_FILE] = claims_to_csv(shown).encode()
    rows = saving_rows(studies)
    reported = [run for family in groups for run in family.records]
    written = read_notes(notes)
    page = render(
        "report.html",
        version=__version__,
        manifest=manifest,
        families=groups,
        run_count=len(reported),
        seed_count=len({run.seed for run in reported}),
        unfinished_runs=len(runs) - len(finished),
        papers_mean_size=PAPERS_MEAN_SIZE,
        counts=Counter(one.verdict for one in judged),
        signs=SIGNS,
        verdict_classes=VERDICT_CLASSES,
        sections=sections,
        files=files,
        claims=CLAIMS,
        claims_file=CLAIMS_FILE,
        rules=RULES,
        margins=[quantity.margin_shown() for quantity in QUANTITIES],
        unconfirmed=[
            Unconfirmed(one, evidence(one), written.get((one.claim.key, one.family.key)))
            for one in not_confirmed(judged)
        ],
        unsettled=unsettled(judged),
        results=[table for family in groups for table in _result_tables(family)],
        result_heads=RESULT_HEADS,
        health=[pair for family in groups for pair in _health(family)],
        studies=study_figures,
        savings=sorted([*rows, *trained], key=lambda row: FACTORS.index(row.factor)) if rows else [],
        papers_savings=PAPERS_SAVINGS,
        deviations=asset("deviations.md").partition("\n")[2],
        literal_table=literal_table(),
        page_versions=page_versions(),
        run_versions=run_versions(reported),
        provenance=[provenance(family) for family in groups],
        varied=[run_name(run) for run in varied],
        chart_data=[chart_to_json(chart) for chart in charts],
    )
    return ReportPage(page, files, judged, charts)


def _sections(groups: Sequence[Family], styles: Styles) -> list[Section]:
    sections = []
    used: Counter[str] = Counter()
    for family in groups:
        name = _file_name(family.key)
        suffix = f"-{name}" + (f"-{used[name]}" if used[name] else "")
        used[name] += 1
        sections.append(Section(family, suffix, judge(family), family_charts(family, suffix, styles)))
    return sections


def _file_name(text: str) -> str:
    """Text from a run's folder as a part of a file name and of an HTML id: it cannot leave the folder."""
    return re.sub(r"[^\w+-]+", "-", text).strip("-") or "data"


def _files(chart: Chart) -> dict[str, bytes]:
    drawn = {f"{chart.key}.{kind}": data for kind, data in chart_files(chart, "svg", "pdf").items()}
    return {f"{chart.key}.csv": chart_to_csv(chart).encode(), **drawn}


def _result_tables(family: Family) -> list[ResultTable]:
    tables = []
    for setting in family.comparisons():
        rows = {label: _result_row(family.of(setting, label)) for label in family.labels(setting)}
        tables.append(ResultTable(_title(family, setting), rows))
    return tables


def _title(family: Family, setting: Setting) -> str:
    weight = "V =" if family.scenario.control.form == "paper" else "energy weight"
    return f"{family.title}, {setting.beta_label}, {weight} {setting.energy_weight:g}"


def _health(family: Family) -> list[tuple[str, list[str]]]:
    """What is wrong with the decisions of the runs, by setting; nothing where all is well."""
    found = []
    for setting in family.settings():
        runs = [run for label in family.labels(setting) for run in family.of(setting, label)]
        if sentences := health_sentences(runs):
            found.append((_title(family, setting), sentences))
    return found


def _result_row(runs: Sequence[Run]) -> list[str]:
    """The cells below `RESULT_HEADS`."""
    return [
        estimate(run.final_accuracy() for run in runs).shown(".1f", 100, " %"),
        estimate(float(run.energy_j[-1]) for run in runs).shown(".3g"),
        f"{estimate(run.computing_share() for run in runs).mean:.0%}",
        estimate(run.mean_upload_bits() for run in runs).shown(".2f"),
        estimate(run.final_bits() for run in runs).shown(".2f"),
        f"{estimate(float(run.client_columns['participated'].mean()) for run in runs).mean:.0%}",
        f"{estimate(run.missed_share() for run in runs).mean:.0%}",
        *(_mean_shown(runs, name) for name in ("empty_rounds", "jain", "error_ratio")),
    ]


def _mean_shown(runs: Sequence[Run], name: str) -> str:
    """The mean of a number in the summaries; a dash where no run has it, as in runs of older versions."""
    known = [float(run.summary[name]) for run in runs if run.summary.get(name) is not None]
    return f"{sum(known) / len(known):.3g}" if known else "–"
