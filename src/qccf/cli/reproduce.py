"""`qccf reproduce`."""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from qccf.cli.engines import build_engine, check_engine, cores_of_a_run
from qccf.cli.queue_view import BatchView, farewell
from qccf.cli.report import MANIFEST, manifest_of, planned, say, write_report
from qccf.core.errors import ConfigError, QccfError
from qccf.core.files import require_writable, write_text_whole
from qccf.jobs.queue import Job, Progress, run_batch
from qccf.jobs.training import TrainingJob
from qccf.learning.datasets import data_folder
from qccf.paper.diagnosis import NOTES
from qccf.paper.experiments import (
    FIGURES,
    SCALES,
    TASKS,
    Chosen,
    choose_data,
    figure_tasks,
    reproduction_jobs,
    varied_jobs,
)
from qccf.paper.studies import RESULT, study_jobs
from qccf.rounds.world import build_world

VARIED_RUNS = "varied"
"""The folder of the runs with one setting changed."""


def reproduce_command(options: argparse.Namespace) -> int:
    """Run what the figures need and write the report; the same command again goes on where this one stopped."""
    check_engine(options)
    figures = list(FIGURES) if options.figure == "all" else [options.figure]
    scale = SCALES[options.scale]
    out: Path = options.out or Path("runs") / f"reproduce-{scale.name}"
    data_dir = data_folder(options.data_dir)
    console = Console()
    chosen = _chosen(options.tasks, data_dir)
    overrides = [f"execution.workers={cores_of_a_run(options)}", *options.overrides]
    training = reproduction_jobs(figures, scale, chosen, overrides, runs=out / "runs", data_dir=data_dir)
    _refuse_early(training, figures, chosen)
    varied, studies = [], []
    if options.figure == "all":  # they belong to no single figure: they come with all of them
        varied = varied_jobs(scale, chosen, overrides, runs=out / VARIED_RUNS, data_dir=data_dir)
        studies = study_jobs(scale.study_seeds, scale.study_rounds, out / "studies", brief=scale.name == "smoke")
    require_writable(out)
    jobs: list[Job] = [*training, *varied, *studies]
    for one in chosen:
        words = f"not run: {one.reason}" if one.reason else f"data: {one.dataset}"
        console.print(f"{one.task.name}: {words}", soft_wrap=True, highlight=False)
    console.print(
        f"{len(training) + len(varied)} runs and {len(studies)} studies in {out}", soft_wrap=True, highlight=False
    )
    _write_manifest(out, options, figures, chosen, jobs)
    with BatchView(console) as view:
        progress = run_batch(jobs, build_engine(options), listener=view.update)
    _write_manifest(out, options, figures, chosen, jobs, progress)
    return _finish(console, out, progress)


def _finish(console: Console, out: Path, progress: Progress) -> int:
    """The report of what there is, and how it ended."""
    tree = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    found = planned(out, tree)
    if found.runs:
        page = out / "report.html"
        say(console, write_report(page, found, manifest_of(tree, out), notes=[out / NOTES]), page)
    return farewell(console, progress)


def _chosen(tasks: str, data_dir: Path) -> list[Chosen]:
    names = [name.strip() for name in tasks.split(",")]
    for name in names:
        if name not in TASKS:
            raise ConfigError(f"--tasks {tasks}: {name!r} is not one of {', '.join(TASKS)}.")
    return [choose_data(TASKS[name], data_dir) for name in dict.fromkeys(names)]


def _refuse_early(training: Sequence[TrainingJob], figures: list[str], chosen: list[Chosen]) -> None:
    """Mistakes end the command before anything is paid for."""
    if not training:
        reasons = "; ".join(one.reason for one in chosen if one.reason) or "none of these tasks is in it"
        raise QccfError(f"{', '.join(figures)} cannot be run: {reasons}.")
    for job in training:
        build_world(job.scenario, job.seed)


def _write_manifest(
    out: Path,
    options: argparse.Namespace,
    figures: list[str],
    chosen: list[Chosen],
    jobs: Sequence[Job],
    progress: Progress | None = None,
) -> None:
    """What belongs to this reproduction; before it begins as well, so that a report of a part knows."""
    words = ["qccf", "reproduce", options.figure, "--scale", options.scale, "--tasks", options.tasks]
    for override in options.overrides:
        words += ["--set", override]
    needed = {name for figure in figures for name in figure_tasks(figure, TASKS)}
    folders = [job.folder.relative_to(out).as_posix() for job in jobs]
    tree = {
        "command": shlex.join(words),
        "scale": options.scale,
        "not_run": [[one.task.name, one.reason] for one in chosen if one.reason and one.task.name in needed],
        "failed": [[jobs[i].label, words] for i, words in progress.failures().items()] if progress else [],
        "runs": [name for name in folders if name.startswith("runs/")],
        "varied": [name for name in folders if name.startswith(f"{VARIED_RUNS}/")],
        "studies": [f"{name}/{RESULT}" for name in folders if name.startswith("studies/")],
    }
    write_text_whole(out / MANIFEST, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
