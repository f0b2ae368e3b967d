"""The report: one HTML file that needs no other file. The runs come first, the paper's claims second."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from qccf._version import __version__
from qccf.core.files import one_at_a_time, write_text_whole, write_whole
from qccf.paper.claims import CAUSES, CLAIMS, Judged
from qccf.paper.claims_table import claims_to_csv
from qccf.paper.families import PAPERS_MEAN_SIZE, Family, families
from qccf.paper.findings import PAPERS_SAVINGS
from qccf.paper.studies import FACTORS
from qccf.paper.verdicts import QUANTITIES, RULES, SIGNS, Answer
from qccf.reports.figures.chart import Chart, chart_to_csv, chart_to_json
from qccf.reports.figures.drawing import chart_files
from qccf.reports.figures.overview import KEY as OVERVIEW
from qccf.reports.figures.overview import overview_chart
from qccf.reports.figures.paper import family_charts
from qccf.reports.figures.studies import saving_rows, study_charts, trained_rows
from qccf.reports.figures.style import Styles
from qccf.reports.page.claims import ClaimsSection, claims_section
from qccf.reports.page.measured import MEASURED_HEADS, measured_tables
from qccf.reports.page.numbers import listed
from qccf.reports.page.opening import Manifest, all_remarks, opening_sentences
from qccf.reports.page.provenance import literal_table, page_versions, provenance, run_name, run_versions
from qccf.reports.page.render import asset, render
from qccf.reports.page.results import (
    DETAIL_HEADS,
    EPSILON_HEAD,
    OVERVIEW_HEADS,
    TARGET_HEADS,
    Group,
    detail_tables,
    overview_groups,
    overview_table,
    results_data,
    target_tables,
)
from qccf.rounds.run import Run, privacy_sentences
from qccf.rounds.targets import evaluation_shown

VERDICT_CLASSES: dict[Answer, str] = {
    "holds": "holds", "holds in part": "partly", "tie": "tie", "refuted": "fails", "not settled": "unknown",
    "not measurable": "unknown",
}  # fmt: skip
CLAIMS_FILE = "claims.csv"
FIRST_FIGURES = ("policies", "weights", "bits", "efficiency", "lost")
"""In this order figures are shown, until there are `MOST_PANELS`; the others are folded."""
MOST_PANELS = 12
MOST_REMARKS = 3
MOST_FORESTS = 2


@dataclass(frozen=True)
class ReportPage:
    """The page and the files that it offers, by name."""

    page: str
    files: dict[str, bytes]
    judged: list[Judged]
    charts: list[Chart] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    """What the page opens with."""
    silences: list[str] = field(default_factory=list)
    """Why runs do not judge the paper's claims."""
    results: list[dict[str, Any]] = field(default_factory=list)

    def write(self, out: Path) -> None:
        """Write the page, and its figures into the folder `figures` beside it."""
        figures = out.parent / "figures"
        with one_at_a_time(figures):
            for name, data in self.files.items():
                write_whole(figures / name, partial(_write_bytes, data))
            write_text_whole(out, self.page)


@dataclass(frozen=True)
class Section:
    """The charts and verdicts of one family; `suffix` distinguishes its ids and files from those of others."""

    family: Family
    suffix: str
    claims: ClaimsSection
    charts: list[Chart]

    def chart_of(self, one: Judged) -> str:
        """The key of the figure that shows a claim; the overview where a family needs no figure of its own."""
        key = one.claim.chart + self.suffix
        return key if key in {chart.key for chart in self.charts} else OVERVIEW


def _write_bytes(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def build_report(
    runs: Sequence[Run],
    studies: Sequence[dict[str, Any]],
    manifest: Manifest,
    notes: str = "",
    varied: Sequence[Run] = (),
    targets: Sequence[float] = (),
) -> ReportPage:
    """Draw the figures of any runs, judge the claims that they can judge, and write the page.

    `notes` explains verdicts (`diagnosis.md`). Unfinished runs are left out because their totals are not comparable;
    if no run is finished, all are shown. `targets` are the accuracies of the table that tells what it took to reach
    them. Of the `varied` runs the page shows only the savings, beside the studies.
    """
    finished = [run for run in runs if run.finished]
    groups = families(finished or runs)
    styles = Styles([*runs, *varied])
    top = overview_groups(groups)
    overview = overview_chart(_panels(top), styles)
    sections = _sections(groups, top, styles, notes, reproduced=bool(manifest.command))
    trained = trained_rows([*groups, *families(varied)])
    study_figures = study_charts(studies, trained, styles)
    charts = [overview, *(chart for section in sections for chart in section.charts), *study_figures]
    judged = [one for section in sections for one in section.claims.judged]
    files = {name: data for chart in charts for name, data in _files(chart).items()}
    if judged:
        shown = [(one, section.chart_of(one)) for section in sections for one in section.claims.judged]
        files[CLAIMS_FILE] = claims_to_csv(shown).encode()
    rows = saving_rows(studies)
    reported = [run for family in groups for run in family.records]
    remarks = all_remarks(groups, manifest, unfinished=len(runs) - len(finished), shown=not finished)
    sentences = opening_sentences(groups, remarks)
    private = privacy_sentences(reported)
    silences = list(dict.fromkeys(section.claims.silence for section in sections if section.claims.silence))
    page = render(
        "report.html",
        version=__version__,
        title=f"Energy and accuracy on {listed(dict.fromkeys(family.dataset_title for family in groups))}",
        sections_shown=_contents(judged=bool(judged), studies=bool(study_figures)),
        sentences=sentences,
        remarks=remarks,
        most_remarks=MOST_REMARKS,
        overview=overview,
        overview_tables=[overview_table(group, titled=len(top) > 1, private=bool(private)) for group in top],
        privacy=private,
        charged=" | ".join(dict.fromkeys(run.scenario.accounts.charged for run in reported)),
        several_seeds=len({run.seed for run in reported}) > 1,
        overview_heads=(*OVERVIEW_HEADS, *([EPSILON_HEAD] if private else [])),
        manifest=manifest,
        papers_mean_size=PAPERS_MEAN_SIZE,
        counts=Counter(one.verdict for one in judged),
        signs=SIGNS,
        verdict_classes=VERDICT_CLASSES,
        sections=sections,
        judging=[section for section in sections if section.claims.judged],
        silences=silences,
        most_forests=MOST_FORESTS,
        unfolded=_unfolded(sections),
        files=files,
        claims=CLAIMS,
        causes=CAUSES,
        claims_file=CLAIMS_FILE,
        rules=RULES,
        margins=[quantity.margin_shown() for quantity in QUANTITIES],
        results=[(family, detail_tables(family)) for family in groups],
        result_heads=DETAIL_HEADS,
        targets=[(family, target_tables(family, targets)) for family in groups],
        target_heads=TARGET_HEADS,
        target_rule=evaluation_shown((finished or runs)[0].scenario.evaluation),
        measured=measured_tables(reported),
        measured_heads=MEASURED_HEADS,
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
    return ReportPage(page, files, judged, charts, sentences, silences, results_data(groups))


def _panels(top: Sequence[Group]) -> dict[str, dict[str, list[Run]]]:
    """The runs of each panel of the overview by its title and by label."""
    titles = [family.setting_title(setting) for family, setting in top]
    return {
        title: {label: family.of(setting, label) for label in family.labels(setting)}
        for title, (family, setting) in zip(titles, top, strict=True)
    }


def _sections(
    groups: Sequence[Family], top: Sequence[Group], styles: Styles, notes: str, *, reproduced: bool
) -> list[Section]:
    sections = []
    used: Counter[str] = Counter()
    for family in groups:
        name = _file_name(family.key)
        suffix = f"-{name}" + (f"-{used[name]}" if used[name] else "")
        used[name] += 1
        charts = family_charts(family, suffix, styles)
        if {(id(family), s) for s in family.comparisons()} <= {(id(f), s) for f, s in top} and not family.weights():
            charts = [chart for chart in charts if chart.key != f"efficiency{suffix}"]  # the overview shows it
        sections.append(Section(family, suffix, claims_section(family, notes, reproduced=reproduced), charts))
    return sections


def _contents(*, judged: bool, studies: bool) -> list[tuple[str, str]]:
    """The ids and names of the sections that this page has."""
    return [
        ("overview-section", "Overview"),
        ("figures", "Figures"),
        *([("studies", "Studies")] if studies else []),
        *([("claims", "Claims")] if judged else []),
        ("results", "Results"),
        ("settings", "Settings"),
    ]


def _unfolded(sections: Sequence[Section]) -> set[str]:
    """The keys of the figures that are shown at once: a page must not be too long to find something."""
    keys: set[str] = set()
    panels = 0
    for kind in FIRST_FIGURES:
        for section in sections:
            for chart in section.charts:
                if chart.key == kind + section.suffix and panels + len(chart.panels) <= MOST_PANELS:
                    keys.add(chart.key)
                    panels += len(chart.panels)
    return keys


def _file_name(text: str) -> str:
    """Text from a run's folder as a part of a file name and of an HTML id: it cannot leave the folder."""
    return re.sub(r"[^\w+-]+", "-", text).strip("-") or "data"


def _files(chart: Chart) -> dict[str, bytes]:
    drawn = {f"{chart.key}.{kind}": data for kind, data in chart_files(chart, "svg", "pdf").items()}
    return {f"{chart.key}.csv": chart_to_csv(chart).encode(), **drawn}
