"""`qccf compare`."""

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qccf.cli.engines import add_engine, build_engine, check_engine, with_cores
from qccf.cli.options import Subparsers, add_scenario, add_training, execution_of, settings_of, warn
from qccf.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from qccf.jobs.training import TrainingJob

MAX_SEEDS = 1000


def add_parser(commands: Subparsers) -> None:
    compare = commands.add_parser("compare", help="train it under several policies, on the same cells and data")
    compare.description = (
        "Train a federation under several policies on the same cells, fading and data. "
        "The same command resumes a comparison that was stopped."
    )
    add_scenario(compare, "quick")
    compare.add_argument("--policies", metavar="A,B,…", help="default: all five")
    compare.add_argument("--codecs", metavar="A,B,…", help="default: the paper's, `model`, unless the file names one")
    compare.add_argument("--seeds", type=int, default=1, metavar="K", help="number of cells (default 1)")
    compare.add_argument("--out", type=Path, metavar="DIR", help="the comparison's folder (default runs/compare-…)")
    add_engine(compare)
    add_training(compare)
    compare.set_defaults(run=compare_command, trains=True)


def compare_command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from qccf.cli.queue_view import print_outcome, print_start, run_with_view
    from qccf.core.files import require_writable
    from qccf.jobs.training import training_job
    from qccf.learning.datasets import data_folder
    from qccf.policies.registry import POLICIES
    from qccf.rounds.setup import check_scenario
    from qccf.runtimes.simulator import resolved_scenario
    from qccf.runtimes.tensorboard import tensorboard_class
    from qccf.settings.loading import load_scenario
    from qccf.settings.schema import PAPERS_CODEC

    check_engine(options)
    if not 1 <= options.seeds <= MAX_SEEDS:
        raise ConfigError(f"--seeds {options.seeds} is out of range: give 1 to {MAX_SEEDS}.")
    scenario = with_cores(load_scenario(options.scenario, [*settings_of(options), *execution_of(options)]), options)
    data_dir = data_folder(options.data_dir)
    scenario = resolved_scenario(scenario, None, warn)
    codec = scenario.codec.name if "name" in scenario.codec.model_fields_set else PAPERS_CODEC
    policies = list(dict.fromkeys(options.policies.split(","))) if options.policies else list(POLICIES)
    codecs = list(dict.fromkeys(options.codecs.split(","))) if options.codecs else [codec]
    seeds = range(scenario.federation.seed, scenario.federation.seed + options.seeds)
    scenarios = [
        scenario.replaced(policy={"name": policy}, codec={"name": codec}, federation={"seed": seed})
        for seed, policy, codec in itertools.product(seeds, policies, codecs)
    ]
    for one in scenarios:
        check_scenario(one)
    found = resolved_scenario(scenario, data_dir, warn).data.model_dump()  # the figures need the data here as well
    scenarios = [one.replaced(data=found) for one in scenarios]
    if options.tensorboard:
        tensorboard_class()
    out: Path = options.out or Path("runs") / f"compare-{Path(options.scenario).stem}"
    require_writable(out)
    jobs = [training_job(one, out, data_dir, tensorboard=options.tensorboard) for one in scenarios]
    console = Console()
    print_start(console, jobs, out)
    progress = run_with_view(console, jobs, build_engine(options))
    finished = [job for job, state in zip(jobs, progress.states, strict=True) if state == "done"]
    if finished and not progress.interrupted:
        _print_results(console, out, finished)
    return print_outcome(console, progress)


def _print_results(console: "Console", out: Path, jobs: "Sequence[TrainingJob]") -> None:
    """Read the runs back, write their figures and summaries, print the table."""
    from qccf.cli.tables import print_health, results_table, service_table
    from qccf.core.files import write_text_whole
    from qccf.jobs.training import cached_dataset
    from qccf.report.figures.drawing import save_chart
    from qccf.report.figures.run import run_charts
    from qccf.rounds.run import health_sentences, run_labels
    from qccf.rounds.run_folder import read_run

    scenario = jobs[0].scenario
    dataset = cached_dataset(scenario.data.dataset, jobs[0].data_dir)
    runs = [read_run(job.folder) for job in jobs]
    summaries = [run.summary for run in runs]
    write_text_whole(out / "summary.json", json.dumps(summaries, indent=2) + "\n")
    for chart in run_charts(runs, dataset):
        save_chart(chart, out / "figures" / f"{chart.key}.png")
    seeds = len({run.seed for run in runs})
    title = f"{dataset.name}, {scenario.federation.rounds} rounds, {seeds} seed{'s' * (seeds > 1)}"
    console.print(results_table(title, run_labels(runs), summaries))
    console.print(service_table(run_labels(runs), summaries))
    print_health(console, health_sentences(runs))
    floors_j = sorted(summary["floor_j"] for summary in summaries)
    shown = f"{floors_j[0]:.3g}" if floors_j[-1] < 1.01 * floors_j[0] else f"{floors_j[0]:.3g} to {floors_j[-1]:.3g}"
    console.print(f"Floor: {shown} J for computing alone, by those who took part, at the lowest frequency.")
    if dataset.synthetic:
        console.print(f"Data: {dataset.source}.", style="yellow")
    console.print(f"Written: {out}", soft_wrap=True)
