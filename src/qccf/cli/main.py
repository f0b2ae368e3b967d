"""The command line: parses, calls, prints. A command's code is imported when it is called."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from qccf._version import __version__
from qccf.core.errors import QccfError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parser().parse_args(arguments)
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


def _later(module: str, function: str, *, extra: str = "sim") -> Callable[[argparse.Namespace], int]:
    """A command that is imported when it is called; what it needs beyond the core may be missing."""

    def call(options: argparse.Namespace) -> int:
        try:
            command = getattr(import_module(f"qccf.cli.{module}"), function)
        except ModuleNotFoundError as error:
            missing = error.name or "a package"
            raise QccfError(f"this command needs {missing}: pip install 'qccf[{extra}]'.") from None
        status: int = command(options)
        return status

    return call


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(
        prog="qccf", description="Energy-efficient federated learning over a wireless uplink."
    )
    top.add_argument("--version", action="version", version=f"qccf {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(commands.add_parser("run", help="train a federation under one policy"))
    _add_compare(commands.add_parser("compare", help="train it under several policies, on the same cells and data"))
    _add_reproduce(commands.add_parser("reproduce", help="run the paper's experiments and say which claims hold"))
    _add_sweep(commands.add_parser("sweep", help="run a grid of settings, on this machine or on a Ray cluster"))
    _add_report(commands.add_parser("report", help="one HTML page from any runs"))
    _add_plan(commands.add_parser("plan", help="what a federation costs in its cell, with no training"))
    _add_decide(commands.add_parser("decide", help="decide one round from a problem in JSON"))
    _add_data(commands.add_parser("data", help="list, fetch and check datasets"))
    _add_flower(commands.add_parser("flower", help="write a Flower app that runs a scenario"))
    return top


def _add_scenario(command: argparse.ArgumentParser, default: str) -> None:
    command.add_argument(
        "scenario",
        nargs="?",
        default=default,
        metavar="PRESET|FILE.toml",
        help=f"femnist, cifar10, quick, paper-table, or a TOML file (default {default})",
    )
    command.add_argument("--rounds", type=int, metavar="N", help="overrides federation.rounds")
    _add_overrides(command)


def _add_overrides(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=c",
        dest="overrides",
        help="override a setting, such as data.dataset_size_std=300",
    )


def _add_execution(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=int, metavar="S", help="overrides federation.seed")
    command.add_argument("--data-dir", type=Path, metavar="DIR", help="where datasets are (default: QCCF_DATA)")
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), help="auto takes a GPU where there is one")
    command.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), help="auto takes bf16 where the hardware multiplies it"
    )
    command.add_argument("--workers", type=int, metavar="W", help="threads that train clients (default: every core)")
    command.add_argument("--tensorboard", action="store_true", help="log every round for TensorBoard")


def _add_run(run: argparse.ArgumentParser) -> None:
    run.description = "Train a federation under one policy; the folder it leaves can be resumed."
    _add_scenario(run, "femnist")
    run.add_argument("--policy", metavar="NAME", help="one of the five, or your own as module:Class (default qccf)")
    run.add_argument(
        "--codec", metavar="NAME", help="how uploads are coded; the paper's is `model` (see docs/codecs.md)"
    )
    run.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default runs/…)")
    run.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in this folder")
    _add_execution(run)
    run.set_defaults(run=_later("run", "run_command"))


def _add_compare(compare: argparse.ArgumentParser) -> None:
    compare.description = "Train under several policies on the same cells, fading and data. Goes on where it stopped."
    _add_scenario(compare, "quick")
    compare.add_argument("--policies", metavar="A,B,…", help="default: all five")
    compare.add_argument("--codecs", metavar="A,B,…", help="default: the paper's, `model`, unless the file names one")
    compare.add_argument("--seeds", type=int, default=1, metavar="K", help="so many cells (default 1)")
    compare.add_argument("--out", type=Path, metavar="DIR", help="the comparison's folder (default runs/compare-…)")
    _add_execution(compare)
    compare.set_defaults(run=_later("run", "compare_command"))


def _add_reproduce(reproduce: argparse.ArgumentParser) -> None:
    reproduce.description = (
        "Run the paper's experiments and report, claim by claim, what holds. Goes on where it stopped."
    )
    reproduce.add_argument(
        "figure", nargs="?", choices=("fig2", "fig3", "fig4", "fig5", "all"), default="all", help="default: all"
    )
    reproduce.add_argument(
        "--scale", choices=("smoke", "small", "full"), default="small", help="how much of it (default small)"
    )
    reproduce.add_argument("--tasks", default="femnist,cifar10", metavar="A,B", help="default: femnist,cifar10")
    reproduce.add_argument("--out", type=Path, metavar="DIR", help="default runs/reproduce-SCALE")
    _add_engine(reproduce)
    reproduce.add_argument("--data-dir", type=Path, metavar="DIR", help="where datasets are (default: QCCF_DATA)")
    _add_overrides(reproduce)
    reproduce.set_defaults(run=_later("reproduce", "reproduce_command"))


def _add_sweep(sweep: argparse.ArgumentParser) -> None:
    sweep.description = "Run a grid of settings into one Parquet table. Goes on where it stopped."
    sweep.add_argument("file", type=Path, metavar="FILE.toml", help="the grid (see docs/sweep.md)")
    _add_engine(sweep)
    sweep.add_argument("--out", type=Path, metavar="DIR", help="default runs/sweep-FILE")
    sweep.add_argument("--data-dir", type=Path, metavar="DIR", help="where datasets are (default: QCCF_DATA)")
    sweep.set_defaults(run=_later("sweep", "sweep_command"))


def _add_engine(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="processes of this machine, or Ray (default local)"
    )
    command.add_argument(
        "--address",
        metavar="ADDRESS",
        help="a Ray cluster: auto, host:port or ray://host:port (default: RAY_ADDRESS, else one is started here)",
    )
    command.add_argument(
        "--jobs", type=int, metavar="N", help="so many runs at a time (default 1; with Ray, one for each core)"
    )


def _add_report(report: argparse.ArgumentParser) -> None:
    report.description = "Claims, figures, settings and deviations of any runs, as one HTML file that opens offline."
    report.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs, or with runs below them")
    report.add_argument("--out", type=Path, metavar="FILE.html", help="default DIR/report.html")
    report.set_defaults(run=_later("report", "report_command"))


def _add_plan(plan: argparse.ArgumentParser) -> None:
    plan.description = "Decide many rounds with no training and report energy, latency, participation and bits."
    _add_scenario(plan, "femnist")
    plan.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        dest="policies",
        help="repeat for several; default: all five; one of your own is module:Class",
    )
    plan.add_argument("--seeds", type=int, default=8, metavar="K", help="so many cells (default 8)")
    plan.add_argument("--out", type=Path, metavar="DIR", help="where plan.json and plan.png go (default runs/plan-…)")
    plan.add_argument("--json", action="store_true", help="print the plan as JSON instead of a table")
    plan.set_defaults(run=_later("plan", "plan_command"))


def _add_decide(decide: argparse.ArgumentParser) -> None:
    decide.description = "Decide one round: who takes part, on which channel, how fast, with how many bits."
    decide.add_argument("problem", metavar="PROBLEM.json", help='the problem, or "-" for standard input')
    decide.add_argument(
        "--solver",
        choices=("assignment", "genetic", "exhaustive"),
        default="assignment",
        help="who takes part, on which channel (default assignment)",
    )
    decide.add_argument(
        "--inner",
        choices=("exact", "closed-form", "printed"),
        default="exact",
        help="bits and frequency (default exact)",
    )
    decide.add_argument("--seed", type=int, default=0, metavar="S", help="for the genetic solver (default 0)")
    decide.add_argument("--json", action="store_true", help="print the decision as JSON")
    decide.set_defaults(run=_later("decide", "decide"))


def _add_data(data: argparse.ArgumentParser) -> None:
    data.description = "Datasets: what there is, what is here, and whether it is whole."
    data.add_argument("action", choices=("list", "fetch", "check"), help="what to do")
    data.add_argument("name", nargs="?", default="", help="for fetch and check")
    data.add_argument("--data-dir", type=Path, metavar="DIR", help="where datasets are (default: QCCF_DATA)")
    data.set_defaults(run=_later("data", "data_command"))


def _add_flower(flower: argparse.ArgumentParser) -> None:
    flower.description = "Write a Flower app; `flwr run DIR` then works in simulation and against a deployment."
    flower.add_argument("action", choices=("new",), help="what to do: write an app that runs with no edits")
    flower.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    flower.set_defaults(run=_later("flower", "new_command", extra="flower"))


if __name__ == "__main__":
    sys.exit(main())
