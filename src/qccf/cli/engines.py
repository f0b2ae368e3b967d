"""`--engine`, `--address` and `--jobs`: where the jobs of a command run."""

import argparse
import os
from typing import TYPE_CHECKING

from qccf.cli.parser import Parser, whole_number
from qccf.core.errors import ConfigError

if TYPE_CHECKING:
    from qccf.jobs.queue import Engine
    from qccf.settings.loading import Scenario

MAX_JOBS = 256


def add_engine(command: Parser) -> None:
    command.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="processes of this machine, or Ray (default local)"
    )
    command.add_argument(
        "--address",
        metavar="ADDRESS",
        help="a Ray cluster: auto, host:port or ray://host:port (default: RAY_ADDRESS, else one is started here)",
    )
    command.add_argument(
        "--jobs", type=whole_number, metavar="N", help="number of runs at a time (default 1; with Ray, one per core)"
    )


def check_engine(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    if options.jobs is not None and not 1 <= options.jobs <= MAX_JOBS:
        raise ConfigError(f"--jobs {options.jobs} is out of range: give 1 to {MAX_JOBS}.")
    if options.address is not None and options.engine != "ray":
        raise ConfigError(f"--address {options.address} is the address of a Ray cluster: add --engine ray.")


def build_engine(options: argparse.Namespace, *, process_per_job: bool = False) -> "Engine":
    if options.engine == "ray":
        from qccf.jobs.ray_cluster import RayEngine

        return RayEngine(options.address, options.jobs)
    from qccf.jobs.local import LocalEngine

    return LocalEngine(options.jobs or 1, process_per_job)


def cores_per_job(options: argparse.Namespace) -> int:
    """An equal share of this machine's cores; with Ray one core, because the nodes may differ."""
    return 1 if options.engine == "ray" else max(1, (os.cpu_count() or 1) // (options.jobs or 1))


def with_cores(scenario: "Scenario", options: argparse.Namespace) -> "Scenario":
    """The scenario with that number of training threads, unless its settings give a number."""
    if scenario.execution.workers:
        return scenario
    execution = scenario.execution.model_copy(update={"workers": cores_per_job(options)})
    return scenario.model_copy(update={"execution": execution})
