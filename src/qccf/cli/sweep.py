"""`qccf sweep`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from qccf.cli.engines import add_engine, build_engine, check_engine, with_cores
from qccf.cli.options import Subparsers, add_data_dir, warn
from qccf.core.errors import ConfigError

if TYPE_CHECKING:
    from qccf.jobs.grid import Grid
    from qccf.jobs.queue import Job, QueueProgress


def add_parser(commands: Subparsers) -> None:
    sweep = commands.add_parser("sweep", help="run a grid of settings, on this machine or on a Ray cluster")
    sweep.description = (
        "Run a grid of settings and write one Parquet table. The same command resumes a sweep that was stopped."
    )
    sweep.add_argument("file", type=Path, metavar="FILE.toml", help="the grid (see docs/sweep.md)")
    add_engine(sweep)
    sweep.add_argument("--out", type=Path, metavar="DIR", help="default runs/sweep-FILE")
    add_data_dir(sweep)
    sweep.set_defaults(run=sweep_command, trains=True)


def sweep_command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from qccf.cli.queue_view import print_outcome, print_start, run_with_view
    from qccf.core.files import require_writable, write_text_whole
    from qccf.jobs.grid import load_grid
    from qccf.jobs.tables import RESULTS, ROUNDS, SweepTables

    check_engine(options)
    grid = load_grid(options.file)
    measured = grid.kind == "measure"
    if measured and (options.engine == "ray" or (options.jobs or 1) > 1):
        raise ConfigError('kind = "measure" runs one job at a time on this machine: omit --jobs and --engine ray.')
    out: Path = options.out or Path("runs") / f"sweep-{options.file.stem}"
    jobs = _jobs(grid, out / "runs", options)
    _check(grid)
    require_writable(out)
    write_text_whole(out / "sweep.toml", options.file.read_text(encoding="utf-8"))
    console = Console()
    print_start(console, jobs, out)
    tables = SweepTables(out, grid)
    latest: list[QueueProgress] = []

    def listener(progress: "QueueProgress", index: int) -> None:
        latest[:] = [progress]
        tables.update(progress, index)

    try:
        progress = run_with_view(console, jobs, build_engine(options, process_per_job=measured), listener)
        latest[:] = [progress]
    finally:  # also when the whole cluster is lost
        for last in latest:
            tables.write(last)
    if progress.count("done"):
        written = f"{out / RESULTS} (one row per run), {out / ROUNDS} (one row per run and round)"
        console.print(f"Written: {written}", soft_wrap=True, highlight=False)
    return print_outcome(console, progress)


def _jobs(grid: "Grid", runs: Path, options: argparse.Namespace) -> "list[Job]":
    if grid.kind != "train":
        from qccf.jobs.planning import plan_job

        return [plan_job(scenario, runs, measured=grid.kind == "measure") for scenario in grid.scenarios]
    from qccf.jobs.training import training_job
    from qccf.learning.datasets import data_folder
    from qccf.runtimes.simulator import resolved_scenario

    data_dir = data_folder(options.data_dir)
    elsewhere = options.address is not None  # the nodes of another cluster have their own data
    resolved = [resolved_scenario(scenario, None if elsewhere else data_dir, warn) for scenario in grid.scenarios]
    return [training_job(with_cores(scenario, options), runs, data_dir) for scenario in resolved]


def _check(grid: "Grid") -> None:
    """Find errors in any scenario before the first run."""
    from qccf.rounds.setup import check_scenario
    from qccf.rounds.sources import check_trace

    for scenario in grid.scenarios:
        check_scenario(scenario)
        if grid.kind != "train":
            check_trace(scenario)
