"""Jobs in processes of this machine, or in this process when it is one at a time."""

import multiprocessing
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from qccf.jobs.queue import Desk, Failure, Job, attempt

FAREWELL_S = 120.0
"""How long a worker may take to write down what it reached before it is killed."""


@dataclass(frozen=True)
class LocalEngine:
    """`workers` jobs at a time. With `fresh` each has a process of its own, so that its memory is its own as well."""

    workers: int = 1
    fresh: bool = False

    def run(self, desk: Desk) -> None:
        desk.capacity(self.workers)
        if self.workers == 1 and not self.fresh:
            _here(desk)
        else:
            _Crew(desk, self.fresh).run(min(self.workers, len(desk)))


def _here(desk: Desk) -> None:
    """One after the other, in this process."""
    while (taken := desk.take()) is not None:
        index, job = taken

        def tell(steps: int, index: int = index) -> None:
            desk.step(index, steps)

        desk.end(index, attempt(job, job.folder, tell))


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    index: int


class _Crew:
    """Several at a time, in processes that live as long as the batch: each loads its libraries and data once."""

    def __init__(self, desk: Desk, fresh: bool) -> None:
        self._desk = desk
        self._fresh = fresh
        self._context = multiprocessing.get_context("spawn")
        self._working: list[_Worker] = []
        self._retired: list[_Worker] = []

    def run(self, count: int) -> None:
        try:
            for _ in range(count):
                self._hire()
            while self._working:
                for pipe in wait([worker.pipe for worker in self._working]):
                    self._hear(next(worker for worker in self._working if worker.pipe is pipe))
        finally:
            self._dismiss()

    def _hire(self) -> None:
        """A new process for the next job, if there is one."""
        if (taken := self._desk.take()) is None:
            return
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, list(sys.path)), daemon=True)
        process.start()
        theirs.close()
        index, job = taken
        self._working.append(_Worker(process, ours, index))
        _tell(self._working[-1], job)

    def _hear(self, worker: _Worker) -> None:
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            self._retire(worker)
            self._desk.end(worker.index, Failure(f"its process died (exit status {worker.process.exitcode})."))
            self._hire()
            return
        if kind == "step":
            self._desk.step(worker.index, value)
            return
        self._desk.end(worker.index, value)
        if self._fresh:
            self._retire(worker)
            _tell(worker, None)
            worker.process.join()  # the next one must not share the machine with what this one clears away
            self._hire()
        else:
            self._reassign(worker)

    def _reassign(self, worker: _Worker) -> None:
        if (taken := self._desk.take()) is None:
            self._retire(worker)
            _tell(worker, None)
        else:
            worker.index, job = taken
            _tell(worker, job)

    def _retire(self, worker: _Worker) -> None:
        self._working.remove(worker)
        self._retired.append(worker)

    def _dismiss(self) -> None:
        """Who still works is told to stop, and has a while to write down what it reached."""
        for worker in self._working:
            worker.process.terminate()
        for worker in [*self._working, *self._retired]:
            worker.process.join(FAREWELL_S)
            if worker.process.is_alive():
                worker.process.kill()
            worker.pipe.close()


def _tell(worker: _Worker, job: Job | None) -> None:
    """Give it a job, or send it home. A process that has just died is noticed where its pipe is read."""
    with suppress(BrokenPipeError, ConnectionError):
        worker.pipe.send(job)


def _serve(pipe: Connection, path: list[str]) -> None:
    """A worker: takes jobs until there are none. Only the parent interrupts it, so that a key press does so once."""

    def interrupt(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt)
    sys.path[:] = path
    try:
        job: Job | None
        while (job := pipe.recv()) is not None:
            pipe.send(("end", attempt(job, job.folder, lambda steps: pipe.send(("step", steps)))))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass
