"""The report: one HTML file that needs nothing else, with the claims on top."""

import base64
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Any

from qccf._version import __version__
from qccf.core.intervals import estimate
from qccf.paper.claims import CLAIMS, Judged, judge
from qccf.paper.claims_table import claims_to_csv
from qccf.paper.diagnosis import evidence, lacking, read_notes, unsettled
from qccf.paper.families import PAPERS_MEAN_SIZE, Family, families
from qccf.paper.findings import Finding
from qccf.paper.studies import FACTORS
from qccf.paper.verdicts import QUANTITIES, RULES, SIGNS, Answer
from qccf.report.figures.chart import Chart, chart_to_csv, chart_to_json, draw
from qccf.report.figures.paper import family_charts
from qccf.report.figures.studies import SavingRow, saving_rows, study_charts, trained_rows
from qccf.report.page.markdown import to_html
from qccf.report.page.provenance import literal_table, plural, settings_section
from qccf.rounds.run import Run

VERDICT_CLASSES: dict[Answer, str] = {
    "holds": "holds", "partly": "partly", "does not hold": "fails", "not settled": "unknown",
    "not measurable": "unknown",
}  # fmt: skip
CLAIMS_FILE = "claims.csv"


@dataclass(frozen=True)
class Manifest:
    """What a reproduction was asked to do, and what of it could not be done."""

    command: str = ""
    scale: str = ""
    not_run: tuple[tuple[str, str], ...] = ()
    """Tasks and why they were left out."""
    failed: tuple[tuple[str, str], ...] = ()
    """Runs and what went wrong."""
    unfinished: int = 0


@dataclass(frozen=True)
class Report:
    """The page and the files that it offers, by name."""

    page: str
    files: dict[str, bytes]
    judged: list[Judged]
    charts: list[Chart] = field(default_factory=list)


def build_report(
    records: Sequence[Run],
    studies: Sequence[dict[str, Any]],
    manifest: Manifest,
    notes: str = "",
    varied: Sequence[Run] = (),
) -> Report:
    """Judge, draw and write; `records` may be anybody's runs, `notes` what was written about their verdicts.

    Runs that have not come to their end are left out, for their totals are not comparable; if none has, they are shown.
    Of `varied` runs only the savings are shown, beside the studies.
    """
    ended = [record for record in records if record.finished]
    groups = families(ended or records)
    judged: list[Judged] = []
    charts: list[Chart] = []
    sections = []
    for k, family in enumerate(groups):
        before = sum(other.key == family.key for other in groups[:k])
        suffix = f"-{family.key}" + (f"-{before}" if before else "")
        mine = family_charts(family, suffix)
        verdicts = judge(family)
        judged += verdicts
        charts += mine
        sections.append((family, verdicts, mine, suffix))
    trained = trained_rows([*groups, *families(varied)])
    extra = study_charts(studies, trained)
    charts += extra
    files = {name: data for chart in charts for name, data in _files(chart).items()}
    shown = [(one, one.claim.chart + suffix) for _, verdicts, _, suffix in sections for one in verdicts]
    files[CLAIMS_FILE] = claims_to_csv(shown).encode()
    rows = saving_rows(studies)
    body = [
        _header(groups, judged, manifest, len(records) - len(ended), studied=bool(extra)),
        _claims_section(sections, files[CLAIMS_FILE]),
        _diagnosis_section(judged, notes),
        _results_section(groups),
        '<h2 id="figures">Figures</h2>',
        _hint(),
        *(_figure(chart, files) for _, _, mine, _ in sections for chart in mine),
    ]
    if extra:
        body += ['<h2 id="studies">Decisions alone: solvers and sensitivity</h2>', *(_figure(c, files) for c in extra)]
    if rows:
        every = [*rows, *trained]
        body.append(_savings_table(sorted(every, key=lambda row: FACTORS.index(row.factor))))
    body += [
        '<h2 id="deviations">Deviations, baselines and choices</h2>',
        to_html(_asset("deviations.md").partition("\n")[2], heading=3),
        literal_table(),
        settings_section(groups, varied, manifest.command),
    ]
    data = json.dumps([chart_to_json(chart) for chart in charts], ensure_ascii=False).replace("</", "<\\/")
    return Report(_document("\n".join(body), data), files, judged, charts)


def _files(chart: Chart) -> dict[str, bytes]:
    figure = draw(chart)
    result = {f"{chart.key}.csv": chart_to_csv(chart).encode()}
    for kind in ("svg", "pdf"):
        buffer = io.BytesIO()
        # No dates and no versions: the same numbers give the same file.
        figure.savefig(buffer, format=kind, metadata={"svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind])
        result[f"{chart.key}.{kind}"] = buffer.getvalue()
    return result


def _document(body: str, data: str) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<title>QCCF: what holds</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#claims">Skip to the claims</a>\n'
        f"<main>\n{body}\n</main>\n"
        f'<script type="application/json" id="charts">{data}</script>\n'
        f"<script>\n{_asset('page.js')}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("qccf.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _header(groups: list[Family], judged: list[Judged], manifest: Manifest, unfinished: int, *, studied: bool) -> str:
    counts: Counter[Answer] = Counter(one.verdict for one in judged)
    tally = "".join(f"<li>{_verdict(v)}: {counts[v]}</li>" for v in VERDICT_CLASSES if counts[v])
    seeds = sorted({record.seed for family in groups for record in family.records})
    runs = sum(len(family.records) for family in groups)
    lines = [
        "<h1>Doubly adaptive quantization in wireless federated learning: what holds</h1>",
        "<p>The experiments of “Energy-Efficient Wireless Federated Learning via Doubly Adaptive Quantization”, run "
        f"again with <code>qccf</code> {__version__}: {runs} training runs, {plural(len(seeds), 'seed')}, "
        f"{', '.join(f'{family.rounds} rounds on {family.title}' for family in groups)}.</p>",
    ]
    for family in groups:
        source = str(family.records[0].summary["data"])
        loud = ' class="note"' if family.records[0].summary.get("synthetic") else ""
        lines.append(f"<p{loud}>Data of {escape(family.title)}: {escape(source)}.</p>")
        data, device = family.scenario.data, family.scenario.device
        if data.dataset_size_mean != PAPERS_MEAN_SIZE:
            lines.append(
                f'<p class="note">On {escape(family.title)} a client has {data.dataset_size_mean:g} samples on '
                f"average, not the paper's {PAPERS_MEAN_SIZE:g}, at {device.cycles_per_sample:g} cycles each. “β = "
                "150, scaled” is the paper's 150 in the same proportion. Accuracies are those of so much data.</p>"
            )
    if manifest.scale == "smoke":
        lines.append(
            '<p class="note">This is a smoke test: it shows that everything runs. Three rounds say nothing about '
            "learning, and its verdicts mean nothing.</p>"
        )
    for task, reason in manifest.not_run:
        lines.append(f'<p class="note">Task {escape(task)} was not run: {escape(reason)}.</p>')
    for label, sentence in manifest.failed:
        lines.append(f'<p class="note">A run failed, {escape(label)}: {escape(sentence)}</p>')
    if unfinished:
        fate = "left out" if groups[0].records[0].finished else "shown as far as they go, and not judged"
        lines.append(f'<p class="note">Runs that have not come to their end: {unfinished}, {fate}.</p>')
    if manifest.unfinished:
        lines.append(f'<p class="note">Of the plan, {manifest.unfinished} runs or studies are not finished yet.</p>')
    if tally:
        lines.append(f'<ul class="tally">{tally}</ul>')
    links = ("claims", "diagnosis", "results", "figures", "studies", "deviations", "settings")
    items = "".join(
        f'<li><a href="#{name}">{name.capitalize()}</a></li>' for name in links if studied or name != "studies"
    )
    return "\n".join([*lines, f'<nav aria-label="Sections"><ul>{items}</ul></nav>'])


def _claims_section(sections: Sequence[tuple[Family, list[Judged], list[Chart], str]], table: bytes) -> str:
    link = f'<a download="{CLAIMS_FILE}" href="{_data_uri(table, "text/csv")}">CSV</a>'
    lines = [
        '<h2 id="claims">Claims</h2>',
        f"<p>Every number here as a table: {link}. Ours are means with 95 % intervals over seeds (Student's t), paired "
        "by seed wherever two runs are compared. "
        f"{', '.join(f'{SIGNS[answer]} {answer}' for answer in VERDICT_CLASSES)}: a part is not settled if "
        "its interval contains both answers, and not measurable without an interval. Intervals are not widened for "
        "their number: of twenty comparisons in which nothing differs, about one will seem settled.</p>",
    ]
    for family, judged, charts, suffix in sections:
        keys = {chart.key for chart in charts}
        seeds = len({record.seed for record in family.records})
        rows = "".join(_claim_row(one, suffix, keys, seeds) for one in judged)
        caption = f"{family.title}, {plural(seeds, 'seed')}"
        lines.append(
            f'<div class="wide"><table class="claims stack"><caption>{escape(caption)}</caption><thead><tr>'
            '<th scope="col">What the paper says</th><th scope="col">Where</th><th scope="col">Here</th>'
            f'<th scope="col">Verdict</th></tr></thead><tbody>{rows}</tbody></table></div>'
        )
    rules = _listed((f"{name.capitalize()}.", rule) for name, rule in RULES.items())
    margins = ", ".join(quantity.margin_shown() for quantity in QUANTITIES)
    each = _listed((claim.words, claim.rule) for claim in CLAIMS)
    lines.append(
        "<details><summary>How each verdict is reached</summary><p>Rules and margins are the same for every run "
        f"and favour no side.</p>{rules}<p>Margins, changes too small to matter: {margins}.</p>{each}</details>"
    )
    return "\n".join(lines)


def _claim_row(one: Judged, suffix: str, charts: set[str], seeds: int) -> str:
    claim, chart = one.claim, f"{one.claim.chart}{suffix}"
    parts = "".join(
        f'<li><span class="verdict {VERDICT_CLASSES[f.verdict]}" title="{f.verdict}">{SIGNS[f.verdict]}</span> '
        f'<span class="part">{escape(f.part)}{": " if f.part else ""}</span>{escape(f.value)}{_fewer(f, seeds)}</li>'
        for f in one.findings
    )
    link = f'<br><a href="#{chart}">figure</a>' if chart in charts else ""
    number = f"<br>{escape(claim.paper)}" if claim.paper else ""
    return (
        f'<tr id="claim-{claim.key}{suffix}"><td>{escape(claim.words)}</td>'
        f'<td class="paper" data-head="Paper">{escape(claim.figure)}{number}{link}</td>'
        f'<td data-head=""><ul class="parts">{parts}</ul></td>'
        f'<td data-head="Verdict">{_verdict(one.verdict)}</td></tr>'
    )


def _fewer(finding: Finding, seeds: int) -> str:
    """Where numbers rest on fewer seeds than there are."""
    counts = sorted({m.estimate.count for m in finding.measures if 0 < m.estimate.count < seeds})
    return f" ({' or '.join(map(str, counts))} of {seeds} seeds)" if counts else ""


def _verdict(verdict: Answer) -> str:
    sign = SIGNS[verdict]
    return f'<span class="verdict {VERDICT_CLASSES[verdict]}"><span aria-hidden="true">{sign}</span> {verdict}</span>'


def _listed(items: Iterable[tuple[str, str]]) -> str:
    return (
        "<ul>" + "".join(f"<li><strong>{escape(head)}</strong> {escape(text)}</li>" for head, text in items) + "</ul>"
    )


def _diagnosis_section(judged: list[Judged], notes: str) -> str:
    """Each advantage that is not borne out: the numbers behind it, and the cause that was written down."""
    written = read_notes(notes)
    lines = ['<h2 id="diagnosis">Where a claimed advantage does not appear as claimed</h2>']
    for one in lacking(judged):
        lines.append(f"<h3>{escape(one.family.title)}: {escape(one.claim.words)} {_verdict(one.verdict)}</h3>")
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in evidence(one))
        lines.append(f"<ul>{items}</ul>" if items else "")
        note = written.get((one.claim.key, one.family.key))
        if note is None:
            lines.append('<p class="note">Nobody has written down the cause yet.</p>')
            continue
        if note.verdict != one.verdict:
            lines.append(f'<p class="note">Written when the verdict was “{escape(note.verdict)}”; check it again.</p>')
        lines.append(to_html(note.text, heading=4))
    open_ones = unsettled(judged)
    if open_ones:
        items = "".join(f"<li>{escape(one.family.title)}: {escape(one.claim.words)}</li>" for one in open_ones)
        lines.append(f"<p>Neither shown nor refuted by these runs, see their numbers above:</p><ul>{items}</ul>")
    if len(lines) == 1:
        lines.append("<p>Nowhere in these runs: each of the claimed advantages holds.</p>")
    return "\n".join(lines)


def _results_section(groups: list[Family]) -> str:
    heads = (
        "policy", "final accuracy", "energy (J)", "for computing", "bits, all rounds", "bits, last tenth", "take part",
        "missed",
    )  # fmt: skip
    top = "".join(f'<th scope="col"{" class=number" if k else ""}>{head}</th>' for k, head in enumerate(heads))
    lines = [
        '<h2 id="results">Results</h2>',
        "<p>Means over seeds with 95 % intervals. The final accuracy is the mean over the last tenth of the rounds, "
        "each evaluated on a part of the test set.</p>",
    ]
    for family in groups:
        for setting in family.comparisons():
            rows = []
            for name in family.labels(setting):
                mine = family.of(setting, name)
                cells = [
                    estimate(r.final_accuracy() for r in mine).shown(".1f", 100, " %"),
                    estimate(float(r.energy_j[-1]) for r in mine).shown(".3g"),
                    f"{estimate(r.computing_share() for r in mine).mean:.0%}",
                    estimate(r.mean_upload_bits() for r in mine).shown(".2f"),
                    estimate(r.final_bits() for r in mine).shown(".2f"),
                    f"{sum(float(r.clients['participated'].mean()) for r in mine) / len(mine):.0%}",
                    f"{sum(r.missed_share() for r in mine) / len(mine):.0%}",
                ]
                numbers = "".join(
                    f'<td class="number" data-head="{head}">{cell}</td>'
                    for head, cell in zip(heads[1:], cells, strict=True)
                )
                rows.append(f'<tr><th scope="row">{escape(name)}</th>{numbers}</tr>')
            title = f"{family.title}, {setting.beta_label}, V = {setting.energy_weight:g}"
            lines.append(
                f'<div class="wide"><table class="stack"><caption>{escape(title)}</caption><thead><tr>{top}</tr>'
                f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
            )
    return "\n".join(lines)


def _hint() -> str:
    return (
        "<p>Point at a figure to read values, drag a box or press + and − to zoom, double-click or press 0 to reset, "
        "and switch a curve off by its name. With the keyboard: Tab to a figure, then the arrow keys. The files are "
        "vectors for papers, made from the same numbers.</p>"
        "<noscript><p class='note'>The figures on this page need JavaScript; the SVG and PDF files do not.</p>"
        "</noscript>"
    )


def _figure(chart: Chart, files: dict[str, bytes]) -> str:
    links = "".join(
        f'<a download="{chart.key}.{kind}" href="{_data_uri(files[f"{chart.key}.{kind}"], mime)}">{kind.upper()}</a>'
        for kind, mime in (("svg", "image/svg+xml"), ("pdf", "application/pdf"), ("csv", "text/csv"))
    )
    return (
        f'<figure class="chart" id="{chart.key}"><h3>{escape(chart.title)}</h3>'
        f'<div class="legend" role="group" aria-label="Curves"></div><div class="panels"></div>'
        f'<figcaption><p>{escape(chart.caption)}</p><p class="downloads">Download: {links}</p></figcaption></figure>'
    )


def _data_uri(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _savings_table(rows: list[SavingRow]) -> str:
    lines = "".join(
        f"<tr><td>{escape(row.factor.name)}</td><td>{escape(row.shown_value)}</td>"
        + "".join(
            f'<td class="number" data-head="against {name}">{e.shown(".1f", 100, " %")}</td>'
            for name, e in row.savings.items()
        )
        + "</tr>"
        for row in rows
    )
    return (
        '<div class="wide"><table class="stack">'
        "<caption>Energy that QCCF saves, one setting changed at a time</caption>"
        '<thead><tr><th scope="col">setting</th><th scope="col">value</th><th scope="col" class="number">against '
        'principle (paper: 48.21 %)</th><th scope="col" class="number">against same-size (paper: 35.42 %)</th></tr>'
        f"</thead><tbody>{lines}</tbody></table></div>"
    )
