"""Many jobs, a few at a time: what is finished is left alone, what fails is reported, an interrupt loses nothing.

A job knows how to tell that it is finished and how to go on from where it stopped. The engine knows only who runs when.
"""

import multiprocessing
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, Protocol

from qccf.errors import QccfError
from qccf.files import write_text_whole

FAREWELL_S = 120.0
"""How long a worker may take to write down what it reached before it is killed."""


class Job(Protocol):
    """One piece of work with a folder of its own. It must survive pickling."""

    @property
    def label(self) -> str:
        """What it is called on the screen."""
        ...

    @property
    def folder(self) -> Path:
        """Where it leaves its results."""
        ...

    @property
    def steps(self) -> int:
        """How many steps it takes; a training run's are its rounds."""
        ...

    @property
    def pace(self) -> str:
        """Jobs of the same pace take about the same time for a step."""
        ...

    def is_finished(self) -> bool:
        """Whether its results are there already."""
        ...

    def run(self, tell: Callable[[int], None]) -> None:
        """Do it, telling how many steps are done; an interrupt leaves a state from which the next call goes on."""
        ...


State = Literal["waiting", "running", "done", "failed"]


@dataclass
class Progress:
    """Where a batch stands. `done_steps` counts those of every job, those of earlier commands included."""

    jobs: Sequence[Job]
    states: list[State]
    done_steps: list[int]
    sentences: dict[int, str] = field(default_factory=dict)
    """Why a job failed."""
    workers: int = 1
    interrupted: bool = False
    _seconds: dict[str, tuple[float, int]] = field(default_factory=dict)
    _clocks: dict[int, float] = field(default_factory=dict)

    def count(self, state: State) -> int:
        return self.states.count(state)

    def eta_s(self) -> float | None:
        """Seconds that the rest takes at the pace seen so far; None while nothing is known."""
        total_s = sum(seconds for seconds, _ in self._seconds.values())
        total_steps = sum(steps for _, steps in self._seconds.values())
        if not total_steps:
            return None
        left_s = 0.0
        for index, job in enumerate(self.jobs):
            if self.states[index] in ("waiting", "running"):
                seconds, steps = self._seconds.get(job.pace, (0.0, 0))
                step_s = seconds / steps if steps else total_s / total_steps
                left_s += (job.steps - self.done_steps[index]) * step_s
        return left_s / self.workers

    def _start(self, index: int) -> None:
        self.states[index] = "running"
        self._clocks[index] = time.monotonic()

    def _step(self, index: int, steps: int) -> None:
        now = time.monotonic()
        pace = self.jobs[index].pace
        seconds, count = self._seconds.get(pace, (0.0, 0))
        # A resumed job jumps to where it stopped: only single steps tell how long one takes.
        fresh = 1 if steps == self.done_steps[index] + 1 else 0
        self._seconds[pace] = (seconds + fresh * (now - self._clocks[index]), count + fresh)
        self._clocks[index] = now
        self.done_steps[index] = steps

    def _end(self, index: int, sentence: str) -> None:
        self.states[index] = "failed" if sentence else "done"
        if sentence:
            self.sentences[index] = sentence
        else:
            self.done_steps[index] = self.jobs[index].steps


Listener = Callable[[Progress, int], None]
"""Told after everything that happens, with the number of the job that it happened to."""


def run_batch(jobs: Sequence[Job], *, workers: int = 1, listener: Listener = lambda _, __: None) -> Progress:
    """Run what is not finished, `workers` jobs at a time. An interrupt ends it early, which the result says."""
    finished = [job.is_finished() for job in jobs]
    progress = Progress(
        jobs,
        ["done" if done else "waiting" for done in finished],
        [job.steps if done else 0 for job, done in zip(jobs, finished, strict=True)],
        workers=workers,
    )
    waiting = deque(index for index, done in enumerate(finished) if not done)
    try:
        if workers == 1:
            _here(progress, waiting, listener)
        else:
            _elsewhere(progress, waiting, min(workers, len(waiting)), listener)
    except KeyboardInterrupt:
        progress.interrupted = True
        progress.states = ["waiting" if state == "running" else state for state in progress.states]
    return progress


def _here(progress: Progress, waiting: deque[int], listener: Listener) -> None:
    """One after the other, in this process."""
    while waiting:
        index = waiting.popleft()
        progress._start(index)
        listener(progress, index)

        def tell(steps: int, index: int = index) -> None:
            progress._step(index, steps)
            listener(progress, index)

        progress._end(index, _attempt(progress.jobs[index], tell))
        listener(progress, index)


def _attempt(job: Job, tell: Callable[[int], None]) -> str:
    """Run a job; what went wrong as a sentence, and all that is known about it in its folder."""
    try:
        job.run(tell)
    except QccfError as error:
        return str(error)
    except Exception as error:  # one run that breaks must not take the others with it
        write_text_whole(job.folder / "failed.txt", traceback.format_exc())
        return f"{type(error).__name__}: {error} (more in {job.folder / 'failed.txt'})"
    return ""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    index: int | None = None


def _elsewhere(progress: Progress, waiting: deque[int], count: int, listener: Listener) -> None:
    """Several at a time, in processes that live as long as the batch: each loads its libraries and data once."""
    context = multiprocessing.get_context("spawn")

    def hire() -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, list(sys.path)), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def assign(worker: _Worker) -> None:
        worker.index = waiting.popleft() if waiting else None
        if worker.index is None:
            worker.pipe.send(None)
            crew.remove(worker)
            retired.append(worker)
            return
        worker.pipe.send(progress.jobs[worker.index])
        progress._start(worker.index)
        listener(progress, worker.index)

    crew: list[_Worker] = []
    retired: list[_Worker] = []
    try:
        for _ in range(count):
            crew.append(hire())
            assign(crew[-1])
        while crew:
            for pipe in wait([worker.pipe for worker in crew]):
                worker = next(worker for worker in crew if worker.pipe is pipe)
                index = worker.index
                assert index is not None
                try:
                    kind, value = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    worker.process.join()
                    progress._end(index, f"its process died (exit status {worker.process.exitcode}).")
                    listener(progress, index)
                    crew[crew.index(worker)] = hired = hire()
                    retired.append(worker)
                    assign(hired)
                    continue
                if kind == "step":
                    progress._step(index, value)
                    listener(progress, index)
                else:
                    progress._end(index, value)
                    listener(progress, index)
                    assign(worker)
    finally:
        for worker in crew:
            worker.process.terminate()
        for worker in [*crew, *retired]:
            worker.process.join(FAREWELL_S)
            if worker.process.is_alive():
                worker.process.kill()
            worker.pipe.close()


def _serve(pipe: Connection, path: list[str]) -> None:
    """A worker: takes jobs until there are none. Only the parent interrupts it, so that a key press does so once."""

    def interrupt(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt)
    sys.path[:] = path
    try:
        while (job := pipe.recv()) is not None:
            pipe.send(("end", _attempt(job, lambda steps: pipe.send(("step", steps)))))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass
