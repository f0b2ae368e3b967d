"""`qccf data`."""

from io import StringIO

import pytest
from rich.console import Console

from qccf.cli.data import fetch_view
from qccf.cli.main import main

pytestmark = pytest.mark.usefixtures("tiny_source")


def test_data_lists_checks_and_fetches(capsys) -> None:
    assert main(["data", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("handwriting", "emnist", "femnist", "mnist", "fashion-mnist", "cifar10"))
    assert main(["data", "fetch", "tiny"]) == 0
    assert "tiny: whole" in capsys.readouterr().out
    assert main(["data", "check", "tiny"]) == 0
    assert main(["data", "check", "nothing"]) == 2
    assert "dataset 'nothing' is not one of" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [False, True])
def test_a_download_is_a_bar_on_a_terminal_and_a_line_per_file_elsewhere(terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=terminal, width=80)
    with fetch_view(console) as show:
        for done in (0, 500_000, 1_000_000):
            show("images.gz", done, 1_000_000)
        show("labels.gz", 0, None)
    shown = console.file.getvalue()
    if terminal:
        assert "1.0/1.0 MB" in shown
    else:
        assert shown == "images.gz\nlabels.gz\n"
