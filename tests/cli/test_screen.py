"""What a command says while it prepares."""

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from qccf.cli import screen


@pytest.mark.parametrize("terminal", [False, True])
def test_an_announcement_is_a_line_or_a_spinner_that_ends(terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=terminal, width=80)
    screen.announce(console, "Reading data")
    screen.announce(console, "Counting")
    assert len(screen._statuses) == terminal
    screen.end_announcement()
    screen.end_announcement()
    assert not screen._statuses
    if not terminal:
        assert console.file.getvalue() == "Reading data …\nCounting …\n"


def test_no_colour_means_no_bold_either(monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    for console in (screen.output(), screen.messages()):
        with console.capture() as capture:
            console.print(Text("text", style="bold red"))
        assert capture.get() == "text\n"
