"""`qccf plan`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from qccf.cli.prepare import prepare
from qccf.core.errors import ConfigError
from qccf.core.files import write_text_whole, write_whole
from qccf.policies.registry import POLICIES
from qccf.runtimes.planner import plan, plan_to_json, summarise
from qccf.settings.loading import Scenario, load_scenario
from qccf.settings.schema import PAPERS_CODEC


def plan_command(options: argparse.Namespace) -> int:
    if not 1 <= options.seeds <= 10_000:
        raise ConfigError(f"--seeds {options.seeds} is out of range: give 1 to 10000.")
    overrides = list(options.overrides)
    if options.rounds is not None:
        overrides.append(f"federation.rounds={options.rounds}")
    scenario = load_scenario(options.scenario, overrides)
    if "name" in scenario.codec.model_fields_set and scenario.codec.name != PAPERS_CODEC:
        print(
            f"qccf: codec.name = {scenario.codec.name!r} is not used: a plan is of the paper's codec", file=sys.stderr
        )
    scenario = scenario.with_codec(PAPERS_CODEC)
    policies = list(dict.fromkeys(options.policies or [*POLICIES, scenario.policy.name]))
    out: Path = options.out or Path("runs") / f"plan-{Path(options.scenario).stem}"
    first = scenario.federation.seed
    prepare(scenario, policies, range(first, first + options.seeds), out)
    with PlanProgress(len(policies) * options.seeds) as progress:
        runs = plan(scenario, policies, options.seeds, progress.step)
    report = plan_to_json(scenario, runs)
    write_text_whole(out / "plan.json", json.dumps(report, default=str) + "\n")
    written = [out / "plan.json"]
    try:
        from qccf.report.figures.plan import plan_figure
    except ImportError:
        print("qccf: no figure, because matplotlib is missing: pip install 'qccf[plot]'", file=sys.stderr)
    else:
        figure = plan_figure(runs, focus="qccf" if "qccf" in policies else policies[0])
        write_whole(out / "plan.png", lambda path: figure.savefig(path))
        written.append(out / "plan.png")
    if options.json:
        print(json.dumps(report, default=str))
        return 0
    console = Console()
    title = f"{options.scenario}: {scenario.federation.rounds} rounds, {options.seeds} cells, no training"
    console.print(plan_table(title, summarise(runs)))
    console.print(
        "± is over cells (J), uploads (mJ, bits), rounds (ms, part); bits ~ D: rank correlation within a round."
    )
    console.print(f"Training is stood in for by: {_statistics_source(scenario)}.")
    console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return 0


def _statistics_source(scenario: Scenario) -> str:
    s = scenario.statistics
    if s.model == "trace":
        return f"trace {s.trace}, the rest constant"
    return f"constants G² {s.gradient_norm_sq:g}, σ² {s.gradient_variance:g}, θ_max {s.weight_range:g}, loss {s.loss:g}"


def plan_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """The plan's summary for the terminal; ± is the standard deviation over cells, uploads or rounds."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    table.add_column("policy", no_wrap=True)
    headings = ("energy\nJ", "upload\nmJ", "round\nms", "take\npart", "missed", "bits\nfirst→last", "bits\n~ D")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)

    def pm(value: dict[str, float] | None, scale: float = 1.0) -> str:
        if value is None:
            return "–"
        return f"{value['mean'] * scale:.3g}{spread(value, scale)}"

    def spread(value: dict[str, float] | None, scale: float = 1.0) -> str:
        """Nothing where there is none; a thousandth of the mean is rounding."""
        if value is None or value["std"] <= 1e-3 * abs(value["mean"]):
            return ""
        return f"±{value['std'] * scale:.2g}"

    for row in rows:
        ends = (row["bits_first_tenth"], row["bits_last_tenth"])
        table.add_row(
            row["policy"],
            pm(row["energy_j"]),
            pm(row["energy_per_upload_j"], 1e3),
            pm(row["round_latency_s"], 1e3),
            pm(row["participation"], 100.0) + "%",
            f"{row['missed']:.0%}",
            "→".join("–" if end is None else f"{end:.1f}" for end in ends) + spread(row["bits"]),
            "–" if row["bits_size_correlation"] is None else f"{row['bits_size_correlation']['mean']:+.2f}",
        )
    return table


class PlanProgress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("planning", total=total)
        self._begun = False

    def __enter__(self) -> "PlanProgress":
        self._bar.start()
        return self

    def step(self, policy: str, seed: int) -> None:
        """Called when a run begins."""
        self._bar.update(self._task, description=f"{policy}, seed {seed}", advance=int(self._begun))
        self._begun = True

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
