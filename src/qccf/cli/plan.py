"""`qccf plan`."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qccf.cli.options import Subparsers, add_scenario, settings_of
from qccf.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress

    from qccf.rounds.run import Run
    from qccf.settings.loading import Scenario

MAX_SEEDS = 10_000


def add_parser(commands: Subparsers) -> None:
    plan = commands.add_parser("plan", help="energy, latency and bits of a federation in its cell, without training")
    plan.description = "Decide many rounds without training and report energy, latency, participation and bits."
    add_scenario(plan, "femnist")
    plan.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        dest="policies",
        help="repeat for several; your own is module:Class (default: all five)",
    )
    plan.add_argument(
        "--statistics-from",
        type=Path,
        metavar="RUN",
        help="the folder of a training run: use the statistics that it measured, instead of a model",
    )
    plan.add_argument("--seeds", type=int, default=8, metavar="K", help="number of cells (default 8)")
    plan.add_argument("--out", type=Path, metavar="DIR", help="folder of plan.json and plan.png (default runs/plan-…)")
    plan.add_argument("--json", action="store_true", help="print the plan as JSON instead of a table")
    plan.set_defaults(run=plan_command)


def plan_command(options: argparse.Namespace) -> int:
    from rich.console import Console

    from qccf.cli.tables import plan_table, print_health, service_table
    from qccf.core.files import require_writable, write_text_whole
    from qccf.policies.registry import POLICIES
    from qccf.rounds.run import health_sentences
    from qccf.rounds.run_folder import read_run
    from qccf.rounds.setup import check_scenario
    from qccf.runtimes.planner import plan, plan_summary, plan_to_json, planned_scenario, planned_world
    from qccf.settings.loading import load_scenario
    from qccf.settings.schema import PAPERS_CODEC

    if not 1 <= options.seeds <= MAX_SEEDS:
        raise ConfigError(f"--seeds {options.seeds} is out of range: give 1 to {MAX_SEEDS}.")
    scenario = load_scenario(options.scenario, settings_of(options))
    recorded = None if options.statistics_from is None else read_run(options.statistics_from)
    if recorded is None and "name" in scenario.codec.model_fields_set and scenario.codec.name != PAPERS_CODEC:
        print(
            f"qccf: codec.name = {scenario.codec.name!r} is ignored: a plan uses the paper's codec, {PAPERS_CODEC!r}",
            file=sys.stderr,
        )
    scenario = planned_scenario(scenario, recorded)
    policies = list(dict.fromkeys(options.policies or [*POLICIES, scenario.policy.name]))
    for name in policies:
        check_scenario(scenario.replaced(policy={"name": name}))
    for seed in range(1, options.seeds):
        planned_world(scenario, scenario.federation.seed + seed, recorded)
    out: Path = options.out or Path("runs") / f"plan-{Path(options.scenario).stem}"
    require_writable(out)
    with _progress_bar() as bar:
        task = bar.add_task("planning", total=len(policies) * options.seeds, completed=-1)
        runs = plan(
            scenario,
            policies,
            options.seeds,
            lambda policy, seed: bar.update(task, description=f"{policy}, seed {seed}", advance=1),
            statistics_from=recorded,
        )
    report = plan_to_json(scenario, runs)
    write_text_whole(out / "plan.json", json.dumps(report, default=str) + "\n")
    written = [out / "plan.json"]
    try:
        from qccf.report.figures.drawing import save_chart
        from qccf.report.figures.plan import plan_chart
    except ImportError:
        print("qccf: no figure, because matplotlib is missing: pip install 'qccf[plot]'", file=sys.stderr)
    else:
        chart = plan_chart(runs, focus="qccf" if "qccf" in policies else policies[0])
        save_chart(chart, out / "plan.png")
        written.append(out / "plan.png")
    if options.json:
        print(json.dumps(report, default=str))
        return 0
    console = Console()
    title = f"{options.scenario}: {scenario.federation.rounds} rounds, {options.seeds} cells, no training"
    console.print(plan_table(title, plan_summary(runs)))
    console.print(
        "±: standard deviation over cells (energy), uploads (upload, bits) or rounds (round); bits vs size: rank "
        "correlation of bits and samples within a round."
    )
    console.print(service_table([run.policy for run in runs], [run.summary for run in runs]))
    console.print(
        "Active: clients that take part; late: uploads past the deadline; empty: rounds without a participant although "
        "a client could upload; fair share: all channels in use, shared equally by the clients that can upload."
    )
    print_health(console, health_sentences(runs))
    console.print(f"Statistics used instead of training: {_statistics_source(scenario, recorded)}.")
    console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return 0


def _statistics_source(scenario: "Scenario", recorded: "Run | None") -> str:
    if recorded is not None:
        held = "; the last values are held after that" * (scenario.federation.rounds > recorded.num_rounds)
        return f"{recorded.num_rounds} rounds recorded in {recorded.folder}{held}"
    s = scenario.statistics
    if s.model == "trace":
        return f"trace {s.trace}, the rest constant"
    return f"constants G² {s.gradient_norm_sq:g}, σ² {s.gradient_variance:g}, θ_max {s.weight_range:g}, loss {s.loss:g}"


def _progress_bar() -> "Progress":
    """A bar on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
