"""The progress of a queue, as lines and on a terminal."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from qccf.cli.queue_view import QueueView
from qccf.jobs.queue import QueueProgress
from tests.helpers.batch_jobs import counting_job


def test_progress_is_shown_in_lines_and_on_a_terminal(tmp_path: Path) -> None:
    jobs = [counting_job("a", tmp_path, steps=9), counting_job("b", tmp_path, steps=9)]
    for terminal in (False, True):
        console = Console(file=StringIO(), force_terminal=terminal, width=100)
        progress = QueueProgress(jobs, ["waiting", "waiting"], [0, 0])
        with QueueView(console) as view:
            progress._start(0)
            view.update(progress, 0)
            progress._step(0, 1)
            view.update(progress, 0)
            progress._end(0, "waiting", "not yet.")
            view.update(progress, 0)
            progress._end(0, "failed", "out of luck.")
            view.update(progress, 0)
        shown = console.file.getvalue()
        assert "job a will be retried: not yet." in shown
        assert "job a failed: out of luck." in shown
        assert "0 done, 0 running, 1 left, 1 failed" in shown
