"""`qccf report`, and what it shares with `qccf reproduce`."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from qccf.core.errors import QccfError
from qccf.core.files import require_writable, write_text_whole, write_whole
from qccf.paper.diagnosis import NOTES
from qccf.paper.records import find_runs, find_studies, read_record, read_study
from qccf.report.page.build import Manifest, Report, build_report

MANIFEST = "reproduction.json"


@dataclass(frozen=True)
class Found:
    """Where the runs of a report are, those with one setting changed (for the savings alone), and the studies."""

    runs: list[Path] = field(default_factory=list)
    varied: list[Path] = field(default_factory=list)
    studies: list[Path] = field(default_factory=list)

    def __add__(self, other: "Found") -> "Found":
        return Found(self.runs + other.runs, self.varied + other.varied, self.studies + other.studies)


def planned(folder: Path, tree: dict[str, Any]) -> Found:
    """What there is of a reproduction's plan."""
    runs, varied = (
        [folder / name for name in names if (folder / name / "summary.json").exists()]
        for names in (tree["runs"], tree.get("varied", []))
    )
    return Found(runs, varied, [folder / name for name in tree["studies"] if (folder / name).exists()])


def report_command(options: argparse.Namespace) -> int:
    """The page of any runs; of a reproduction, those of its last plan."""
    folders: list[Path] = options.folders
    manifests = [manifest_of(read_manifest(folder), folder) for folder in folders if (folder / MANIFEST).exists()]
    found = Found()
    for folder in folders:
        if (folder / MANIFEST).exists():
            found += planned(folder, read_manifest(folder))
        else:
            found += Found(find_runs([folder]), [], find_studies([folder]))
    if not found.runs:
        raise QccfError(f"{', '.join(map(str, folders))}: no run here has come to its first summary.")
    out: Path = options.out or folders[0] / "report.html"
    require_writable(out.parent)
    manifest = _together(manifests)
    report = write_report(out, found, manifest, notes=[folder / NOTES for folder in folders])
    console = Console()
    say(console, report, out)
    return 0


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        _ = manifest_of(tree, folder)
        return tree
    except (OSError, ValueError, KeyError, TypeError):
        raise QccfError(f"{folder / MANIFEST} cannot be read: run `qccf reproduce` again, it goes on.") from None


def manifest_of(tree: dict[str, Any], folder: Path) -> Manifest:
    """What was planned, and how much of it is not there; what has failed is named, not counted."""
    found = planned(folder, tree)
    there = len(found.runs) + len(found.varied) + len(found.studies)
    count = len(tree["runs"]) + len(tree.get("varied", [])) + len(tree["studies"])
    return Manifest(
        command=tree["command"],
        scale=tree["scale"],
        not_run=tuple((task, reason) for task, reason in tree["not_run"]),
        failed=tuple((label, sentence) for label, sentence in tree["failed"]),
        unfinished=max(0, count - there - len(tree["failed"])),
    )


def _together(manifests: Sequence[Manifest]) -> Manifest:
    """One for all the folders of a report."""
    return Manifest(
        command="\n".join(one.command for one in manifests),
        scale="smoke" if any(one.scale == "smoke" for one in manifests) else "",
        not_run=tuple(dict.fromkeys(pair for one in manifests for pair in one.not_run)),
        failed=tuple(pair for one in manifests for pair in one.failed),
        unfinished=sum(one.unfinished for one in manifests),
    )


def write_report(out: Path, found: Found, manifest: Manifest, *, notes: Sequence[Path]) -> Report:
    """The page, and its figures as files in `figures` beside it; `notes` are read where they exist."""
    written = "\n\n".join(path.read_text(encoding="utf-8") for path in notes if path.is_file())
    records, varied = ([read_record(path) for path in paths] for paths in (found.runs, found.varied))
    report = build_report(records, [read_study(path) for path in found.studies], manifest, written, varied)
    for name, data in report.files.items():
        write_whole(out.parent / "figures" / name, partial(_write_bytes, data))
    write_text_whole(out, report.page)
    return report


def _write_bytes(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def say(console: Console, report: Report, out: Path) -> None:
    """The verdicts in a few lines, and where the page is."""
    for one in report.judged:
        console.print(f"{one.verdict:>15}  {one.family.title}: {one.claim.words}", soft_wrap=True, highlight=False)
    counts = Counter(one.verdict for one in report.judged)
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), highlight=False)
    console.print(f"Written: {out}, figures in {out.parent / 'figures'}", soft_wrap=True, highlight=False)
