"""Options that several commands share, and the settings that they stand for."""

import argparse
import sys
from pathlib import Path
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_scenario(command: argparse.ArgumentParser, default: str) -> None:
    command.add_argument(
        "scenario",
        nargs="?",
        default=default,
        metavar="PRESET|FILE.toml",
        help=f"femnist, cifar10, quick, paper-table, or a TOML file (default {default})",
    )
    command.add_argument("--rounds", type=int, metavar="N", help="overrides federation.rounds")
    add_overrides(command)


def add_overrides(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=c",
        dest="overrides",
        help="override a setting, such as data.dataset_size_std=300",
    )


def add_training(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=int, metavar="S", help="overrides federation.seed")
    add_data_dir(command)
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), help="auto uses a GPU if there is one")
    command.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), help="auto uses bf16 if the hardware multiplies it"
    )
    command.add_argument(
        "--workers", type=int, metavar="W", help="threads per run that train clients (default: all cores)"
    )
    command.add_argument("--tensorboard", action="store_true", help="log every round for TensorBoard")


def add_data_dir(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data-dir", type=Path, metavar="DIR", help="folder of the datasets (default: QCCF_DATA)")


def settings_of(options: argparse.Namespace) -> list[str]:
    """The options that define a run, as `section.key=value`."""
    keys = {"rounds": "federation.rounds", "seed": "federation.seed", "codec": "codec.name"}
    return [*options.overrides, *_given(options, keys)]


def execution_of(options: argparse.Namespace) -> list[str]:
    """The options that say how a run is computed, as `section.key=value`."""
    return _given(options, {key: f"execution.{key}" for key in ("device", "precision", "workers")})


def _given(options: argparse.Namespace, keys: dict[str, str]) -> list[str]:
    values = {key: getattr(options, name, None) for name, key in keys.items()}
    return [f"{key}={value}" for key, value in values.items() if value is not None]


def warn(sentence: str) -> None:
    """Print a warning on standard error."""
    print(f"qccf: {sentence}", file=sys.stderr)
