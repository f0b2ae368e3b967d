"""`qccf sweep`."""

import argparse
from pathlib import Path

from rich.console import Console

from qccf.cli.engines import build_engine, check_engine, cores_of_a_run
from qccf.cli.prepare import check
from qccf.cli.queue_view import BatchView, farewell
from qccf.core.errors import ConfigError
from qccf.core.files import require_writable, write_text_whole
from qccf.jobs.grid import Grid, load_grid
from qccf.jobs.queue import Job, Progress, run_batch
from qccf.jobs.tables import RESULTS, ROUNDS, Tables
from qccf.runtimes.planner import StatisticsModel
from qccf.settings.loading import Scenario


def sweep_command(options: argparse.Namespace) -> int:
    """Run what of the grid is missing; the same command again goes on where this one stopped."""
    check_engine(options)
    grid = load_grid(options.file)
    if grid.kind == "measure" and (options.engine == "ray" or (options.jobs or 1) > 1):
        raise ConfigError('kind = "measure" runs one at a time on this machine: leave out --jobs and --engine ray.')
    out: Path = options.out or Path("runs") / f"sweep-{options.file.stem}"
    jobs = _jobs(grid, out, options)
    _refuse_early(grid)
    require_writable(out)
    write_text_whole(out / "sweep.toml", options.file.read_text(encoding="utf-8"))
    console = Console()
    there = sum(job.is_finished() for job in jobs)
    runs = f"{len(jobs)} run{'s' * (len(jobs) > 1)} in {out}"
    console.print(runs + (f", {there} of them there already" if there else ""), soft_wrap=True, highlight=False)
    tables = Tables(out, grid.kind, grid.scenarios)
    reached: list[Progress] = []
    try:
        with BatchView(console) as view:

            def listener(progress: Progress, index: int) -> None:
                reached[:] = [progress]
                view.update(progress, index)
                tables.update(progress, index)

            progress = run_batch(jobs, build_engine(options, fresh=grid.kind == "measure"), listener=listener)
            reached[:] = [progress]
    finally:  # a cluster may be lost as a whole
        for last in reached:
            tables.write(last)
    return _finish(console, out, progress)


def _jobs(grid: Grid, out: Path, options: argparse.Namespace) -> list[Job]:
    runs = out / "runs"
    if grid.kind != "train":
        from qccf.jobs.planning import PlanJob

        return [PlanJob(scenario, runs, grid.kind == "measure") for scenario in grid.scenarios]
    from qccf.jobs.training import TrainingJob
    from qccf.learning.datasets import data_folder, require_dataset

    data_dir = data_folder(options.data_dir)
    if options.address is None:  # the nodes of another cluster have data of their own
        for name in dict.fromkeys(scenario.data.dataset for scenario in grid.scenarios):
            require_dataset(name, data_dir)
    cores = cores_of_a_run(options)
    return [
        TrainingJob(_on_cores(scenario, cores), scenario.policy.name, scenario.federation.seed, runs, data_dir)
        for scenario in grid.scenarios
    ]


def _on_cores(scenario: Scenario, cores: int) -> Scenario:
    """With that many threads, unless the settings give a number."""
    if scenario.execution.workers:
        return scenario
    return scenario.model_copy(update={"execution": scenario.execution.model_copy(update={"workers": cores})})


def _refuse_early(grid: Grid) -> None:
    """Every scenario is tried before one is paid for."""
    for scenario in grid.scenarios:
        check(scenario, [scenario.policy.name], [scenario.federation.seed])
        if grid.kind != "train":
            StatisticsModel(scenario)


def _finish(console: Console, out: Path, progress: Progress) -> int:
    """Where the tables are, and how it ended; what there is has been written in any case."""
    if progress.count("done"):
        tables = f"{out / RESULTS} (one row a run), {out / ROUNDS} (one row a run and round)"
        console.print(f"Written: {tables}", soft_wrap=True, highlight=False)
    return farewell(console, progress)
