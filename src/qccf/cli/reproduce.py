"""`qccf reproduce`."""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qccf.cli.engines import add_engine, build_engine, check_engine, cores_per_job
from qccf.cli.options import Subparsers, add_data_dir, add_overrides
from qccf.cli.report import MANIFEST, find_planned, manifest_of, print_verdicts, write_report
from qccf.core.errors import ConfigError, QccfError
from qccf.core.suggest import hint

if TYPE_CHECKING:
    from qccf.jobs.queue import Job, QueueProgress
    from qccf.paper.experiments import ChosenTask

VARIED_RUNS = "varied"
"""The folder of the runs with one setting changed."""


def add_parser(commands: Subparsers) -> None:
    reproduce = commands.add_parser("reproduce", help="run the paper's experiments and say which claims hold")
    reproduce.description = (
        "Run the paper's experiments and report for every claim whether it holds. "
        "The same command resumes a reproduction that was stopped."
    )
    reproduce.usage = "qccf reproduce [FIGURE] [options]"
    reproduce.examples = {
        "qccf reproduce fig3 --scale smoke": "one figure in a minute or two, to see that everything works",
        "qccf reproduce --scale small --jobs 2": "all figures, two runs at a time",
    }
    reproduce.elsewhere = {"--policy": "the paper's experiments say which policies run; use qccf compare for your own."}
    reproduce.add_argument(
        "figure",
        nargs="?",
        metavar="FIGURE",
        choices=("fig2", "fig3", "fig4", "fig5", "all"),
        default="all",
        help="fig2, fig3, fig4, fig5 or all (default all)",
    )
    reproduce.add_argument(
        "--scale", choices=("smoke", "small", "full"), default="small", help="size of the experiments (default small)"
    )
    reproduce.add_argument(
        "--tasks", default="femnist,cifar10", metavar="A,B", help="femnist, cifar10 or both (default both)"
    )
    reproduce.add_argument(
        "--out", type=Path, metavar="DIR", help="default runs/reproduce-SCALE; one per settings with --set"
    )
    add_engine(reproduce)
    add_data_dir(reproduce)
    add_overrides(reproduce)
    reproduce.set_defaults(run=reproduce_command, trains=True)


def reproduce_command(options: argparse.Namespace) -> int:
    """Run the jobs of the figures and write the report."""
    from qccf.cli.screen import announce, end_announcement, output

    console = output()
    announce(console, "Loading libraries and looking for data")
    from qccf.cli.folders import claimed, default_folder
    from qccf.cli.queue_view import print_outcome, run_with_view
    from qccf.core.words import counted
    from qccf.learning.datasets import data_folder
    from qccf.paper.diagnosis import NOTES
    from qccf.paper.experiments import FIGURES, SCALES, reproduction_jobs, varied_jobs
    from qccf.paper.studies import study_jobs
    from qccf.rounds.world import build_world
    from qccf.settings.loading import digest

    check_engine(options)
    figures = list(FIGURES) if options.figure == "all" else [options.figure]
    scale = SCALES[options.scale]
    name = f"reproduce-{scale.name}"
    default = default_folder(name, digest(options.overrides)) if options.overrides else Path("runs") / name
    out: Path = options.out or default
    data_dir = data_folder(options.data_dir)
    tasks = _choose_tasks(options.tasks, data_dir)
    overrides = [f"execution.workers={cores_per_job(options)}", *options.overrides]
    training = reproduction_jobs(figures, scale, tasks, overrides, runs=out / "runs", data_dir=data_dir)
    if not training:
        reasons = "; ".join(one.reason for one in tasks if one.reason) or "none of these tasks is in it"
        raise QccfError(f"{', '.join(figures)} cannot be run: {reasons}.")
    for job in training:  # errors end the command before the first run
        build_world(job.scenario, job.scenario.federation.seed)
    varied, studies = [], []
    if options.figure == "all":  # they belong to no single figure
        varied = varied_jobs(scale, tasks, overrides, runs=out / VARIED_RUNS, data_dir=data_dir)
        studies = study_jobs(scale.study_seeds, scale.study_rounds, out / "studies", brief=scale.name == "smoke")
    jobs: list[Job] = [*training, *varied, *studies]
    end_announcement()
    for one in tasks:
        text = f"not run: {one.reason}" if one.reason else f"data: {one.dataset}"
        console.print(f"{one.task.name}: {text}", soft_wrap=True, highlight=False)
    console.print(
        f"{counted(len(training) + len(varied), 'run')} and {counted(len(studies), 'study')} in {out}",
        soft_wrap=True,
        highlight=False,
    )
    with claimed(out, "reproduce"):
        _write_manifest(out, options, figures, tasks, jobs)  # also before the first run, for a report while it runs
        progress = run_with_view(console, jobs, build_engine(options))
        _write_manifest(out, options, figures, tasks, jobs, progress)
        tree = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        found = find_planned(out, tree)
        if found.runs:
            page = out / "report.html"
            print_verdicts(console, write_report(page, found, manifest_of(tree, out), notes=[out / NOTES]), page)
    return print_outcome(console, progress)


def _choose_tasks(tasks: str, data_dir: Path) -> "list[ChosenTask]":
    from qccf.paper.experiments import TASKS, choose_data

    names = [name.strip() for name in tasks.split(",")]
    for name in names:
        if name not in TASKS:
            raise ConfigError(f"--tasks {tasks}: task {name!r} does not exist: {hint(name, TASKS)}")
    return [choose_data(TASKS[name], data_dir) for name in dict.fromkeys(names)]


def _write_manifest(
    out: Path,
    options: argparse.Namespace,
    figures: list[str],
    tasks: "list[ChosenTask]",
    jobs: "Sequence[Job]",
    progress: "QueueProgress | None" = None,
) -> None:
    """The command, and the folders of the jobs that it planned."""
    from qccf.core.files import write_text_whole
    from qccf.paper.experiments import TASKS, figure_tasks
    from qccf.paper.studies import RESULT

    command = ["qccf", "reproduce", options.figure, "--scale", options.scale, "--tasks", options.tasks]
    for override in options.overrides:
        command += ["--set", override]
    needed = {name for figure in figures for name in figure_tasks(figure, TASKS)}
    folders = [job.folder.relative_to(out).as_posix() for job in jobs]
    tree = {
        "command": shlex.join(command),
        "scale": options.scale,
        "not_run": [[one.task.name, one.reason] for one in tasks if one.reason and one.task.name in needed],
        "failed": [[jobs[i].label, reason] for i, reason in progress.failures().items()] if progress else [],
        "runs": [name for name in folders if name.startswith("runs/")],
        "varied": [name for name in folders if name.startswith(f"{VARIED_RUNS}/")],
        "studies": [f"{name}/{RESULT}" for name in folders if name.startswith("studies/")],
    }
    write_text_whole(out / MANIFEST, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
