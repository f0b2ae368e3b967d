"""`qccf flower new`."""

import argparse

from qccf.runtimes.flower.scaffold import new_app


def new_command(options: argparse.Namespace) -> int:
    """Write a Flower app."""
    for path in new_app(options.folder):
        print(path)
    print(
        f"Run it in simulation with:\n  flwr run {options.folder} local --stream "
        "--federation-config 'num-supernodes=10 client-resources-num-cpus=1'"
    )
    return 0
