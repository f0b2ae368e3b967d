"""The argument parser: whole option names, errors in one sentence with what was probably meant, help in colour."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from qccf.core.errors import ConfigError
from qccf.core.suggest import closest, hint


class Parser(argparse.ArgumentParser):
    """A command's parser. Lists and examples stand after the options in its help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self._positionals.title = "Arguments"
        self._optionals.title = "Options"
        self.lists: dict[str, Mapping[str, str]] = {}
        """Names to choose from by heading, with half a line about each."""
        self.examples: Mapping[str, str] = {}
        """Command lines, and what each does."""
        self.elsewhere: Mapping[str, str] = {}
        """Options that other commands have, and what to do instead."""
        self.commands_with: Mapping[str, Sequence[str]] = {}
        """The commands that have an option."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        if args is not None:
            self._refuse_unknown_options(args)
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"{unknown[0]!r} is one argument too many")
        return namespace, unknown

    def _refuse_unknown_options(self, arguments: Sequence[str]) -> None:
        """Before other complaints: a mistyped option is often why an argument seems to be missing."""
        for argument in arguments:
            if argument == "--" or (self._subparsers is not None and not argument.startswith("-")):
                return
            name = argument.partition("=")[0]
            if name.startswith("--") and name not in self._option_string_actions:
                likely = self.elsewhere.get(name) or self._likely(name)
                raise ConfigError(f"{self.prog.rpartition(' ')[2]} has no option {name}: {likely}")

    def _likely(self, name: str) -> str:
        """What an unknown option was probably meant to be, or where it belongs."""
        if others := self.commands_with.get(name):
            return f"it is an option of {', '.join(others)}."
        found = closest(name, [one for one in self._option_string_actions if one.startswith("--")])
        return f"did you mean {found}?" if found else f"see {self.prog} --help."

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            likely = hint(str(value), map(str, action.choices))
            if action.option_strings:
                raise ConfigError(f"{value!r} is not a value of {action.option_strings[0]}: {likely}")
            raise ConfigError(f"{str(action.metavar or action.dest).lower()} {value!r} does not exist: {likely}")

    def error(self, message: str) -> NoReturn:
        required = "the following arguments are required: "
        if message.startswith(required):
            message = f"{self.prog} needs {message.removeprefix(required)}"
        raise ConfigError(f"{message.removeprefix('argument ')}; see {self.prog} --help.")

    def format_help(self) -> str:
        from qccf.cli.help_text import help_text  # rich is loaded only when help is shown

        return help_text(self)


class Once(argparse.Action):
    """One name, given once: a list or a repeated option is refused."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option: str | None = None) -> None:
        given = getattr(namespace, self.dest)
        if given is not None or "," in value:
            names = value if given is None else f"{given},{value}"
            raise ConfigError(f"{option} {names} names several, and a run has one: use qccf compare for several.")
        setattr(namespace, self.dest, value)


def names(text: str) -> list[str]:
    """The names of a comma list; for `action="extend"`, so that the option may be repeated as well."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name: write A,B")
    return found


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
