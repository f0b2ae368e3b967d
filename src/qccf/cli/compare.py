"""`qccf compare`."""

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qccf.cli.engines import add_engine, build_engine, check_engine, with_cores
from qccf.cli.options import (
    Subparsers,
    add_codecs,
    add_json,
    add_policies,
    add_scenario,
    add_seeds,
    add_targets,
    add_training,
    add_until_accuracy,
    check_seeds,
    execution_of,
    settings_of,
    warn,
)
from qccf.cli.parser import whole_number
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
    compare.usage = "qccf compare [PRESET|FILE.toml] [options]"
    compare.examples = {
        "qccf compare quick --policy qccf,same-size --seeds 3 --out runs/mine": "two policies in the same three cells",
        "qccf compare quick --also lean": "the paper's five policies, and qccf with the settings of lean",
        "qccf compare quick --policy qccf --codec model,update+entropy": "one policy with two codecs",
    }
    add_scenario(compare, "quick")
    add_policies(compare, "the paper's five")
    add_codecs(compare, "the scenario's, update+entropy")
    compare.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="PRESET|FILE.toml",
        help="also train the same federation with qccf and these settings of learning and control; may be repeated",
    )
    compare.add_argument(
        "--also-rounds",
        type=whole_number,
        metavar="N",
        help="rounds of what --also adds, which may have fewer clients per round (default: those of the others)",
    )
    add_seeds(compare, 1)
    compare.add_argument("--out", type=Path, metavar="DIR", help="the comparison's folder (default runs/compare-…)")
    compare.add_argument(
        "--force", action="store_true", help="replace what qccf has written into --out, and start fresh"
    )
    add_engine(compare)
    add_until_accuracy(compare)
    add_targets(compare)
    add_training(compare)
    add_json(compare, "every round of every run")
    compare.set_defaults(run=compare_command, trains=True)


def compare_command(options: argparse.Namespace) -> int:
    from qccf.cli.screen import announce, end_announcement, screen_of

    check_engine(options)
    if options.also_rounds is not None and not options.also:
        raise ConfigError(f"--also-rounds {options.also_rounds} is for what --also adds: give --also PRESET as well.")
    check_seeds(options, MAX_SEEDS)
    console = screen_of(options)
    announce(console, "Loading libraries, settings and data")
    from qccf.cli.folders import claimed, default_folder
    from qccf.cli.queue_view import print_outcome, print_start, run_with_view
    from qccf.jobs.training import training_job
    from qccf.learning.datasets import data_folder
    from qccf.policies.registry import PAPERS_POLICIES, with_codecs
    from qccf.rounds.setup import check_scenario
    from qccf.runtimes.simulator import resolved_scenario
    from qccf.runtimes.tensorboard import tensorboard_class
    from qccf.settings.loading import digest, load_scenario, run_digest, with_layer

    scenario = with_cores(load_scenario(options.scenario, [*settings_of(options), *execution_of(options)]), options)
    data_dir = data_folder(options.data_dir)
    scenario = resolved_scenario(scenario, None, warn)
    policies = list(dict.fromkeys(options.policies or PAPERS_POLICIES))
    codecs = list(dict.fromkeys(options.codecs or [scenario.codec.name]))
    seeds = range(scenario.federation.seed, scenario.federation.seed + options.seeds)
    scenarios = [
        scenario.replaced(policy={"name": policy}, codec={"name": codec}, federation={"seed": seed})
        for seed, (policy, codec) in itertools.product(seeds, with_codecs(policies, codecs))
    ]
    also_rounds = scenario.federation.rounds if options.also_rounds is None else options.also_rounds
    scenarios += [
        with_layer(scenario.replaced(policy={"name": "qccf"}, federation={"seed": seed, "rounds": also_rounds}), layer)
        for seed, layer in itertools.product(seeds, options.also)
    ]
    labels = [scenario.policy.label, *(one.policy.label for one in scenarios[len(scenarios) - len(options.also) :])]
    if len(set(labels)) < len(labels):
        twice = max(labels, key=labels.count)
        raise ConfigError(f"--also would call two kinds of run {twice!r}: give a file its own policy.label.")
    for one in scenarios:
        check_scenario(one)
    found = resolved_scenario(scenario, data_dir, warn).data.model_dump()  # the figures need the data here as well
    scenarios = [one.replaced(data=found) for one in scenarios]
    if options.tensorboard:
        tensorboard_class()
    settings = digest([run_digest(one) for one in scenarios])
    out: Path = options.out or default_folder(f"compare-{Path(options.scenario).stem}", settings)
    jobs = [training_job(one, out, data_dir, tensorboard=options.tensorboard) for one in scenarios]
    end_announcement()
    status = 0
    with claimed(out, "compare", settings, force=options.force):
        print_start(console, jobs, out)
        progress = run_with_view(console, jobs, build_engine(options))
        finished = [job for job, state in zip(jobs, progress.states, strict=True) if state == "done"]
        if finished and not progress.interrupted:
            status = _print_results(console, out, finished, options.json, options.targets)
    return print_outcome(console, progress) or status


def _print_results(
    console: "Console", out: Path, jobs: "Sequence[TrainingJob]", as_json: str | None, wanted: list[float] | None
) -> int:
    """Read the runs back, write their figures and summaries, print the table; returns the exit status."""
    from qccf.cli.json_output import print_json, run_json
    from qccf.cli.tables import (
        common_parts,
        print_health,
        print_privacy,
        results_table,
        service_table,
        status_of,
        targets_table,
    )
    from qccf.core.files import one_at_a_time, write_text_whole
    from qccf.core.numbers import quantity
    from qccf.core.words import counted
    from qccf.jobs.training import cached_dataset
    from qccf.reports.figures.drawing import save_chart
    from qccf.reports.figures.run import run_charts
    from qccf.rounds.run import codecs_of, health_sentences, run_labels
    from qccf.rounds.run_folder import FIGURES, read_run
    from qccf.rounds.targets import default_targets, least_energy_sentence, targets_json

    scenario = jobs[0].scenario
    dataset = cached_dataset(scenario.data.dataset, jobs[0].data_dir)
    runs = [read_run(job.folder) for job in jobs]
    summaries = [run.summary for run in runs]
    write_text_whole(out / "summary.json", json.dumps(summaries, indent=2) + "\n")
    with one_at_a_time(out / FIGURES):
        for chart in run_charts(runs, dataset):
            chart = replace(chart, caption=f"{codecs_of(runs)}. {chart.caption}")
            save_chart(chart, out / FIGURES / f"{chart.key}.png")
    stop = scenario.evaluation.until_accuracy
    targets = wanted or ([stop] if stop else default_targets(runs))
    if as_json:
        print_json([run_json(run, full=as_json == "full") | {"targets": targets_json(run, targets)} for run in runs])
        return status_of(runs)
    seeds = len({run.seed for run in runs})
    lengths = {run.scenario.federation.rounds for run in runs}
    shortest = f"{min(lengths)} to " if len(lengths) > 1 else ""
    rounds = f"{'up to ' if stop else shortest}{counted(max(lengths), 'round')}"
    title = f"{dataset.name}, {rounds}, {counted(seeds, 'seed')}{common_parts(runs)}"
    console.print(results_table(title, run_labels(runs), summaries))
    if targets:
        console.print(targets_table(run_labels(runs), runs, targets))
    console.print(service_table(run_labels(runs), summaries))
    print_privacy(console, runs)
    print_health(console, health_sentences(runs))
    floors_j = sorted(summary["floor_j"] for summary in summaries)
    ends = floors_j[:1] if floors_j[-1] < 1.01 * floors_j[0] else [floors_j[0], floors_j[-1]]
    shown = " to ".join(quantity(end, "J") for end in ends)
    console.print(f"Floor: {shown} for computing alone at the lowest frequency, by the clients that took part.")
    if dataset.synthetic:
        console.print(f"Data: {dataset.source}.", style="yellow")
    console.print(f"Written: {out}", soft_wrap=True)
    if sentence := least_energy_sentence(runs, targets):
        console.print(sentence, style="bold", soft_wrap=True, highlight=False)
    return status_of(runs)
