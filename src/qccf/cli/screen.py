"""The consoles of the command line, and what a command says while it prepares."""

import argparse
import os
from typing import Literal

from rich.console import Console
from rich.status import Status
from rich.text import Text


def output() -> Console:
    """Standard output. With NO_COLOR it is plain text, without bold and italics as well.

    Brackets are text: paths and names may hold them.
    """
    return Console(color_system=_colours(), markup=False, emoji=False)


def messages() -> Console:
    """Standard error."""
    return Console(stderr=True, color_system=_colours(), markup=False, emoji=False)


def screen_of(options: argparse.Namespace) -> Console:
    """Where a command prints for people: standard error with `--json`, whose result has standard output for itself."""
    return messages() if options.json else output()


_statuses: list[Status] = []


def announce(console: Console, doing: str) -> None:
    """Say what a command does before its first result: with a spinner on a terminal, one plain line elsewhere."""
    if not console.is_terminal:
        console.print(f"{doing} …", soft_wrap=True, highlight=False)
    elif _statuses:
        _statuses[0].update(Text(f"{doing} …"))
    else:
        _statuses.append(console.status(Text(f"{doing} …")))
        _statuses[0].start()


def end_announcement() -> None:
    """Remove the spinner, if there is one."""
    while _statuses:
        _statuses.pop().stop()


def _colours() -> Literal["auto"] | None:
    return None if os.environ.get("NO_COLOR") else "auto"
