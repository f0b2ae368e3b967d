"""What the shell offers after each option; argcomplete calls these functions."""

import argparse
from collections.abc import Callable, Iterable

from qccf.cli import choices

Completer = Callable[..., Iterable[str]]


def attach(action: argparse.Action, completer: Completer) -> None:
    """Let argcomplete call `completer` for the value of this argument."""
    action.completer = completer  # type: ignore[attr-defined]


def scenarios(prefix: str, **_: object) -> list[str]:
    return [*choices.PRESETS, *toml_files(prefix)]


def toml_files(prefix: str, **_: object) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return list(FilesCompleter(("toml",))(prefix))


def policies(prefix: str, **_: object) -> list[str]:
    return _after_comma(prefix, choices.POLICIES)


def codecs(prefix: str, **_: object) -> list[str]:
    return _after_comma(prefix, choices.CODECS)


def datasets(**_: object) -> list[str]:
    return list(choices.DATASETS)


def overrides(prefix: str, **_: object) -> list[str]:
    """Every key, and after its "=" the values where they are known."""
    from qccf.settings.reference import settings_reference

    key, equals, _value = prefix.partition("=")
    if not equals:
        return [f"{info.path}=" for info in settings_reference()]
    known = {"data.dataset": choices.DATASETS, "policy.name": choices.POLICIES, "codec.name": choices.CODECS}
    known |= {"server.optimizer": choices.SERVER_OPTIMIZERS, "aggregation.rule": choices.AGGREGATION_RULES}
    known |= {"attack.kind": choices.ATTACKS}
    listed = {info.path: info.choices.split(", ") for info in settings_reference() if info.choices}
    return [f"{key}={value}" for value in known.get(key, listed.get(key, ()))]


def sections(**_: object) -> list[str]:
    from qccf.settings.reference import section_descriptions

    return list(section_descriptions())


def _after_comma(prefix: str, known: Iterable[str]) -> list[str]:
    """The names that may follow the last comma of a list, each with what stands before it."""
    before, comma, _ = prefix.rpartition(",")
    return [f"{before}{comma}{name}" for name in known if name not in before.split(",")]
