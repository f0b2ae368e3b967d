"""`qccf sweep`."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qccf.cli.engines import add_engine, build_engine, check_engine, with_cores
from qccf.cli.options import Subparsers, add_data_dir, warn
from qccf.core.errors import ConfigError

if TYPE_CHECKING:
    from qccf.jobs.grid import Grid, Kind
    from qccf.jobs.queue import Job, QueueProgress
    from qccf.settings.loading import Scenario


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
    from qccf.cli.tables import print_health
    from qccf.core.files import require_writable, write_text_whole
    from qccf.jobs.grid import load_grid
    from qccf.jobs.tables import RESULTS, ROUNDS, SweepTables

    check_engine(options)
    grid = load_grid(options.file)
    measured = grid.kind == "measure"
    if measured and (options.engine == "ray" or (options.jobs or 1) > 1):
        raise ConfigError('kind = "measure" runs one job at a time on this machine: omit --jobs and --engine ray.')
    out: Path = options.out or Path("runs") / f"sweep-{options.file.stem}"
    grid = _resolved(grid, options)
    jobs = [_job(scenario, grid.kind, out / "runs", options) for scenario in grid.scenarios]
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
        print_health(console, tables.health_sentences())
        written = f"{out / RESULTS} (one row per run), {out / ROUNDS} (one row per run and round)"
        console.print(f"Written: {written}", soft_wrap=True, highlight=False)
    return print_outcome(console, progress)


def _resolved(grid: "Grid", options: argparse.Namespace) -> "Grid":
    """The grid with counted parameters and present datasets; finds errors in any scenario before the first run."""
    from qccf.jobs.grid import require_distinct
    from qccf.learning.datasets import data_folder
    from qccf.rounds.setup import check_scenario, with_counted_parameters
    from qccf.rounds.sources import check_trace
    from qccf.runtimes.planner import planned_scenario

    train = grid.kind == "train"
    scenarios = [
        with_cores(with_counted_parameters(one, always=True), options) if train else planned_scenario(one)
        for one in grid.scenarios
    ]
    for one in scenarios:
        check_scenario(one)
        if not train:
            check_trace(one)
    if train and options.address is None:  # the nodes of another cluster have their own data
        scenarios = _with_datasets(scenarios, data_folder(options.data_dir))
    require_distinct(tuple(scenarios))  # two datasets may have the same fallback
    return replace(grid, scenarios=tuple(scenarios))


def _with_datasets(scenarios: "Sequence[Scenario]", data_dir: Path) -> "list[Scenario]":
    """Each dataset is looked for once, because the check reads its files."""
    from qccf.runtimes.simulator import resolved_scenario

    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in scenarios:
        wanted = (one.data.dataset, *one.data.fallbacks)
        if wanted not in found:
            found[wanted] = resolved_scenario(one, data_dir, warn).data.model_dump(include={"dataset", "fallbacks"})
    return [one.replaced(data=found[(one.data.dataset, *one.data.fallbacks)]) for one in scenarios]


def _job(scenario: "Scenario", kind: "Kind", runs: Path, options: argparse.Namespace) -> "Job":
    if kind != "train":
        from qccf.jobs.planning import plan_job

        return plan_job(scenario, runs, measured=kind == "measure")
    from qccf.jobs.training import training_job
    from qccf.learning.datasets import data_folder

    return training_job(scenario, runs, data_folder(options.data_dir))
