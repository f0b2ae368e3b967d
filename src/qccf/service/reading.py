"""Reading the body of a request within its limits, and noticing that its client has gone away."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from qccf.service.answers import JSON, Answer, RefusedError
from qccf.service.limits import Limits


async def read_content(request: Request, limits: Limits) -> bytes:
    """The body. It must be JSON, not too large, and not too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise RefusedError(415, f"the body must be sent as {JSON}: set the header Content-Type.")
    stated = request.headers.get("content-length", "0")
    if stated.isdecimal() and int(stated) > limits.body_bytes:
        raise _too_large(limits)
    content = bytearray()
    try:
        async with asyncio.timeout(limits.body_s):
            async for chunk in request.stream():
                content += chunk
                if len(content) > limits.body_bytes:
                    raise _too_large(limits)
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {limits.body_s:g} s: send it faster.") from None
    except ClientDisconnect:
        raise RefusedError(499, "The client went away.") from None
    return bytes(content)


def _too_large(limits: Limits) -> RefusedError:
    return RefusedError(413, f"the body is larger than {limits.body_bytes:,} bytes: ask for less at a time.")


async def unless_gone(request: Request, work: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer, or its cancellation as soon as the client has gone away."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise RefusedError(499, "The client went away.")
    finally:
        for task in (working, gone):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
