"""`qccf sweep`."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qccf.cli import completers
from qccf.cli.engines import add_engine, build_engine, check_engine, with_cores
from qccf.cli.options import Subparsers, add_data_dir, add_json, warn
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
    sweep.usage = "qccf sweep FILE.toml [options]"
    sweep.examples = {
        "qccf sweep examples/sweep.toml --jobs 2": "two runs at a time on this machine",
        "qccf sweep examples/sweep.toml --engine ray": "on a Ray cluster that is started here",
    }
    in_file = "a sweep takes it from FILE.toml, under [settings] or [grid]."
    sweep.elsewhere = dict.fromkeys(
        ("--policy", "--policies", "--codec", "--codecs", "--seed", "--seeds", "--rounds", "--set"), in_file
    )
    file = sweep.add_argument("file", type=Path, metavar="FILE.toml", help="the grid (see docs/sweep.md)")
    completers.attach(file, completers.toml_files)
    add_engine(sweep)
    sweep.add_argument("--out", type=Path, metavar="DIR", help="default: one per grid, below runs/")
    sweep.add_argument("--force", action="store_true", help="replace what qccf has written into --out, and start fresh")
    add_data_dir(sweep)
    add_json(sweep, "every round of every run")
    sweep.set_defaults(run=sweep_command, trains=True)


def sweep_command(options: argparse.Namespace) -> int:
    from qccf.cli.folders import claimed, default_folder
    from qccf.cli.json_output import print_json
    from qccf.cli.queue_view import print_outcome, print_start, run_with_view
    from qccf.cli.screen import announce, end_announcement, screen_of
    from qccf.cli.tables import print_health, sweep_table
    from qccf.core.files import write_text_whole
    from qccf.core.words import counted
    from qccf.jobs.grid import load_grid
    from qccf.jobs.tables import RESULTS, ROUNDS, SweepTables
    from qccf.settings.loading import digest, run_digest

    check_engine(options)
    console = screen_of(options)
    announce(console, f"Checking the runs of {options.file}")
    grid = load_grid(options.file)
    measured = grid.kind == "measure"
    if measured and (options.engine == "ray" or (options.jobs or 1) > 1):
        raise ConfigError('kind = "measure" runs one job at a time on this machine: omit --jobs and --engine ray.')
    grid = _resolved(grid, options)
    settings = digest(grid.kind, [run_digest(one) for one in grid.scenarios])
    out: Path = options.out or default_folder(f"sweep-{options.file.stem}", settings)
    jobs = [_job(scenario, grid.kind, out / "runs", options) for scenario in grid.scenarios]
    end_announcement()
    with claimed(out, "sweep", force=options.force):
        write_text_whole(out / "sweep.toml", options.file.read_text(encoding="utf-8"))
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
        if options.json:
            print_json(tables.rows(full=options.json == "full"))
        elif progress.count("done"):
            console.print(sweep_table(f"{options.file.name}: {counted(progress.count('done'), 'run')}", tables.rows()))
            print_health(console, tables.health_sentences())
            written = f"{out / RESULTS} (one row per run), {out / ROUNDS} (one row per run and round)"
            console.print(f"Written: {written}", soft_wrap=True, highlight=False)
    return print_outcome(console, progress)


def _resolved(grid: "Grid", options: argparse.Namespace) -> "Grid":
    """The grid with counted parameters and present datasets; finds errors in any scenario before the first run."""
    from qccf.jobs.grid import require_distinct
    from qccf.learning.datasets import data_folder
    from qccf.rounds.setup import check_scenario, with_counted_parameters
    from qccf.runtimes.planner import planned_scenario

    train = grid.kind == "train"
    scenarios = [
        with_cores(with_counted_parameters(one, always=True), options) if train else planned_scenario(one)
        for one in grid.scenarios
    ]
    for one in scenarios:
        check_scenario(one)
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
