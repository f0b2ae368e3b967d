"""Processes that compute for the service, each one task at a time.

The event loop never computes, decisions run beside each other on all cores, and a task that takes too long is killed
without any other noticing.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from qccf.core.errors import QccfError
from qccf.core.registry import without_plugins
from qccf.service.answers import Answer, RefusedError, refusal

log = logging.getLogger("qccf.service")

POLL_S = 0.1
START_S = 120.0
"""How long a process may take to load its libraries. The time of a request counts from then on."""
GRACE_S = 2.0
"""How long a cancelled task may take to notice it before its process is killed."""

OnEvent = Callable[[bytes], None]


class CancelledTaskError(Exception):
    """The client no longer wants the answer."""


class Context:
    """What a task sees of the service: its settings, and the pipe for progress and cancellation."""

    def __init__(self, pipe: Connection, setup: Any) -> None:
        self._pipe = pipe
        self.setup = setup

    def send(self, event: bytes) -> None:
        """Report progress; ends the task if it was cancelled."""
        self.check()
        self._pipe.send(("event", event))

    def check(self) -> None:
        if self._pipe.poll():
            raise CancelledTaskError


def _work(pipe: Connection, paths: list[str], setup: Any) -> None:
    """The loop of a worker process. It ends with the service, whose end of the pipe then closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    sys.path[:] = paths
    from qccf.service.tasks import TASKS

    plugins = nullcontext() if setup.allow_plugins else without_plugins("a request or a run", "--allow-plugins")
    with plugins, suppress(EOFError, OSError):
        pipe.send(("ready", None))
        while True:
            message = pipe.recv()
            if message[0] != "task":
                continue  # a task was cancelled after its end
            _, name, payload = message
            try:
                answer = TASKS[name](payload, Context(pipe, setup))
            except CancelledTaskError:
                answer = refusal(499, "The request was cancelled.")
            except RefusedError as error:
                answer = refusal(error.status, str(error))
            except QccfError as error:
                answer = refusal(422, str(error))
            except ModuleNotFoundError as error:
                answer = refusal(501, f"this needs {error.name} on the server: pip install 'qccf[sim]'.")
            except Exception:
                answer = Answer(500, traceback.format_exc().encode(errors="replace"))
            pipe.send(("answer", answer))


class Worker:
    """One process. It is started for its first task, and again after it was killed."""

    def __init__(self, setup: Any) -> None:
        self._setup = setup
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._sending = threading.Lock()
        self._cancelled_at: float | None = None
        self._ready = False

    def start(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, list(sys.path), self._setup), daemon=True)
        self._process.start()
        self._ready = False
        theirs.close()

    def stop(self) -> None:
        """Kill the process; any thread may call this, also while `run` waits in another."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is not None:
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()

    def cancel(self) -> None:
        """Ask the running task to end; called from another thread than `run`."""
        with self._sending, suppress(OSError):
            if self._pipe is not None:
                self._cancelled_at = time.monotonic()
                self._pipe.send(("cancel",))

    def run(self, task: str, payload: Any, limit_s: float, on_event: OnEvent) -> Answer:
        """Send a task and wait for its answer; raises nothing."""
        try:
            with self._sending:
                self._cancelled_at = None
                self.start()
                assert self._pipe is not None
                self._pipe.send(("task", task, payload))
            return self._wait(self._pipe, limit_s, on_event)
        except (EOFError, OSError):
            if self._process is not None:  # it was not stopped by us
                log.error("a worker process died during %s and is replaced", task)
            self.stop()
            return refusal(500, "The process of this request ended: it may have run out of memory; ask for less.")

    def _wait(self, pipe: Connection, limit_s: float, on_event: OnEvent) -> Answer:
        ends_at = time.monotonic() + (limit_s if self._ready else START_S)
        while True:
            if pipe.poll(POLL_S):
                kind, value = pipe.recv()
                if kind == "answer":
                    answer: Answer = value
                    return answer
                if kind == "ready":
                    self._ready, ends_at = True, time.monotonic() + limit_s
                else:
                    on_event(value)
            now = time.monotonic()
            if now > ends_at:
                self.stop()
                return refusal(504, f"The request took more than {limit_s:g} s: ask for less.")
            if self._ready and self._cancelled_at is not None and now > self._cancelled_at + GRACE_S:
                self.stop()
                return refusal(499, "The request was cancelled.")


class Workers:
    """Some workers, and the requests that wait for one."""

    def __init__(self, count: int, setup: Any, *, waiting: int) -> None:
        self._workers = [Worker(setup) for _ in range(count)]
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="qccf-worker")
        self._idle: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        self._most_waiting = waiting
        self._waiting = 0
        for worker in self._workers:
            self._idle.put_nowait(worker)

    def start(self) -> None:
        """Start all processes now, so that the first requests need not wait for them."""
        for worker in self._workers:
            worker.start()

    async def run(self, task: str, payload: Any, limit_s: float, on_event: OnEvent = lambda _: None) -> Answer:
        """The answer of a task. If the caller is cancelled, so is the task."""
        worker = await self._free_worker(limit_s)
        loop = asyncio.get_running_loop()

        def pass_on(event: bytes) -> None:
            loop.call_soon_threadsafe(on_event, event)

        future = loop.run_in_executor(self._threads, worker.run, task, payload, limit_s, pass_on)
        future.add_done_callback(lambda _: self._idle.put_nowait(worker))
        try:
            answer = await asyncio.shield(future)
        except asyncio.CancelledError:
            worker.cancel()
            raise
        if answer.status == 500 and not answer.content.startswith(b"{"):
            log.error("a fault in qccf during %s:\n%s", task, answer.content.decode(errors="replace"))
            return refusal(500, "This is a fault in qccf; the log of the service has the traceback: please report it.")
        return answer

    async def _free_worker(self, limit_s: float) -> Worker:
        if self._idle.empty() and self._waiting >= self._most_waiting:
            raise RefusedError(503, f"{self._waiting} requests wait already: try again later.")
        self._waiting += 1
        try:
            async with asyncio.timeout(limit_s):  # `wait_for` may swallow a cancellation and keep the process
                return await self._idle.get()
        except TimeoutError:
            raise RefusedError(503, f"No process was free within {limit_s:g} s: try again later.") from None
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown(wait=True)
