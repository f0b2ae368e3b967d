"""Jobs on a Ray cluster. Nodes need not share a file system: what a job leaves comes back as bytes.

Only the command writes results, so that a run which was started twice, because its node seemed lost, is there once. Ray
itself pickles what passes between its processes: a cluster is trusted as a whole.
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
from qccf.jobs.queue import Desk, Failure, Job, attempt

POLL_S = 0.5
ANSWER_S = 5.0
KEEP_S = 60.0
"""How often an unfinished job sends home what it has reached: no more than that is lost with a node."""

LOST = "the node that ran it was lost."


@dataclass(frozen=True)
class RayEngine:
    """`address` is a cluster's as `ray.init` takes it; without one, a cluster of this machine is started and stopped.

    `limit` jobs at a time, or as many as the cluster has cores for.
    """

    address: str | None = None
    limit: int | None = None

    def run(self, desk: Desk) -> None:
        with _cluster(self.address) as ray:
            _Dispatch(ray, desk, self.limit).run()


@dataclass(frozen=True)
class _Flight:
    """One try of a job; the ticket tells its letters from those of an earlier try."""

    ticket: int
    index: int
    job: Job


class _Dispatch:
    """Hands jobs to the cluster and takes in what comes back."""

    def __init__(self, ray: Any, desk: Desk, limit: int | None) -> None:
        self._ray = ray
        self._desk = desk
        self._limit = limit
        self._work = ray.remote(max_retries=0)(_work)
        self._mailbox = ray.remote(num_cpus=0, max_restarts=-1)(_Mailbox).remote()
        self._flying: dict[Any, _Flight] = {}
        self._tickets = itertools.count()
        self._sent_any = False

    def run(self) -> None:
        self._fill()
        while self._flying:
            ended, _ = self._ray.wait(list(self._flying), timeout=POLL_S)
            self._read_mail()
            for reference in ended:
                self._take_in(reference)
            self._fill()

    def _fill(self) -> None:
        """As many as there is room for. Nodes come and go, so that the room is measured anew."""
        cores = [node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]]
        while len(self._desk):
            job = self._desk.peek()
            if (sentence := _too_large(job, cores)) and not self._sent_any:
                raise QccfError(sentence)
            if sentence:  # the node that had room is gone: what else there is goes on
                self._desk.end(self._take()[0], Failure(sentence, final=True))
                continue
            room = sum(math.floor(count / job.cores) for count in cores)
            room = min(room, self._limit or room)
            self._desk.capacity(room)
            if len(self._flying) >= max(1, room):
                return
            self._send_out()

    def _send_out(self) -> None:
        index, job = self._take()
        self._sent_any = True
        ticket = next(self._tickets)
        reached = pack(job.folder) if job.folder.exists() else b""
        path = [*sys.path, str(Path.cwd())]
        task = self._work.options(num_cpus=job.cores)
        reference = task.remote(__version__, path, pickle.dumps(job), reached, self._mailbox, ticket)
        self._flying[reference] = _Flight(ticket, index, job)

    def _take(self) -> tuple[int, Job]:
        taken = self._desk.take()
        assert taken is not None
        return taken

    def _read_mail(self) -> None:
        """Steps, and states to go on from. It is only news: what cannot be read now comes later or is not missed."""
        try:
            letters = self._ray.get(self._mailbox.collect.remote(), timeout=ANSWER_S)
        except (self._ray.exceptions.RayError, TimeoutError):
            return
        flights = {flight.ticket: flight for flight in self._flying.values()}
        for ticket, steps, reached in letters:
            if flight := flights.get(ticket):
                if reached:
                    unpack(reached, flight.job.folder)
                self._desk.step(flight.index, steps)

    def _take_in(self, reference: Any) -> None:
        flight = self._flying.pop(reference)
        try:
            failure, left = self._ray.get(reference)
            if left:
                unpack(left, flight.job.folder)
            if failure is None and not flight.job.is_finished():
                failure = Failure("what came back is not a finished run.")
        except zipfile.BadZipFile:
            failure = Failure("what came back is damaged.")
        except self._ray.exceptions.RayTaskError as error:
            failure = Failure(f"{type(error.cause).__name__}: {error.cause}".splitlines()[0])
        except self._ray.exceptions.RayError:
            failure = Failure(LOST)
        self._desk.end(flight.index, failure)


class _Mailbox:
    """An actor that holds letters until they are collected."""

    def __init__(self) -> None:
        self._letters: list[tuple[int, int, bytes]] = []

    def post(self, ticket: int, steps: int, reached: bytes) -> None:
        self._letters.append((ticket, steps, reached))

    def collect(self) -> list[tuple[int, int, bytes]]:
        letters, self._letters = self._letters, []
        return letters


def _work(
    version: str, path: list[str], job_bytes: bytes, reached: bytes, mailbox: Any, ticket: int
) -> tuple[Failure | None, bytes]:
    """On a node: run the job in a scratch folder, and return what it left there, good or bad."""
    if version != __version__:
        return Failure(f"this node has qccf {__version__}, the command {version}: install the same.", final=True), b""
    sys.path.extend(entry for entry in path if entry not in sys.path)
    job: Job = pickle.loads(job_bytes)
    with tempfile.TemporaryDirectory(prefix="qccf-") as scratch:
        folder = Path(scratch) / "run"
        folder.mkdir()
        if reached:
            unpack(reached, folder)
        kept = time.monotonic()

        def tell(steps: int) -> None:
            nonlocal kept
            due = time.monotonic() - kept >= KEEP_S
            if due:
                kept = time.monotonic()
            mailbox.post.remote(ticket, steps, pack(folder) if due else b"")

        failure = attempt(job, folder, tell)
        return failure, pack(folder)


def _too_large(job: Job, cores: list[float]) -> str:
    """Why a job fits no node, and would wait for ever; empty if it fits."""
    if not any(cores) or max(cores) >= job.cores:
        return ""
    return (
        f"a run takes {job.cores} cores (execution.workers), but the largest node of the cluster has {max(cores):g}: "
        "lower execution.workers."
    )


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Connected to a cluster, quietly; one of our own ends with the batch."""
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
    """Ray itself would keep trying for minutes."""
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
