"""Jobs on a Ray cluster. Nodes need not share a file system: the contents of a job's folder are sent as bytes.

Only the command writes results, so a job that ran twice, because its node seemed lost, leaves one result. Ray pickles
the data between its processes: all nodes of a cluster must trust each other.
"""

import itertools
import logging
import math
import os
import pickle
import socket
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qccf._version import __version__
from qccf.core.errors import QccfError
from qccf.jobs.archive import pack, unpack
from qccf.jobs.memory import keep_freed_memory
from qccf.jobs.queue import Failure, Job, JobQueue, try_job

POLL_S = 0.5
ANSWER_S = 5.0
SAVE_EVERY_S = 60.0
"""How often a running job sends its folder to the command: the loss of a node costs at most this much work."""

LOST = "the node that ran it was lost."


@dataclass(frozen=True)
class RayEngine:
    """`address` is that of a cluster, as for `ray.init`; without one a cluster is started and stopped here.

    At most `limit` jobs run at a time, by default as many as the cluster has cores for.
    """

    address: str | None = None
    limit: int | None = None

    def run(self, queue: JobQueue) -> None:
        with _cluster(self.address) as ray:
            _Dispatcher(ray, queue, self.limit).run()


@dataclass(frozen=True)
class _Attempt:
    """One attempt at a job; its number tells its messages from those of an earlier attempt."""

    number: int
    index: int
    job: Job


class _Dispatcher:
    """Sends jobs to the cluster and receives their results."""

    def __init__(self, ray: Any, queue: JobQueue, limit: int | None) -> None:
        self._ray = ray
        self._queue = queue
        self._limit = limit
        self._task = ray.remote(max_retries=0)(_run_on_node)
        self._actor = ray.remote(num_cpus=0, max_restarts=-1)(_ProgressActor).remote()
        self._attempts: dict[Any, _Attempt] = {}
        self._numbers = itertools.count()
        self._sent_any = False

    def run(self) -> None:
        self._send_jobs()
        while self._attempts:
            ended, _ = self._ray.wait(list(self._attempts), timeout=POLL_S)
            self._read_messages()
            for reference in ended:
                self._receive(reference)
            self._send_jobs()

    def _send_jobs(self) -> None:
        """Send as many jobs as the cluster has room for. Nodes come and go, so the room is counted each time."""
        cores = [node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]]
        while len(self._queue):
            job = self._queue.peek()
            if (reason := _too_large(job, cores)) and not self._sent_any:
                raise QccfError(reason)
            if reason:  # the only node with room is gone: the other jobs continue
                self._queue.end(self._take()[0], Failure(reason, final=True))
                continue
            room = sum(math.floor(count / job.cores) for count in cores)
            room = min(room, self._limit or room)
            self._queue.set_workers(room)
            if len(self._attempts) >= max(1, room):
                return
            self._send_next()

    def _send_next(self) -> None:
        index, job = self._take()
        self._sent_any = True
        number = next(self._numbers)
        saved = pack(job.folder) if job.folder.exists() else b""
        path = [*sys.path, str(Path.cwd())]
        task = self._task.options(num_cpus=job.cores)
        reference = task.remote(__version__, path, pickle.dumps(job), saved, self._actor, number)
        self._attempts[reference] = _Attempt(number, index, job)

    def _take(self) -> tuple[int, Job]:
        taken = self._queue.take()
        assert taken is not None
        return taken

    def _read_messages(self) -> None:
        """Read steps and saved folders. If the actor does not answer in time, the next poll tries again."""
        try:
            messages = self._ray.get(self._actor.collect.remote(), timeout=ANSWER_S)
        except (self._ray.exceptions.RayError, TimeoutError):
            return
        attempts = {attempt.number: attempt for attempt in self._attempts.values()}
        for number, steps, saved in messages:
            if attempt := attempts.get(number):
                if saved:
                    unpack(saved, attempt.job.folder)
                self._queue.step(attempt.index, steps)

    def _receive(self, reference: Any) -> None:
        attempt = self._attempts.pop(reference)
        try:
            failure, files = self._ray.get(reference)
            if files:
                unpack(files, attempt.job.folder)
            if failure is None and not attempt.job.is_finished():
                failure = Failure("the node returned an unfinished run.")
        except zipfile.BadZipFile:
            failure = Failure("the node returned a damaged archive.")
        except self._ray.exceptions.RayTaskError as error:
            failure = Failure(f"{type(error.cause).__name__}: {error.cause}".splitlines()[0])
        except self._ray.exceptions.RayError:
            failure = Failure(LOST)
        self._queue.end(attempt.index, failure)


class _ProgressActor:
    """A Ray actor that holds the messages of running jobs until the command collects them."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, int, bytes]] = []

    def post(self, number: int, steps: int, saved: bytes) -> None:
        self._messages.append((number, steps, saved))

    def collect(self) -> list[tuple[int, int, bytes]]:
        messages, self._messages = self._messages, []
        return messages


def _run_on_node(
    version: str, path: list[str], job_bytes: bytes, saved: bytes, actor: Any, number: int
) -> tuple[Failure | None, bytes]:
    """On a node: run the job in a temporary folder and return the contents of that folder."""
    if version != __version__:
        return Failure(f"this node has qccf {__version__}, the command {version}: install the same.", final=True), b""
    sys.path.extend(entry for entry in path if entry not in sys.path)
    keep_freed_memory()
    job: Job = pickle.loads(job_bytes)
    with tempfile.TemporaryDirectory(prefix="qccf-") as temporary:
        folder = Path(temporary) / "run"
        folder.mkdir()
        if saved:
            unpack(saved, folder)
        last_save = time.monotonic()

        def on_step(steps: int) -> None:
            nonlocal last_save
            save = time.monotonic() - last_save >= SAVE_EVERY_S
            if save:
                last_save = time.monotonic()
            actor.post.remote(number, steps, pack(folder) if save else b"")

        failure = try_job(job, folder, on_step)
        return failure, pack(folder)


def _too_large(job: Job, cores: list[float]) -> str:
    """Why a job fits no node and would wait forever; empty if it fits."""
    if not any(cores) or max(cores) >= job.cores:
        return ""
    return (
        f"a run needs {job.cores} cores (execution.workers), but the largest node of the cluster has {max(cores):g}: "
        "lower execution.workers."
    )


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """A connection to a cluster; one that was started here ends with the queue."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise QccfError("--engine ray needs ray: pip install 'qccf[ray]'.") from None
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    _require_answer(where)
    own = {"include_dashboard": False, "num_cpus": os.cpu_count()} if where == "local" else {}
    try:
        ray.init(address=where, logging_level=logging.ERROR, log_to_driver=False, **own)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise QccfError(f"no Ray cluster at --address {where}: {reason}.") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Refuse at once an address that does not answer; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise QccfError(
            f"nothing answers at --address {address} ({reason}): give host:port of a running cluster, or auto."
        ) from None
