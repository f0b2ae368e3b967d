"""Many jobs, a few at a time: what is finished is left alone, what fails is tried again and then reported.

A job knows how to tell that it is finished and how to go on from where it stopped. An engine knows only where jobs run:
it takes them from the desk and reports their steps and ends. An interrupt loses nothing.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from qccf.core.errors import QccfError
from qccf.core.files import write_text_whole

FAILED = "failed.txt"
RETRIES = 2
"""How often a job that broke is run again before it counts as failed."""


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

    @property
    def cores(self) -> int:
        """How many cores it keeps busy."""
        ...

    def is_finished(self) -> bool:
        """Whether its results are there already."""
        ...

    def run(self, folder: Path, tell: Callable[[int], None]) -> None:
        """Do it, telling how many steps are done; an interrupt leaves a state from which the next call goes on.

        `folder` stands for the job's own: on another machine it is one that is sent back.
        """
        ...


@dataclass(frozen=True)
class Failure:
    """Why a job did not end well. A mistake of the caller's would only be repeated, so that it is final at once."""

    sentence: str
    final: bool = False


State = Literal["waiting", "running", "done", "failed"]


@dataclass
class Progress:
    """Where a batch stands. `done_steps` counts those of every job, those of earlier commands included."""

    jobs: Sequence[Job]
    states: list[State]
    done_steps: list[int]
    sentences: dict[int, str] = field(default_factory=dict)
    """Why a job failed, or why it waits to be tried again."""
    workers: int = 1
    interrupted: bool = False
    _seconds: dict[str, tuple[float, int]] = field(default_factory=dict)
    _clocks: dict[int, float] = field(default_factory=dict)

    def count(self, state: State) -> int:
        return self.states.count(state)

    def failures(self) -> dict[int, str]:
        """The jobs that were given up, with the reason."""
        return {index: self.sentences[index] for index, state in enumerate(self.states) if state == "failed"}

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

    def _end(self, index: int, state: State, sentence: str = "") -> None:
        self.states[index] = state
        if sentence:
            self.sentences[index] = sentence
        if state == "done":
            self.sentences.pop(index, None)
            self.done_steps[index] = self.jobs[index].steps


Listener = Callable[[Progress, int], None]
"""Told after everything that happens, with the number of the job that it happened to."""


class Desk:
    """Where an engine gets its jobs and leaves word of them."""

    def __init__(self, progress: Progress, listener: Listener, retries: int) -> None:
        self._progress = progress
        self._listener = listener
        self._tries_left = [retries] * len(progress.jobs)
        self._waiting = deque(index for index, state in enumerate(progress.states) if state == "waiting")

    def __len__(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    def peek(self) -> Job:
        """The next job; there must be one."""
        return self._progress.jobs[self._waiting[0]]

    def take(self) -> tuple[int, Job] | None:
        """The next job and its number; from now on it counts as running."""
        if not self._waiting:
            return None
        index = self._waiting.popleft()
        self._progress._start(index)
        self._listener(self._progress, index)
        return index, self._progress.jobs[index]

    def step(self, index: int, steps: int) -> None:
        self._progress._step(index, steps)
        self._listener(self._progress, index)

    def end(self, index: int, failure: Failure | None) -> None:
        """A job that broke goes to the end of the queue, until it has no tries left."""
        if failure is None:
            self._progress._end(index, "done")
        elif failure.final or self._tries_left[index] == 0:
            self._progress._end(index, "failed", failure.sentence)
        else:
            self._tries_left[index] -= 1
            self._progress._end(index, "waiting", failure.sentence)
            self._waiting.append(index)
        self._listener(self._progress, index)

    def capacity(self, workers: int) -> None:
        """Say how many jobs run at a time, for the estimate of what is left."""
        self._progress.workers = max(1, workers)


class Engine(Protocol):
    """Something that runs jobs."""

    def run(self, desk: Desk) -> None:
        """Take jobs until there are none, and report every step and end; an interrupt stops them and passes through."""
        ...


def run_batch(
    jobs: Sequence[Job], engine: Engine, *, retries: int = RETRIES, listener: Listener = lambda _, __: None
) -> Progress:
    """Run what is not finished. An interrupt ends it early, which the result says."""
    finished = [job.is_finished() for job in jobs]
    progress = Progress(
        jobs,
        ["done" if done else "waiting" for done in finished],
        [job.steps if done else 0 for job, done in zip(jobs, finished, strict=True)],
    )
    try:
        if not all(finished):
            engine.run(Desk(progress, listener, retries))
    except KeyboardInterrupt:
        progress.interrupted = True
        progress.states = ["waiting" if state == "running" else state for state in progress.states]
    return progress


def attempt(job: Job, folder: Path, tell: Callable[[int], None]) -> Failure | None:
    """Run a job; what went wrong as a sentence, and all that is known about it in its folder."""
    try:
        job.run(folder, tell)
    except QccfError as error:
        return Failure(str(error), final=True)
    except Exception as error:  # one run that breaks must not take the others with it
        write_text_whole(folder / FAILED, traceback.format_exc())
        return Failure(f"{type(error).__name__}: {error} (more in {job.folder / FAILED})")
    (folder / FAILED).unlink(missing_ok=True)
    return None
