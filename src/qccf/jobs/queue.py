"""Many jobs, several at a time: finished jobs are skipped, failed ones are retried and then reported.

A job knows whether it is finished and resumes where it stopped. An engine decides only where jobs run: it takes them
from the queue and reports their steps and results. An interrupt loses no finished step.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from qccf.core.errors import QccfError
from qccf.core.failures import plugin_failure
from qccf.core.files import write_text_whole

FAILED = "failed.txt"
RETRIES = 2
"""How often a job that raised an unexpected error runs again before it counts as failed."""

OnStep = Callable[[int], None]
"""Called with the number of steps that are done."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One piece of work with a folder of its own. A subclass adds what `run` needs; all of it can be pickled."""

    label: str
    folder: Path
    steps: int
    """How many steps it takes; the steps of a training run are its rounds."""
    step_kind: str
    """Jobs of the same kind take about the same time per step."""
    cores: int = 1

    result: ClassVar[str] = "summary.json"
    """The file that is written last."""

    def is_finished(self) -> bool:
        return (self.folder / self.result).exists()

    def run(self, folder: Path, on_step: OnStep) -> None:
        """Do the work in `folder`. After an interrupt the next call resumes from what is there.

        On another machine `folder` is a temporary one whose contents are sent back.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Failure:
    """Why a job failed. User errors are not retried: they are final."""

    reason: str
    final: bool = False


JobState = Literal["waiting", "running", "done", "failed"]


@dataclass
class QueueProgress:
    """The state of all jobs. `done_steps` includes the steps of earlier commands."""

    jobs: Sequence[Job]
    states: list[JobState]
    done_steps: list[int]
    reasons: dict[int, str] = field(default_factory=dict)
    """Why a job failed, or why it waits for a retry."""
    workers: int = 1
    interrupted: bool = False
    _seconds: dict[str, tuple[float, int]] = field(default_factory=dict)
    _clocks: dict[int, float] = field(default_factory=dict)

    def count(self, state: JobState) -> int:
        return self.states.count(state)

    def failures(self) -> dict[int, str]:
        """The index of every failed job, with the reason."""
        return {index: self.reasons[index] for index, state in enumerate(self.states) if state == "failed"}

    def eta_s(self) -> float | None:
        """Seconds until all jobs are done, from the time per step so far; None before the first step."""
        total_s = sum(seconds for seconds, _ in self._seconds.values())
        total_steps = sum(steps for _, steps in self._seconds.values())
        if not total_steps:
            return None
        left_s = 0.0
        for index, job in enumerate(self.jobs):
            if self.states[index] in ("waiting", "running"):
                seconds, steps = self._seconds.get(job.step_kind, (0.0, 0))
                step_s = seconds / steps if steps else total_s / total_steps
                left_s += (job.steps - self.done_steps[index]) * step_s
        return left_s / self.workers

    def _start(self, index: int) -> None:
        self.states[index] = "running"
        self._clocks[index] = time.monotonic()

    def _step(self, index: int, steps: int) -> None:
        now = time.monotonic()
        kind = self.jobs[index].step_kind
        seconds, count = self._seconds.get(kind, (0.0, 0))
        # A resumed job jumps to where it stopped: only a single step tells how long a step takes.
        single = 1 if steps == self.done_steps[index] + 1 else 0
        self._seconds[kind] = (seconds + single * (now - self._clocks[index]), count + single)
        self._clocks[index] = now
        self.done_steps[index] = steps

    def _end(self, index: int, state: JobState, reason: str = "") -> None:
        self.states[index] = state
        if reason:
            self.reasons[index] = reason
        if state == "done":
            self.reasons.pop(index, None)
            self.done_steps[index] = self.jobs[index].steps


ProgressListener = Callable[[QueueProgress, int], None]
"""Called after every event with the progress and the index of the job that it concerns."""


class JobQueue:
    """An engine takes jobs from here and reports their steps and results."""

    def __init__(self, progress: QueueProgress, listener: ProgressListener, retries: int = RETRIES) -> None:
        self._progress = progress
        self._listener = listener
        self._retries_left = [retries] * len(progress.jobs)
        self._waiting = deque(index for index, state in enumerate(progress.states) if state == "waiting")

    def __len__(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    def peek(self) -> Job:
        """The next job; there must be one."""
        return self._progress.jobs[self._waiting[0]]

    def take(self) -> tuple[int, Job] | None:
        """The index of the next job and the job itself, which now counts as running; None if no job waits."""
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
        """Report the result of a job. A failed job goes to the end of the queue until it has no retries left."""
        if failure is None:
            self._progress._end(index, "done")
        elif failure.final or self._retries_left[index] == 0:
            self._progress._end(index, "failed", failure.reason)
        else:
            self._retries_left[index] -= 1
            self._progress._end(index, "waiting", failure.reason)
            self._waiting.append(index)
        self._listener(self._progress, index)

    def set_workers(self, workers: int) -> None:
        """Set how many jobs run at a time; the estimate of the remaining time needs it."""
        self._progress.workers = max(1, workers)


class Engine(Protocol):
    """Runs jobs somewhere."""

    def run(self, queue: JobQueue) -> None:
        """Run every job of the queue; on an interrupt stop the running jobs and raise KeyboardInterrupt."""
        ...


def run_jobs(
    jobs: Sequence[Job], engine: Engine, *, listener: ProgressListener = lambda _progress, _index: None
) -> QueueProgress:
    """Run the jobs that are not finished. After an interrupt the result has `interrupted` set."""
    finished = [job.is_finished() for job in jobs]
    progress = QueueProgress(
        jobs,
        ["done" if done else "waiting" for done in finished],
        [job.steps if done else 0 for job, done in zip(jobs, finished, strict=True)],
    )
    try:
        if not all(finished):
            engine.run(JobQueue(progress, listener))
    except KeyboardInterrupt:
        progress.interrupted = True
        progress.states = ["waiting" if state == "running" else state for state in progress.states]
    return progress


def try_job(job: Job, folder: Path, on_step: OnStep) -> Failure | None:
    """Run a job and return why it failed, if it did; the traceback goes to a file in its folder."""
    try:
        job.run(folder, on_step)
    except QccfError as error:
        return Failure(str(error), final=True)
    except Exception as error:  # one broken job must not end the others
        write_text_whole(folder / FAILED, traceback.format_exc())
        more = f"(more in {job.folder / FAILED})"
        if users := plugin_failure(error):
            return Failure(f"{users} {more}", final=not isinstance(error, OSError | MemoryError))
        return Failure(f"{type(error).__name__}: {error} {more}")
    (folder / FAILED).unlink(missing_ok=True)
    return None
