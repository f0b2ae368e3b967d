"""Processes of the service: slow tasks are ended, dead processes replaced, and nobody waits for a cancelled task."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qccf.service.answers import Answer, RefusedError
from qccf.service.setup import Setup
from qccf.service.workers import Worker, Workers

PLAN = b'{"policies": ["qccf"], "seeds": 50, "settings": {"federation.rounds": 1000}}'
SETUP = Setup(Path("runs"))
LONG_S = 120.0


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(SETUP)
    yield made
    made.stop()


def describe(worker: Worker) -> Answer:
    return worker.run("options", None, LONG_S, lambda _: None)


def test_a_task_that_takes_too_long_is_killed_and_its_process_replaced(worker: Worker) -> None:
    assert describe(worker).status == 200
    late = worker.run("plan", PLAN, 0.3, lambda _: None)
    assert late.status == 504
    assert b"took more than 0.3 s" in late.content
    assert describe(worker).status == 200


def test_a_process_that_dies_is_replaced(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    def die(_: bytes) -> None:
        assert worker._process is not None
        os.kill(worker._process.pid or 0, signal.SIGKILL)

    assert worker.run("plan", PLAN, LONG_S, die).status == 500
    assert "died during plan" in caplog.text
    assert describe(worker).status == 200


def test_a_fault_is_answered_without_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> Answer:
        async with pool() as workers:
            return await workers.run("session_round", (b"not JSON", b"{}"), LONG_S)

    answer = asyncio.run(ask())
    assert answer.status == 500
    assert b"fault in qccf" in answer.content
    assert b"Traceback" not in answer.content
    assert "Traceback" in caplog.text


@asynccontextmanager
async def pool(waiting: int = 8) -> AsyncIterator[Workers]:
    made = Workers(1, SETUP, waiting=waiting)
    try:
        yield made
    finally:
        made.stop()


def test_a_cancelled_task_frees_its_process() -> None:
    """The next request is answered although the plan would take minutes, by the same process."""

    async def ask() -> tuple[Answer, bool]:
        async with pool() as workers:
            begun = asyncio.Event()
            plan = asyncio.create_task(workers.run("plan", PLAN, 1000.0, lambda _: begun.set()))
            await begun.wait()
            before = workers._workers[0]._process
            plan.cancel()
            answer = await workers.run("options", None, LONG_S)
            return answer, workers._workers[0]._process is before

    answer, same = asyncio.run(ask())
    assert answer.status == 200
    assert same, "the plan noticed its cancellation; nothing had to be killed"


def test_too_many_requests_are_refused_at_once() -> None:
    async def ask() -> str:
        async with pool(waiting=1) as workers:
            begun = asyncio.Event()
            running = asyncio.create_task(workers.run("plan", PLAN, 1000.0, lambda _: begun.set()))
            await begun.wait()
            waiting = asyncio.create_task(workers.run("options", None, 1000.0))
            await asyncio.sleep(0)
            with pytest.raises(RefusedError, match="1 requests wait already") as refused:
                await workers.run("options", None, 1000.0)
            running.cancel()
            waiting.cancel()
            await asyncio.gather(running, waiting, return_exceptions=True)
            return str(refused.value.status)

    assert asyncio.run(ask()) == "503"


def test_stopping_ends_a_running_task_without_a_complaint(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> Answer:
        async with pool() as workers:
            begun = asyncio.Event()
            running = asyncio.create_task(workers.run("plan", PLAN, 1000.0, lambda _: begun.set()))
            await begun.wait()
            workers.stop()
            return await running

    assert asyncio.run(ask()).status == 500
    assert caplog.text == ""


@pytest.mark.parametrize("steps", range(4))
def test_a_client_that_leaves_as_a_process_becomes_free_leaves_it_free(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """The cancellation must not get lost between waiting and computing: the process would compute for nobody."""
    seen: list[str] = []

    class Quick:
        def __init__(self, _: Setup) -> None:
            self.cancel = lambda: seen.append("cancelled")
            self.stop = lambda: None

        def run(self, *_: object) -> Answer:
            seen.append("asked")
            return Answer(200, b"{}")

    monkeypatch.setattr("qccf.service.workers.Worker", Quick)

    async def ask() -> bool:
        async with pool() as workers:
            worker = workers._idle.get_nowait()
            waiting = asyncio.create_task(workers.run("abandoned", None, 1000.0))
            while not workers._waiting:
                await asyncio.sleep(0)
            workers._idle.put_nowait(worker)
            for _ in range(steps):  # of the event loop
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            while workers._idle.empty():
                await asyncio.sleep(0)
            return waiting.cancelled()

    assert asyncio.run(ask()), "it was answered although it was cancelled"
    assert sorted(seen) in ([], ["asked", "cancelled"])
