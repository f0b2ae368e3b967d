"""`qccf flower new`."""

import argparse
from pathlib import Path

from qccf.cli.options import Subparsers


def add_parser(commands: Subparsers) -> None:
    flower = commands.add_parser("flower", help="write a Flower app that runs a scenario")
    flower.description = "Write a Flower app; `flwr run DIR` then works in simulation and in a deployment."
    flower.examples = {"qccf flower new my-app": "write the app; the command then says how to run it"}
    flower.add_argument("action", choices=("new",), help="write an app that runs without changes")
    flower.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    flower.set_defaults(run=flower_command, extra="flower")


def flower_command(options: argparse.Namespace) -> int:
    from qccf.runtimes.flower.scaffold import new_app

    for path in new_app(options.folder):
        print(path)
    print(
        f"Run it in simulation with:\n  flwr run {options.folder} local --stream "
        "--federation-config 'num-supernodes=10 client-resources-num-cpus=1'"
    )
    return 0
