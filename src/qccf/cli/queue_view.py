"""How far a batch is: a panel on a terminal, a line for each run elsewhere."""

import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from qccf.jobs.queue import Progress


class BatchView:
    """Use as a context manager; `update` is the batch's listener."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._began = time.monotonic()

    def __enter__(self) -> "BatchView":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, progress: Progress, index: int) -> None:
        if self._live:
            self._live.update(self._panel(progress))
        elif progress.states[index] in ("done", "failed"):
            ended = f"{progress.states[index]}: {progress.jobs[index].label}"
            self._console.print(f"{ended}; {status(progress)}", soft_wrap=True, highlight=False)
        if sentence := self._complaint(progress, index):
            self._console.print(Text(f"qccf: {progress.jobs[index].label} {sentence}", style="red"), soft_wrap=True)

    @staticmethod
    def _complaint(progress: Progress, index: int) -> str:
        verb = {"failed": "failed", "waiting": "is tried again"}.get(progress.states[index])
        return f"{verb}: {progress.sentences[index]}" if verb else ""

    def _panel(self, progress: Progress) -> Group:
        table = Table.grid(padding=(0, 2))
        for index, job in enumerate(progress.jobs):
            if progress.states[index] == "running":
                done = progress.done_steps[index]
                table.add_row(job.label, ProgressBar(job.steps, done, width=24), f"{done}/{job.steps}")
        spent = clock(time.monotonic() - self._began)
        return Group(Text(f"{status(progress)}, {spent} so far"), table)


def farewell(console: Console, progress: Progress) -> int:
    """How the batch ended, as a status: 1 if a run failed, 130 after an interrupt."""
    if progress.interrupted:
        console.print(f"Stopped: {status(progress)}; go on with the same command.", soft_wrap=True, highlight=False)
        return 130
    if failures := progress.failures():
        console.print(f"{len(failures)} failed; the same command tries them again.", style="red")
        return 1
    return 0


def status(progress: Progress) -> str:
    """Runs done, running, left, and for how long."""
    parts = [
        f"{progress.count('done')} done",
        f"{progress.count('running')} running",
        f"{progress.count('waiting')} left",
    ]
    if failed := progress.count("failed"):
        parts.append(f"{failed} failed")
    eta_s = progress.eta_s()
    if eta_s is not None and progress.count("running") + progress.count("waiting"):
        parts.append(f"about {clock(eta_s)} to go")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
