"""Options that several commands share, and the settings that they stand for."""

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeAlias

from qccf.cli import choices, completers
from qccf.cli.parser import Once, Parser, names, whole_number
from qccf.core.errors import ConfigError

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_scenario(command: Parser, default: str) -> None:
    scenario = command.add_argument(
        "scenario",
        nargs="?",
        default=default,
        metavar="PRESET|FILE.toml",
        help=f"a preset (see below) or a TOML file (default {default})",
    )
    completers.attach(scenario, completers.scenarios)
    command.add_argument("--rounds", type=whole_number, metavar="N", help="overrides federation.rounds")
    add_overrides(command)
    command.lists["Presets"] = choices.PRESETS


def add_overrides(command: Parser) -> None:
    override = command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=c",
        dest="overrides",
        help="override a setting, such as data.dataset_size_std=300; `qccf settings` lists all; may be repeated",
    )
    completers.attach(override, completers.overrides)


def add_policies(command: Parser, default: str) -> None:
    """`--policy A,B`, which may be repeated, as the list `policies`; None if it is not given."""
    policies = command.add_argument(
        "--policy",
        action="extend",
        type=names,
        metavar="A,B",
        dest="policies",
        help=f"one or more policies (see below), or your own as module:Class (default: {default})",
    )
    completers.attach(policies, completers.policies)
    command.lists["Policies"] = choices.POLICIES


def add_codecs(command: Parser, default: str) -> None:
    """`--codec A,B`, which may be repeated, as the list `codecs`; None if it is not given."""
    codecs = command.add_argument(
        "--codec",
        action="extend",
        type=names,
        metavar="A,B",
        dest="codecs",
        help=f"how uploads are coded (see below), or your own as module:Class (default: {default})",
    )
    completers.attach(codecs, completers.codecs)
    command.lists["Codecs"] = choices.CODECS


def add_one_policy_and_codec(command: Parser, policy: str, codec: str) -> None:
    """`--policy A` and `--codec A` as texts; None if they are not given."""
    chosen = command.add_argument(
        "--policy",
        action=Once,
        metavar="A",
        help=f"the policy (see below), or your own as module:Class (default: {policy})",
    )
    completers.attach(chosen, completers.policies)
    command.lists["Policies"] = choices.POLICIES
    coded = command.add_argument(
        "--codec",
        action=Once,
        metavar="A",
        help=f"how uploads are coded (see below), or your own as module:Class (default: {codec})",
    )
    completers.attach(coded, completers.codecs)
    command.lists["Codecs"] = choices.CODECS


def add_seed(command: Parser) -> None:
    command.add_argument("--seed", type=whole_number, metavar="S", help="overrides federation.seed (default 0)")


def add_seeds(command: Parser, default: int) -> None:
    command.add_argument(
        "--seed", type=whole_number, metavar="S", help="seed of the first cell: overrides federation.seed (default 0)"
    )
    command.add_argument(
        "--seeds",
        type=whole_number,
        default=default,
        metavar="K",
        help=f"number of cells, with seeds S, S+1, … (default {default})",
    )


def check_seeds(options: argparse.Namespace, maximum: int) -> None:
    if not 1 <= options.seeds <= maximum:
        raise ConfigError(f"--seeds {options.seeds} is out of range: give 1 to {maximum}.")


def add_training(command: Parser) -> None:
    add_data_dir(command)
    command.add_argument("--device", choices=("auto", "cpu", "cuda"), help="auto uses a GPU if there is one")
    command.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        help="auto: fp32 on a CPU, bf16 on a GPU that multiplies it",
    )
    command.add_argument(
        "--workers", type=whole_number, metavar="W", help="threads per run that train clients (default: all cores)"
    )
    command.add_argument("--tensorboard", action="store_true", help="log every round for TensorBoard")
    command.lists["Datasets (--set data.dataset=NAME)"] = choices.DATASETS
    command.lists["Server optimizers (--set server.optimizer=NAME)"] = choices.SERVER_OPTIMIZERS
    command.lists["Aggregation rules (--set aggregation.rule=NAME)"] = choices.AGGREGATION_RULES
    command.lists["Attacks (--set attack.kind=NAME)"] = choices.ATTACKS


def add_until_accuracy(command: Parser) -> None:
    command.add_argument(
        "--until-accuracy",
        type=float,
        metavar="A",
        help="stop when the mean of the last evaluations reaches A, such as 0.75; overrides evaluation.until_accuracy",
    )


def add_targets(command: Parser) -> None:
    command.add_argument(
        "--targets",
        type=accuracies,
        metavar="A,B",
        help="accuracies for the table of rounds, seconds and joules to reach them, such as 0.7,0.75 "
        "(default: the highest multiples of 0.05 that a run reached)",
    )


def accuracies(text: str) -> list[float]:
    """A list of accuracies between 0 and 1, in ascending order."""
    try:
        found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(0.0 < one < 1.0 for one in found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of accuracies between 0 and 1, such as 0.7,0.75")
    return found


def add_json(command: Parser, full: str) -> None:
    command.add_argument(
        "--json",
        nargs="?",
        const="summary",
        choices=("summary", "full"),
        help=f"print JSON instead of tables; `--json full` has {full}",
    )


def add_trust(command: Parser, folder: str) -> None:
    command.add_argument(
        "--trust",
        action="store_true",
        help=f"load the code (module:Class) that {folder} names, and follow its links; without it, it is only data",
    )


def from_folder(folder: Path, *, trusted: bool) -> AbstractContextManager[None]:
    """While a folder is used that may come from somebody else, load no code that it names, unless it is trusted."""
    from qccf.core.registry import without_plugins

    return nullcontext() if trusted else without_plugins(str(folder))


def add_data_dir(command: Parser) -> None:
    command.add_argument("--data-dir", type=Path, metavar="DIR", help="folder of the datasets (default: QCCF_DATA)")


def settings_of(options: argparse.Namespace) -> list[str]:
    """The options that define a run, as `section.key=value`."""
    keys = {"rounds": "federation.rounds", "seed": "federation.seed", "codec": "codec.name"}
    keys |= {"until_accuracy": "evaluation.until_accuracy"}
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
