"""The command line: parse the arguments, call the command, print errors as one sentence."""

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from qccf._version import __version__
from qccf.cli.parser import Parser
from qccf.core.errors import QccfError
from qccf.core.failures import place, plugin_failure, reason
from qccf.jobs.memory import keep_freed_memory

GROUPS = {
    "Start": ("run", "compare", "plan"),
    "Study": ("reproduce", "sweep", "report"),
    "Connect": ("flower", "decide", "serve"),
    "Look up": ("settings", "data", "device", "completion"),
}
"""Each command is a module of this package with `add_parser`; it imports what it needs when the command is called."""

COMMANDS = tuple(command for group in GROUPS.values() for command in group)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    top = parser()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(top)
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = top.parse_args(given)
    except QccfError as error:
        print(f"qccf: {error}", file=sys.stderr)
        return 2
    if options.run is None:
        top.print_help()
        return 0
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    """Call the command; every error becomes one sentence and an exit status."""
    if options.trains:
        keep_freed_memory()
    folder = os.getcwd()
    sys.path.append(folder)  # for plug-ins that import modules beside them while they run
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("qccf: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        _end_announcement()
        if options.debug:
            traceback.print_exc()
        sentence, status = _explained(error, options)
        print(f"qccf: {sentence}", file=sys.stderr)
        return status
    finally:
        _end_announcement()
        with suppress(ValueError):
            sys.path.remove(folder)


def _end_announcement() -> None:
    """Remove a spinner that an error left on the terminal; a command that shows none has not loaded rich."""
    if "qccf.cli.screen" in sys.modules:
        from qccf.cli.screen import end_announcement

        end_announcement()


def _explained(error: Exception, options: argparse.Namespace) -> tuple[str, int]:
    """One sentence about an error and the exit status: 2 if the user can mend it, 1 if it is a fault in qccf."""
    again = "" if options.debug else "; run again with --debug for the traceback"
    if isinstance(error, QccfError):
        return str(error), 2
    if users := plugin_failure(error):
        return f"{users}{again}.", 2
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("qccf"):
        return f"this command needs {error.name}: pip install 'qccf[{options.extra}]'.", 2
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}{again}.", 2
    kept = "" if options.debug else f"; please report it with {_kept_traceback()}"
    return f"this is a fault in qccf ({place(error)}): {reason(error)}{kept}.", 1


def _kept_traceback() -> str:
    """A new file with the traceback of the current error."""
    handle, name = tempfile.mkstemp(prefix="qccf-fault-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f"qccf {__version__}: {' '.join(sys.argv)}\n\n{traceback.format_exc()}")
    return name


def parser() -> Parser:
    """All commands and their options."""
    top = Parser(
        prog="qccf",
        usage="qccf COMMAND [options]",
        description="Energy-efficient federated learning over a wireless uplink.",
        epilog="qccf COMMAND --help shows the options of a command. Start with: qccf run quick",
    )
    top.add_argument("--version", action="version", version=f"qccf {__version__}", help="show the version")
    top.add_argument("--debug", action="store_true", help="show the traceback of an error")
    top.set_defaults(run=None, extra="sim", trains=False)
    commands = top.add_subparsers(prog="qccf", metavar="COMMAND", help=argparse.SUPPRESS)
    for name in COMMANDS:
        import_module(f"qccf.cli.{name}").add_parser(commands)
        commands.choices[name].add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )
    commands_with: dict[str, list[str]] = {}
    for name, command in commands.choices.items():
        for option in command._option_string_actions:
            commands_with.setdefault(option, []).append(name)
        command.commands_with = commands_with
    about = {action.dest: action.help or "" for action in commands._choices_actions}
    top.lists = {group: {name: about[name] for name in names} for group, names in GROUPS.items()}
    return top


if __name__ == "__main__":
    sys.exit(main())
