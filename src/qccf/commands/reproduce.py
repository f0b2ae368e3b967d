"""`qccf reproduce`."""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from qccf.batch import Job, Progress, run_batch
from qccf.commands.batch_view import BatchView, farewell
from qccf.commands.engines import build_engine, check_engine, cores_of_a_run
from qccf.commands.report import MANIFEST, manifest_of, say, write_report
from qccf.errors import ConfigError, QccfError
from qccf.experiments import FIGURES, SCALES, TASKS, Chosen, Scale, choose_data, reproduction_jobs
from qccf.files import require_writable, write_text_whole
from qccf.learning.datasets import data_folder
from qccf.report.diagnosis import NOTES
from qccf.simulation.training_job import TrainingJob
from qccf.studies import RESULT, study_jobs
from qccf.world import build_world


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
    studies = _studies(figures, scale, out)
    require_writable(out)
    jobs: list[Job] = [*training, *studies]
    for one in chosen:
        words = f"not run: {one.reason}" if one.reason else f"data: {one.dataset}"
        console.print(f"{one.task.name}: {words}", soft_wrap=True, highlight=False)
    console.print(f"{len(training)} runs and {len(studies)} studies in {out}", soft_wrap=True, highlight=False)
    with BatchView(console) as view:
        progress = run_batch(jobs, build_engine(options), listener=view.update)
    _write_manifest(out, options, scale, chosen, jobs, progress)
    return _finish(console, out, progress)


def _finish(console: Console, out: Path, progress: Progress) -> int:
    """The report of what there is, and how it ended."""
    tree = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    runs = [out / name for name in tree["runs"] if (out / name / "summary.json").exists()]
    if runs:
        studies = [out / name for name in tree["studies"] if (out / name).exists()]
        page = out / "report.html"
        say(console, write_report(page, runs, studies, manifest_of(tree), notes=[out / NOTES]), page)
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


def _studies(figures: list[str], scale: Scale, out: Path) -> Sequence[Job]:
    """They belong to no single figure: they come with all of them."""
    if len(figures) < len(FIGURES):
        return []
    return study_jobs(scale.study_seeds, scale.study_rounds, out / "studies", brief=scale.name == "smoke")


def _write_manifest(
    out: Path, options: argparse.Namespace, scale: Scale, chosen: list[Chosen], jobs: Sequence[Job], progress: Progress
) -> None:
    words = ["qccf", "reproduce", options.figure, "--scale", scale.name, "--tasks", options.tasks]
    for override in options.overrides:
        words += ["--set", override]
    folders = [str(job.folder.relative_to(out)) for job in jobs]
    tree = {
        "command": shlex.join(words),
        "scale": scale.name,
        "not_run": [[one.task.name, one.reason] for one in chosen if one.reason],
        "failed": [[jobs[index].label, sentence] for index, sentence in progress.failures().items()],
        "unfinished": progress.count("waiting"),
        "runs": [name for name in folders if name.startswith("runs")],
        "studies": [f"{name}/{RESULT}" for name in folders if name.startswith("studies")],
    }
    write_text_whole(out / MANIFEST, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
