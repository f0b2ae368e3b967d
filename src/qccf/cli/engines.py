"""`--engine`, `--address` and `--jobs`: where the runs of a command are computed."""

import argparse
import os

from qccf.core.errors import ConfigError
from qccf.jobs.queue import Engine

MAX_JOBS = 256


def check_engine(options: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    if options.jobs is not None and not 1 <= options.jobs <= MAX_JOBS:
        raise ConfigError(f"--jobs {options.jobs} is out of range: give 1 to {MAX_JOBS}.")
    if options.address is not None and options.engine != "ray":
        raise ConfigError(f"--address {options.address} is a Ray cluster's: add --engine ray.")


def build_engine(options: argparse.Namespace, *, fresh: bool = False) -> Engine:
    """The engine that was asked for; `fresh` gives each run a process of its own."""
    if options.engine == "ray":
        from qccf.jobs.ray_cluster import RayEngine

        return RayEngine(options.address, options.jobs)
    from qccf.jobs.local import LocalEngine

    return LocalEngine(options.jobs or 1, fresh)


def cores_of_a_run(options: argparse.Namespace) -> int:
    """A run's share of this machine; on a cluster, whose nodes may differ, one core unless the settings say more."""
    return 1 if options.engine == "ray" else max(1, (os.cpu_count() or 1) // (options.jobs or 1))
