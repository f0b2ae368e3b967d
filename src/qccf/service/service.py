"""The service behind the routes: its processes, its sessions, its plans."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from qccf.core.plain_json import to_json
from qccf.service import runs
from qccf.service.answers import Answer, RefusedError, json_answer, refusal
from qccf.service.events import event
from qccf.service.setup import Setup
from qccf.service.store import SessionStore, Stored
from qccf.service.workers import Workers

KEEP_ALIVE_S = 15.0
WATCH_S = 0.5
"""How often a run's folder is looked at while somebody watches it."""
PLAN_WORKERS = 2
LOCKS = 256
"""Each guards the sessions of one remainder, so that a session takes one step at a time."""

T = TypeVar("T")


class Service:
    """Processes for decisions, for plans, and for reading runs: none keeps the others waiting."""

    def __init__(self, setup: Setup, state: Path, workers: int) -> None:
        waiting = setup.limits.waiting
        self.setup = setup
        self.limits = setup.limits
        self._deciding = Workers(workers, setup, waiting=waiting)
        self._planning = Workers(PLAN_WORKERS, setup, waiting=waiting)
        self._reading = Workers(1, setup, waiting=waiting)
        self._store = SessionStore(state, setup.limits)
        self._storing = ThreadPoolExecutor(1, thread_name_prefix="qccf-sessions")
        self._locks = [asyncio.Lock() for _ in range(LOCKS)]
        self._plans: dict[str, asyncio.Task[Answer]] = {}
        self._streams = 0

    def start(self) -> None:
        self._deciding.start()
        self._planning.start()
        self._reading.start()

    def stop(self) -> None:
        for pool in (self._deciding, self._planning, self._reading):
            pool.stop()
        self._storing.shutdown(wait=True)
        self._store.close()

    async def decide(self, content: bytes, options: dict[str, Any]) -> Answer:
        return await self._deciding.run("decide", (content, options), self.limits.decide_s)

    async def quick(self, task: str, payload: Any) -> Answer:
        """A task that takes milliseconds."""
        return await self._deciding.run(task, payload, self.limits.decide_s)

    async def read(self, task: str, payload: Any) -> Answer:
        return await self._reading.run(task, payload, self.limits.read_s)

    # Sessions

    async def create_session(self, content: bytes) -> Answer:
        made = await self.quick("new_session", content)
        if made.status != 201:
            return made
        name = await self._stored(self._store.create, made.kept)
        return Answer(201, b'{"id": "' + name.encode() + b'", ' + made.content[1:])

    async def describe_session(self, name: str) -> Answer:
        stored = await self._stored(self._store.get, name)
        return await self.quick("describe_session", stored.session)

    async def list_sessions(self) -> Answer:
        return json_answer(await self._stored(self._store.names))

    async def delete_session(self, name: str) -> Answer:
        await self._stored(self._store.delete, name)
        return Answer(204, b"")

    async def advance_session(self, name: str, task: str, content: bytes) -> Answer:
        """One step of a session. The same request again gets the same answer, in case the first was lost."""
        request = hashlib.sha256(task.encode() + content).hexdigest()
        async with self._locks[hash(name) % LOCKS]:
            stored = await self._stored(self._store.get, name)
            if stored.request == request:
                return Answer(200, stored.answer)
            answer = await self.quick(task, (stored.session, content))
            if answer.status == 200:
                await self._stored(self._store.put, name, Stored(answer.kept, request, answer.content))
            return answer

    async def _stored(self, act: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._storing, act, *arguments)

    # Plans

    async def plan(self, content: bytes) -> Answer:
        return await self._planning.run("plan", content, self.limits.plan_s)

    async def plan_events(self, content: bytes) -> AsyncIterator[bytes]:
        """The name of the plan, its progress, and its result or why there is none."""
        name, changed = secrets.token_urlsafe(12), asyncio.Event()
        progress: list[bytes] = []  # only the last report is kept for a client that reads slowly

        def on_event(report: bytes) -> None:
            progress[:] = [report]
            changed.set()

        work = asyncio.ensure_future(self._planning.run("plan", content, self.limits.plan_s, on_event))
        work.add_done_callback(lambda _: changed.set())
        self._plans[name] = work
        try:
            yield event("started", to_json({"id": name}).encode())
            while not work.done():
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": still planning\n\n"
                changed.clear()
                if progress and not work.done():
                    yield event("progress", progress.pop())
            yield _plan_result(work)
        finally:
            del self._plans[name]
            work.cancel()

    def cancel_plan(self, name: str) -> Answer:
        work = self._plans.get(name)
        if work is None:
            raise RefusedError(404, "no plan of this name is running.")
        work.cancel()
        return Answer(204, b"")

    # Runs

    async def run_events(self, name: str) -> AsyncIterator[bytes]:
        """An event whenever a run was written."""
        folder = await asyncio.to_thread(runs.found_folder, name, self.setup)
        last, quiet_s = -1, 0.0
        while True:
            now = await asyncio.to_thread(runs.changed_at, folder)
            if now != last:
                last, quiet_s = now, 0.0
                yield event("changed", to_json({"changed": now / 1e9}).encode())
            elif quiet_s >= KEEP_ALIVE_S:
                quiet_s = 0.0
                yield b": nothing new\n\n"
            await asyncio.sleep(WATCH_S)
            quiet_s += WATCH_S

    def take_stream(self) -> ExitStack:
        """One of the streams that may be open at a time; closing it gives the place back."""
        if self._streams >= self.limits.streams:
            raise RefusedError(503, f"{self._streams} streams of events are open, which is the limit: close one.")
        self._streams += 1
        place = ExitStack()
        place.callback(self._free_stream)
        return place

    def _free_stream(self) -> None:
        self._streams -= 1


def _plan_result(work: "asyncio.Future[Answer]") -> bytes:
    if work.cancelled():
        answer = refusal(499, "The plan was cancelled.")
    elif isinstance(work.exception(), RefusedError):
        error = work.exception()
        assert isinstance(error, RefusedError)
        answer = refusal(error.status, str(error))
    else:
        answer = work.result()
    return event("result" if answer.status == 200 else "error", answer.content)
