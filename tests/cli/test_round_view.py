"""The progress of a run: a panel with a bar on a terminal, plain lines elsewhere."""

from io import StringIO

import pytest
from rich.console import Console

from qccf.cli.round_view import round_view
from qccf.runtimes.simulator import simulate
from tests.helpers.tiny import tiny_dataset, tiny_scenario


@pytest.mark.parametrize("terminal", [False, True])
def test_rounds_are_lines_or_a_panel_with_a_bar_and_the_time_left(terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=terminal, width=100)
    with round_view(console) as view:
        run = simulate(tiny_scenario("federation.rounds=4"), dataset=tiny_dataset(), callbacks=[view.update])
    shown = console.file.getvalue()
    assert run.num_rounds == 4
    if terminal:
        assert "━" in shown
        assert "4 of 4, 0:00 left" in shown
    else:
        assert "round 1/4" in shown
        assert "mJ so far" in shown or "J so far" in shown
        assert "━" not in shown
