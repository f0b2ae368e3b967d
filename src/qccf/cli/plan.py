"""`qccf plan`."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qccf.cli.options import (
    Subparsers,
    add_codecs,
    add_json,
    add_policies,
    add_scenario,
    add_seeds,
    check_seeds,
    settings_of,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from qccf.rounds.run import Run
    from qccf.settings.loading import Scenario

MAX_SEEDS = 10_000


def add_parser(commands: Subparsers) -> None:
    plan = commands.add_parser("plan", help="energy, latency and bits of a federation in its cell, without training")
    plan.description = "Decide many rounds without training and report energy, latency, participation and bits."
    plan.usage = "qccf plan [PRESET|FILE.toml] [options]"
    plan.examples = {
        "qccf plan femnist": "all policies in eight cells, without data",
        "qccf plan quick --policy qccf,same-size --set radio.bandwidth_hz=5e6": "two policies with half the bandwidth",
    }
    add_scenario(plan, "femnist")
    add_policies(plan, "the paper's five")
    add_codecs(plan, "the scenario's, update+entropy")
    add_seeds(plan, 8)
    plan.add_argument(
        "--statistics-from",
        type=Path,
        metavar="RUN",
        help="the folder of a training run: use the statistics that it measured, instead of a model",
    )
    plan.add_argument("--out", type=Path, metavar="DIR", help="folder of plan.json and plan.png (default runs/plan-…)")
    plan.add_argument("--force", action="store_true", help="replace what qccf has written into --out")
    add_json(plan, "every round and client, as in plan.json")
    plan.set_defaults(run=plan_command)


def plan_command(options: argparse.Namespace) -> int:
    from qccf.cli.screen import announce, end_announcement, messages, output

    if sys.stderr.isatty():
        announce(messages(), "Loading libraries and settings")
    from qccf.cli.folders import claimed, default_folder
    from qccf.cli.json_output import print_json
    from qccf.cli.tables import common_parts, plan_table, print_health, service_table
    from qccf.core.files import write_text_whole
    from qccf.core.words import counted
    from qccf.policies.registry import PAPERS_POLICIES
    from qccf.rounds.run import codecs_of, health_sentences, run_labels
    from qccf.rounds.run_folder import read_run
    from qccf.rounds.setup import check_scenario
    from qccf.runtimes.planner import plan, plan_summary, plan_to_json, planned_scenarios, planned_world
    from qccf.settings.loading import digest, load_scenario, run_digest

    check_seeds(options, MAX_SEEDS)
    scenario = load_scenario(options.scenario, settings_of(options))
    recorded = None if options.statistics_from is None else read_run(options.statistics_from)
    scenarios = planned_scenarios(scenario, options.codecs, recorded)
    scenario = scenarios[0]
    policies = list(dict.fromkeys(options.policies or [*PAPERS_POLICIES, scenario.policy.name]))
    for one in scenarios:
        for name in policies:
            check_scenario(one.replaced(policy={"name": name}))
        for seed in range(1, options.seeds):
            planned_world(one, scenario.federation.seed + seed, recorded)
    source = "" if recorded is None else [str(recorded.folder), recorded.summary]
    settings = digest([run_digest(one) for one in scenarios], policies, options.seeds, source, _trace_text(scenario))
    out: Path = options.out or default_folder(f"plan-{Path(options.scenario).stem}", settings)
    end_announcement()
    with claimed(out, "plan", settings, force=options.force), _progress_bar() as bar:
        task = bar.add_task("planning", total=len(scenarios) * len(policies) * options.seeds, completed=-1)
        runs = plan(
            scenario,
            policies,
            options.seeds,
            lambda policy, seed: bar.update(task, description=f"{policy}, seed {seed}", advance=1),
            codecs=options.codecs,
            statistics_from=recorded,
        )
        report = plan_to_json(scenario, runs)
        write_text_whole(out / "plan.json", json.dumps(report, default=str) + "\n")
    written = [out / "plan.json"]
    try:
        from qccf.reports.figures.drawing import save_chart
        from qccf.reports.figures.plan import plan_chart
    except ImportError:
        print("qccf: no figure, because matplotlib is missing: pip install 'qccf[plot]'", file=sys.stderr)
    else:
        chart = plan_chart(runs)
        save_chart(replace(chart, caption=f"{codecs_of(runs)}. {chart.caption}"), out / "plan.png")
        written.append(out / "plan.png")
    if options.json:
        about = {"scenario": str(options.scenario), "rounds": scenario.federation.rounds, "cells": options.seeds}
        health = {"health": health_sentences(runs), "written": [str(path) for path in written]}
        print_json(report if options.json == "full" else about | {"summary": report["summary"]} | health)
        return 0
    console = output()
    size = f"{counted(scenario.federation.rounds, 'round')}, {counted(options.seeds, 'cell')}"
    title = f"{Path(options.scenario).name}: {size}, no training{common_parts(runs)}"
    console.print(plan_table(title, plan_summary(runs)))
    console.print(
        "±: standard deviation over cells (energy), uploads (upload, bits) or rounds (round); bits vs size: rank "
        "correlation of bits and samples within a round."
    )
    console.print()
    console.print(service_table(run_labels(runs), [run.summary for run in runs]))
    console.print(
        "Active: clients that take part; late: uploads past the deadline; empty: rounds without a participant although "
        "a client could upload; fair share: all channels in use, shared equally by the clients that can upload."
    )
    print_health(console, health_sentences(runs))
    console.print(f"Statistics used instead of training: {_statistics_source(scenario, recorded)}.")
    console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return 0


def _trace_text(scenario: "Scenario") -> str:
    """The content of a trace file, which a plan depends on; bundled traces never change."""
    trace = Path(scenario.statistics.trace)
    own = scenario.statistics.model == "trace" and trace.is_file()
    return trace.read_text(encoding="utf-8") if own else ""


def _statistics_source(scenario: "Scenario", recorded: "Run | None") -> str:
    from qccf.rounds.recordings import recording_words

    if recorded is not None:
        held = "; after that the last values are held, and the loss goes on falling" * (
            scenario.federation.rounds > recorded.num_rounds
        )
        return f"{recorded.num_rounds} rounds recorded in {recorded.folder}{held}"
    s = scenario.statistics
    if s.model == "recorded":
        return recording_words(scenario)
    if s.model == "trace":
        return f"trace {s.trace}, the rest constant"
    return f"constants G² {s.gradient_norm_sq:g}, σ² {s.gradient_variance:g}, θ_max {s.weight_range:g}, loss {s.loss:g}"


def _progress_bar() -> "Progress":
    """A bar on a terminal; nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from qccf.cli.screen import messages

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=messages(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
