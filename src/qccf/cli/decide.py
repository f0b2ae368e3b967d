"""`qccf decide`."""

import argparse
import json
import sys

from qccf.cli.options import Subparsers, add_json
from qccf.cli.parser import whole_number
from qccf.core.errors import QccfError


def add_parser(commands: Subparsers) -> None:
    decide = commands.add_parser("decide", help="decide one round from a problem in JSON")
    decide.description = "Decide one round: each client's participation, channel, CPU frequency and number of bits."
    decide.usage = "qccf decide PROBLEM.json [options]"
    decide.examples = {
        "qccf decide examples/round.json": "one round as a table",
        "qccf decide - --json < examples/round.json": "from standard input, as JSON",
    }
    decide.add_argument("problem", metavar="PROBLEM.json", help='the problem, or "-" for standard input')
    decide.add_argument(
        "--solver",
        choices=("assignment", "genetic", "exhaustive"),
        default="assignment",
        help="for participation and channels (default assignment)",
    )
    decide.add_argument(
        "--inner",
        choices=("exact", "closed-form", "printed"),
        default="exact",
        help="for bits and frequency (default exact)",
    )
    decide.add_argument("--seed", type=whole_number, default=0, metavar="S", help="for the genetic solver (default 0)")
    add_json(decide, "the same, because it is short")
    decide.set_defaults(run=decide_command)


def decide_command(options: argparse.Namespace) -> int:
    from rich.table import Table

    from qccf.cli.screen import output
    from qccf.core.numbers import quantity
    from qccf.settings.problem import decide_problem, decision_to_json, read_problem

    if options.seed < 0:
        raise QccfError(f"--seed {options.seed} is negative: give 0 or above.")
    problem, ignored = read_problem(options.problem)
    if ignored:
        print(f"qccf: ignored: {', '.join(ignored)}", file=sys.stderr)
    decision = decide_problem(problem, solver=options.solver, inner=options.inner, seed=options.seed)
    answer = decision_to_json(problem, decision)
    if options.json:
        print(json.dumps(answer))
        return 0
    table = Table(title=f"Decision by {answer['solver']} in {answer['wall_time_s'] * 1e3:.1f} ms")
    powers_w = answer.get("powers_w")
    for heading in ("client", "channel", "bits", "frequency (MHz)", *["power (mW)"] * (powers_w is not None)):
        table.add_column(heading, justify="right")
    rows = zip(answer["channels"], answer["num_bits"], answer["frequencies_hz"], strict=True)
    for client, (channel, bits, frequency_hz) in enumerate(rows):
        cells = [str(channel), str(bits), f"{frequency_hz / 1e6:.1f}"] if channel >= 0 else ["sits out"]
        if powers_w is not None and channel >= 0:
            cells.append(f"{powers_w[client] * 1e3:.3g}")
        table.add_row(str(client), *cells)
    console = output()
    console.print(table)
    if answer.get("error_budget"):
        console.print(f"error of the aggregate {answer['aggregate_error'] / answer['error_budget']:.2f} of its budget")
    console.print(
        f"J = {answer['objective']:.6g}, proven within {answer['certified_gap']:.3g} of the minimum; "
        f"energy {quantity(answer['energy_j'], 'J')}"
    )
    return 0
