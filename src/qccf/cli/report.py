"""`qccf report`, and the functions that it shares with `qccf reproduce`."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qccf.cli.options import Subparsers, add_json, add_targets, add_trust, from_folder
from qccf.core.errors import FileError, QccfError
from qccf.core.files import read_inside, read_text_inside, require_inside

if TYPE_CHECKING:
    from rich.console import Console

    from qccf.paper.claims import Judged
    from qccf.reports.page.build import ReportPage
    from qccf.reports.page.opening import Manifest

MANIFEST = "reproduction.json"


def add_parser(commands: Subparsers) -> None:
    report = commands.add_parser("report", help="write one HTML page about any runs")
    report.description = "Claims, figures, settings and deviations of any runs, as one HTML file that opens offline."
    report.usage = "qccf report DIR … [options]"
    report.examples = {
        "qccf report runs/mine": "one page about all runs in a folder",
        "qccf report runs/reproduce-small --out page.html": "the page of a reproduction again, under another name",
    }
    report.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="folders of runs, folders above them, or files of recorded runs (.json)",
    )
    report.add_argument("--out", type=Path, metavar="FILE.html", help="the page (default DIR/report.html)")
    add_trust(report, "a folder")
    add_targets(report)
    add_json(report, "the numbers behind each verdict as well")
    report.set_defaults(run=report_command)


@dataclass(frozen=True)
class Found:
    """What a report shows: folders of runs, runs with one setting changed (only for the savings), studies, and files of
    recorded runs."""

    runs: list[Path] = field(default_factory=list)
    varied: list[Path] = field(default_factory=list)
    studies: list[Path] = field(default_factory=list)
    records: list[Path] = field(default_factory=list)

    def __add__(self, other: "Found") -> "Found":
        return Found(
            self.runs + other.runs,
            self.varied + other.varied,
            self.studies + other.studies,
            self.records + other.records,
        )


def find_planned(folder: Path, tree: dict[str, Any]) -> Found:
    """The results that exist of those that a reproduction planned. A name that leads out of its folder is refused."""
    for name in [*tree["runs"], *tree.get("varied", []), *tree["studies"]]:
        require_inside(folder / name, folder)
    runs, varied = (
        [folder / name for name in names if (folder / name / "summary.json").exists()]
        for names in (tree["runs"], tree.get("varied", []))
    )
    return Found(runs, varied, [folder / name for name in tree["studies"] if (folder / name).exists()])


def report_command(options: argparse.Namespace) -> int:
    with from_folder(options.folders[0], trusted=options.trust):
        return _report(options)


def _report(options: argparse.Namespace) -> int:
    """Of a reproduction, the runs of its last plan; of any other folder, all runs in it."""
    from qccf.cli.json_output import print_json
    from qccf.cli.screen import announce, end_announcement, output, screen_of

    announce(screen_of(options), "Looking for runs")
    from qccf.core.files import require_writable
    from qccf.paper.diagnosis import NOTES
    from qccf.paper.families import find_studies
    from qccf.rounds.run_folder import find_runs, read_summary

    folders: list[Path] = options.folders
    manifests: list[Manifest] = []
    found = Found()
    for folder in folders:
        if folder.suffix == ".json" and folder.is_file():
            found += Found(records=[folder])
        elif (folder / MANIFEST).exists():
            tree = _read_manifest(folder)
            manifests.append(manifest_of(tree, folder))
            found += find_planned(folder, tree)
        else:
            trained = [path for path in find_runs([folder]) if (read_summary(path) or {}).get("kind") != "plan"]
            found += Found(trained, [], find_studies([folder]))
    if not found.runs and not found.records:
        raise QccfError(f"{', '.join(map(str, folders))}: no training run here has written a summary yet.")
    out: Path = options.out or (folders[0].parent if found.records else folders[0]) / "report.html"
    require_writable(out.parent)
    if not options.trust:
        require_inside(out.parent / "figures", out.parent)
    announce(screen_of(options), "Reading the runs and drawing their figures")
    notes = [folder / NOTES for folder in folders]
    report = write_report(out, found, _merge_manifests(manifests), notes=notes, targets=options.targets or ())
    end_announcement()
    if options.json:
        print_json(_report_json(report, out, full=options.json == "full"))
        return 0
    print_verdicts(output(), report, out)
    return 0


def _report_json(report: "ReportPage", out: Path, *, full: bool) -> dict[str, Any]:
    """What the page says: its sentences, its table of results, and the verdicts on the paper's claims."""
    return {
        "page": str(out),
        "sentences": list(report.sentences),
        "results": report.results,
        "claims": [_verdict_json(one, full=full) for one in report.judged],
    }


def _verdict_json(one: "Judged", *, full: bool) -> dict[str, Any]:
    tree = {"figure": one.family.title, "claim": one.claim.words, "verdict": str(one.verdict)}
    return tree | {"findings": [vars(finding) for finding in one.findings]} if full else tree


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = json.loads(read_inside(folder / MANIFEST, folder))
        manifest_of(tree, folder)
        return tree
    except FileError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise QccfError(f"{folder / MANIFEST} cannot be read: run `qccf reproduce` again, which resumes.") from None


def manifest_of(tree: dict[str, Any], folder: Path) -> "Manifest":
    """The plan of a reproduction and the number of results that are missing; failed ones are listed, not counted."""
    from qccf.reports.page.opening import Manifest

    found = find_planned(folder, tree)
    existing = len(found.runs) + len(found.varied) + len(found.studies)
    planned = len(tree["runs"]) + len(tree.get("varied", [])) + len(tree["studies"])
    return Manifest(
        command=str(tree["command"]),
        scale=str(tree["scale"]),
        not_run=tuple((str(task), str(reason)) for task, reason in tree["not_run"]),
        failed=tuple((str(label), str(reason)) for label, reason in tree["failed"]),
        unfinished=max(0, planned - existing - len(tree["failed"])),
    )


def _merge_manifests(manifests: "Sequence[Manifest]") -> "Manifest":
    """One manifest for all folders of a report."""
    from qccf.reports.page.opening import Manifest

    return Manifest(
        command="\n".join(one.command for one in manifests),
        scale="smoke" if any(one.scale == "smoke" for one in manifests) else "",
        not_run=tuple(dict.fromkeys(pair for one in manifests for pair in one.not_run)),
        failed=tuple(pair for one in manifests for pair in one.failed),
        unfinished=sum(one.unfinished for one in manifests),
    )


def write_report(
    out: Path, found: Found, manifest: "Manifest", *, notes: Sequence[Path], targets: Sequence[float] = ()
) -> "ReportPage":
    """Write the page, and its figures into the folder `figures` beside it; `notes` that do not exist are skipped."""
    from qccf.paper.families import read_study
    from qccf.reports.page.build import build_report
    from qccf.rounds.run_folder import read_run
    from qccf.rounds.run_record import RunRecords

    notes_text = "\n\n".join(read_text_inside(path, path.parent) for path in notes if path.is_file())
    records, varied = ([read_run(path) for path in paths] for paths in (found.runs, found.varied))
    records += [run for path in found.records for run in RunRecords(path).runs()]
    if found.records and not records:
        raise QccfError(f"{', '.join(map(str, found.records))}: no run is recorded here yet; name another file.")
    studies = [read_study(path) for path in found.studies]
    report = build_report(records, studies, manifest, notes_text, varied, targets)
    report.write(out)
    return report


def print_verdicts(console: "Console", report: "ReportPage", out: Path) -> None:
    """What the page opens with, one line per claim that was judged and the totals, and where the page is."""
    for sentence in report.sentences:
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)
    for one in report.judged:
        console.print(f"{one.verdict:>15}  {one.family.title}: {one.claim.words}", soft_wrap=True, highlight=False)
    if report.judged:
        counts = Counter(one.verdict for one in report.judged)
        console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), highlight=False)
    console.print(f"Written: {out}, figures in {out.parent / 'figures'}", soft_wrap=True, highlight=False)
