"""Jobs in processes of this machine, or in this process if they run one at a time.

A `ProcessPoolExecutor` would not do: it gives up all jobs when one worker process dies, and it cannot ask a running job
to stop and save its state.
"""

import multiprocessing
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from qccf.jobs.memory import keep_freed_memory
from qccf.jobs.queue import Failure, Job, JobQueue, try_job

RETRY_S = 0.02
"""After how long an interrupt that Python has dropped is raised again."""
STOP_TIMEOUT_S = 120.0
"""How long an interrupted worker may take to save its state before it is killed."""


@dataclass(frozen=True)
class LocalEngine:
    """Runs `workers` jobs at a time. `process_per_job` keeps the memory of a job apart from that of the others."""

    workers: int = 1
    process_per_job: bool = False

    def run(self, queue: JobQueue) -> None:
        queue.set_workers(self.workers)
        if self.workers == 1 and not self.process_per_job:
            _run_here(queue)
        else:
            _WorkerPool(queue, self.process_per_job).run(min(self.workers, len(queue)))


def _run_here(queue: JobQueue) -> None:
    """One job after the other in this process."""
    while (taken := queue.take()) is not None:
        index, job = taken

        def on_step(steps: int, index: int = index) -> None:
            queue.step(index, steps)

        queue.end(index, try_job(job, job.folder, on_step))


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    index: int


class _WorkerPool:
    """Processes that live until the queue is empty, so that each loads its libraries and data once."""

    def __init__(self, queue: JobQueue, process_per_job: bool) -> None:
        self._queue = queue
        self._process_per_job = process_per_job
        self._context = multiprocessing.get_context("spawn")
        self._working: list[_Worker] = []
        self._ended: list[_Worker] = []

    def run(self, count: int) -> None:
        try:
            for _ in range(count):
                self._start_worker()
            while self._working:
                for pipe in wait([worker.pipe for worker in self._working]):
                    self._receive(next(worker for worker in self._working if worker.pipe is pipe))
        finally:
            self._stop_all()

    def _start_worker(self) -> None:
        """Start a process for the next job, if there is one."""
        if (taken := self._queue.take()) is None:
            return
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, list(sys.path), self._process_per_job), daemon=True)
        process.start()
        theirs.close()
        index, job = taken
        self._working.append(_Worker(process, ours, index))
        _send(self._working[-1], job)

    def _receive(self, worker: _Worker) -> None:
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            self._retire(worker)
            self._queue.end(worker.index, Failure(f"its process died (exit status {worker.process.exitcode})."))
            self._start_worker()
            return
        if kind == "step":
            self._queue.step(worker.index, value)
            return
        self._queue.end(worker.index, value)
        if self._process_per_job:
            self._retire(worker)
            _send(worker, None)
            worker.process.join()  # the next job starts only when this one's memory is free
            self._start_worker()
        elif (taken := self._queue.take()) is None:
            self._retire(worker)
            _send(worker, None)
        else:
            worker.index, job = taken
            _send(worker, job)

    def _retire(self, worker: _Worker) -> None:
        self._working.remove(worker)
        self._ended.append(worker)

    def _stop_all(self) -> None:
        """Interrupt the running workers, wait until they have saved their state, and kill those that take too long."""
        for worker in self._working:
            worker.process.terminate()
        for worker in [*self._working, *self._ended]:
            worker.process.join(STOP_TIMEOUT_S)
            if worker.process.is_alive():
                worker.process.kill()
            worker.pipe.close()


def _send(worker: _Worker, job: Job | None) -> None:
    """Send a job, or None to end the worker. The death of a process is handled where its pipe is read."""
    with suppress(BrokenPipeError, ConnectionError):
        worker.pipe.send(job)


def _work(pipe: Connection, path: list[str], process_per_job: bool) -> None:
    """The main function of a worker. It ignores Ctrl-C, which reaches the parent too; the parent sends SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupt_on_sigterm()
    sys.path[:] = path
    if not process_per_job:  # such a job may measure its memory
        keep_freed_memory()
    try:
        job: Job | None
        while (job := pipe.recv()) is not None:
            pipe.send(("end", try_job(job, job.folder, lambda steps: pipe.send(("step", steps)))))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass


def interrupt_on_sigterm() -> None:
    """Make SIGTERM an interrupt, once, that is not lost.

    Python drops an exception that is raised in a callback of the garbage collector, such as those of imports. An
    interrupt that was dropped there is raised again a little later.
    """

    def interrupt(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    def dropped(what: "sys.UnraisableHookArgs") -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, RETRY_S)
        else:
            sys.__unraisablehook__(what)

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = dropped
