"""Server-sent events. A client that reads slowly or not at all keeps nobody waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import Any

from starlette.responses import Response

HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


def event(name: str, data: bytes) -> bytes:
    """One event; `data` is JSON on one line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class EventResponse(Response):
    """Sends events until they end, the client goes away, or the time is over."""

    def __init__(self, events: AsyncIterator[bytes], limit_s: float, place: ExitStack) -> None:
        """`place` is closed at the end."""
        super().__init__(media_type="text/event-stream")
        self._place = place
        self._events = events
        self._limit_s = limit_s

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, timeout=self._limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._place.close()
            for task in (sending, gone):
                task.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await task

    async def _send(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        try:
            async for one in self._events:
                await send({"type": "http.response.body", "body": one, "more_body": True})
        finally:
            await self._events.aclose()  # type: ignore[attr-defined]
        await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
