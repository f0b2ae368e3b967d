"""The progress of a queue: a panel on a terminal, one line per finished job elsewhere."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from qccf.core.numbers import clock
from qccf.core.words import counted
from qccf.jobs.queue import Engine, Job, ProgressListener, QueueProgress, run_jobs


class QueueView:
    """Use as a context manager; `update` is the listener of the queue."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._began = time.monotonic()

    def __enter__(self) -> "QueueView":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, progress: QueueProgress, index: int) -> None:
        state, label = progress.states[index], progress.jobs[index].label
        if self._live:
            self._live.update(self._panel(progress))
        elif state in ("done", "failed"):
            self._console.print(f"{state}: {label}; {status(progress)}", soft_wrap=True, highlight=False)
        if verb := {"failed": "failed", "waiting": "will be retried"}.get(state):
            text = Text(f"qccf: {label} {verb}: {progress.reasons[index]}", style="red")
            self._console.print(text, soft_wrap=True)

    def _panel(self, progress: QueueProgress) -> Group:
        table = Table.grid(padding=(0, 2))
        for index, job in enumerate(progress.jobs):
            if progress.states[index] == "running":
                done = progress.done_steps[index]
                table.add_row(job.label, ProgressBar(job.steps, done, width=24), f"{done}/{job.steps}")
        elapsed = clock(time.monotonic() - self._began)
        total = ProgressBar(max(1, sum(job.steps for job in progress.jobs)), sum(progress.done_steps))
        return Group(Text(f"{status(progress)}, {elapsed} elapsed"), total, table)


def print_start(console: Console, jobs: Sequence[Job], out: Path) -> None:
    """How many runs there are, and how many of them are finished already."""
    finished = sum(job.is_finished() for job in jobs)
    text = f"{counted(len(jobs), 'run')} in {out}"
    console.print(text + (f", {finished} already finished" if finished else ""), soft_wrap=True, highlight=False)


def run_with_view(
    console: Console, jobs: Sequence[Job], engine: Engine, listener: ProgressListener = lambda _progress, _index: None
) -> QueueProgress:
    """Run the jobs and show their progress; `listener` is called as well."""
    with QueueView(console) as view:

        def update(progress: QueueProgress, index: int) -> None:
            listener(progress, index)
            view.update(progress, index)

        return run_jobs(jobs, engine, listener=update)


def print_outcome(console: Console, progress: QueueProgress) -> int:
    """Print how the command ended and return its status: 1 if a run failed, 130 after an interrupt."""
    if progress.interrupted:
        console.print(f"Stopped: {status(progress)}; resume with the same command.", soft_wrap=True, highlight=False)
        return 130
    if failures := progress.failures():
        console.print(f"{len(failures)} failed; the same command tries them again.", style="red")
        return 1
    return 0


def status(progress: QueueProgress) -> str:
    """Runs that are done, running, left and failed, and the estimated time."""
    parts = [
        f"{progress.count('done')} done",
        f"{progress.count('running')} running",
        f"{progress.count('waiting')} left",
    ]
    if failed := progress.count("failed"):
        parts.append(f"{failed} failed")
    eta_s = progress.eta_s()
    if eta_s is not None and progress.count("running") + progress.count("waiting"):
        parts.append(f"about {clock(eta_s)} left")
    return ", ".join(parts)
