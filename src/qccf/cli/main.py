"""The command line: parse the arguments, call the command, print errors as one sentence."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from qccf._version import __version__
from qccf.core.errors import QccfError
from qccf.jobs.memory import keep_freed_memory

COMMANDS = ("run", "compare", "reproduce", "sweep", "report", "plan", "decide", "settings", "data", "flower")
"""Each is a module of this package with `add_parser`; it imports what it needs when the command is called."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.trains:
        keep_freed_memory()
    folder = os.getcwd()
    sys.path.append(folder)  # for plug-ins that import modules beside them while they run
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except QccfError as error:
        print(f"qccf: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("qccf"):
            raise
        print(f"qccf: this command needs {error.name}: pip install 'qccf[{options.extra}]'.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("qccf: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(
        prog="qccf", description="Energy-efficient federated learning over a wireless uplink."
    )
    top.add_argument("--version", action="version", version=f"qccf {__version__}")
    top.set_defaults(extra="sim", trains=False)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"qccf.cli.{name}").add_parser(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
