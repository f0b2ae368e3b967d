"""The command line: parses, calls, prints. Everything heavy is imported by the command that needs it."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qccf import __version__
from qccf.errors import QccfError

if TYPE_CHECKING:
    from rich.table import Table

    from qccf.config import Scenario

POLICY_NAMES = ("qccf", "no-quantization", "channel-allocate", "principle", "same-size")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except QccfError as error:
        print(f"qccf: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("qccf: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="qccf", description="Energy-efficient federated learning over a wireless uplink."
    )
    parser.add_argument("--version", action="version", version=f"qccf {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    decide = commands.add_parser(
        "decide",
        help="decide one round from a problem in JSON",
        description="Decide one round: who takes part, on which channel, how fast, with how many bits.",
    )
    decide.add_argument("problem", metavar="PROBLEM.json", help='the problem, or "-" for standard input')
    decide.add_argument("--solver", choices=("assignment", "genetic", "exhaustive"), default="assignment")
    decide.add_argument("--inner", choices=("exact", "closed-form", "printed"), default="exact")
    decide.add_argument("--seed", type=int, default=0, help="for the genetic solver (default 0)")
    decide.add_argument("--json", action="store_true", help="print the decision as JSON")
    decide.set_defaults(run=_decide)

    plan = commands.add_parser(
        "plan",
        help="what a federation costs in its cell, with no training",
        description="Decide many rounds with no training and report energy, latency, participation and bits.",
    )
    plan.add_argument("scenario", nargs="?", default="femnist", metavar="PRESET|FILE.toml",
                      help="femnist (default), cifar10, quick, paper-table, or a TOML file")  # fmt: skip
    plan.add_argument("--rounds", type=int, help="overrides federation.rounds")
    plan.add_argument("--policy", action="append", metavar="NAME", dest="policies",
                      help="repeat for several; default: all five; one of your own is module:Class")  # fmt: skip
    plan.add_argument("--seeds", type=int, default=8, metavar="K", help="so many cells (default 8)")
    plan.add_argument("--set", action="append", default=[], metavar="a.b=c", dest="overrides",
                      help="override a setting, such as data.dataset_size_std=300")  # fmt: skip
    plan.add_argument(
        "--out", type=Path, metavar="DIR", help="where plan.json and plan.png go (default runs/plan-NAME)"
    )
    plan.add_argument("--json", action="store_true", help="print the plan as JSON instead of a table")
    plan.set_defaults(run=_plan)
    return parser


def _decide(options: argparse.Namespace) -> int:
    import numpy as np

    from qccf.control.solve import solve_round
    from qccf.problem_file import decision_to_json, read_problem

    problem, ignored = read_problem(options.problem)
    if ignored:
        print(f"qccf: ignored: {', '.join(ignored)}", file=sys.stderr)
    decision = solve_round(
        problem, solver=options.solver, inner=options.inner, rng=np.random.default_rng(abs(options.seed))
    )
    answer = decision_to_json(problem, decision)
    if options.json:
        print(json.dumps(answer))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Decision by {answer['solver']} in {answer['wall_time_s'] * 1e3:.1f} ms")
    for heading in ("client", "channel", "bits", "frequency (MHz)"):
        table.add_column(heading, justify="right")
    rows = zip(answer["channels"], answer["num_bits"], answer["frequencies_hz"], strict=True)
    for client, (channel, bits, frequency_hz) in enumerate(rows):
        cells = (str(channel), str(bits), f"{frequency_hz / 1e6:.1f}") if channel >= 0 else ("sits out", "", "")
        table.add_row(str(client), *cells)
    console = Console()
    console.print(table)
    console.print(
        f"J = {answer['objective']:.6g}, proven within {answer['certified_gap']:.3g} of the least possible; "
        f"energy {answer['energy_j'] * 1e3:.4g} mJ"
    )
    return 0


def _plan(options: argparse.Namespace) -> int:
    from qccf.config import load_scenario
    from qccf.errors import ConfigError
    from qccf.files import write_text_whole, write_whole
    from qccf.planning import plan, plan_to_json, summarise

    if not 1 <= options.seeds <= 10_000:
        raise ConfigError(f"--seeds {options.seeds} is out of range: give 1 to 10000.")
    overrides = list(options.overrides)
    if options.rounds is not None:
        overrides.append(f"federation.rounds={options.rounds}")
    scenario = load_scenario(options.scenario, overrides)
    policies = options.policies or list(POLICY_NAMES)
    out: Path = options.out or Path("runs") / f"plan-{Path(options.scenario).stem}"
    with _Progress(len(policies) * options.seeds) as progress:
        runs = plan(scenario, policies, options.seeds, progress.step)
    report = plan_to_json(scenario, runs)
    write_text_whole(out / "plan.json", json.dumps(report) + "\n")
    written = [out / "plan.json"]
    try:
        from qccf.report.plan_figure import plan_figure
    except ImportError:
        print("qccf: no figure, because matplotlib is missing: pip install 'qccf[plot]'", file=sys.stderr)
    else:
        figure = plan_figure(runs, focus="qccf" if "qccf" in policies else policies[0])
        write_whole(out / "plan.png", lambda path: figure.savefig(path))
        written.append(out / "plan.png")
    if options.json:
        print(json.dumps(report))
        return 0
    from rich.console import Console

    console = Console()
    title = f"{options.scenario}: {scenario.federation.rounds} rounds, {options.seeds} cells, no training"
    console.print(plan_table(title, summarise(runs)))
    console.print(
        "± is over cells (energy) and uploads (mJ, bits); bits ~ D is the rank correlation with dataset size."
    )
    console.print(f"Training is stood in for by: {_statistics_source(scenario)}.")
    console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return 0


def _statistics_source(scenario: "Scenario") -> str:
    s = scenario.statistics
    if s.model == "trace":
        return f"trace {s.trace}, the rest constant"
    return f"constants G² {s.gradient_norm_sq:g}, σ² {s.gradient_variance:g}, θ_max {s.weight_range:g}, loss {s.loss:g}"


def plan_table(title: str, rows: list[dict[str, Any]]) -> "Table":
    """The plan's summary for the terminal; ± is the standard deviation over cells, uploads or rounds."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    table.add_column("policy", no_wrap=True)
    headings = ("energy\nJ", "upload\nmJ", "round\nms", "take\npart", "missed", "bits", "first\n→ last", "bits\n~ D")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)

    def pm(value: dict[str, float] | None, scale: float = 1.0) -> str:
        if value is None:
            return "–"
        spread = f"±{value['std'] * scale:.2g}" if value["std"] else ""
        return f"{value['mean'] * scale:.3g}{spread}"

    for row in rows:
        ends = (row["bits_first_tenth"], row["bits_last_tenth"])
        table.add_row(
            row["policy"],
            pm(row["energy_j"]),
            pm(row["energy_per_upload_j"], 1e3),
            f"{row['round_latency_s']['mean'] * 1e3:.1f}" if row["round_latency_s"] else "–",
            f"{row['participation']:.0%}",
            f"{row['missed']:.0%}",
            pm(row["bits"]),
            "→".join("–" if end is None else f"{end:.1f}" for end in ends),
            "–" if row["bits_size_correlation"] is None else f"{row['bits_size_correlation']['mean']:+.2f}",
        )
    return table


class _Progress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Any = None

    def __enter__(self) -> "_Progress":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task("planning", total=self._total)
            self._started = False
        return self

    def step(self, policy: str, seed: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=f"{policy}, seed {seed}", advance=int(self._started))
            self._started = True

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


if __name__ == "__main__":
    sys.exit(main())
