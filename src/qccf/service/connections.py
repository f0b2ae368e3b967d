"""Connections: how many there may be, and how long one may stay open without a request.

A client that connects and sends nothing, or half a header, keeps nobody else out for long.
"""

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from qccf.service.answers import Answer, refusal
from qccf.service.guard import HEADERS

HEAD_S = 10.0
"""How long a client may take to send the header of a request."""
KEEP_S = 30
"""How long a connection stays open after an answer."""
MOST_CONNECTIONS = 1024
MOST_PER_ADDRESS = 512
REASONS = {400: "Bad Request", 503: "Service Unavailable"}

_Base: Any = AutoHTTPProtocol


class ServedConnection(_Base):  # type: ignore[misc]
    """One connection. What is refused before there is a request gets the same form as any other refusal."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        from_there = sum(_address(one) == _address(self) for one in self.connections)
        if len(self.connections) > MOST_CONNECTIONS or from_there > MOST_PER_ADDRESS:
            self._refuse(refusal(503, f"{from_there - 1} connections are open, which is the limit: close some."))
        else:
            self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def send_400_response(self, _: str) -> None:
        self._refuse(refusal(400, "this is not a request that HTTP knows."))

    def _watch_head(self) -> None:
        if not self._waits_for_head():
            self._stop_watching()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_S, self._close_late)

    def _waits_for_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop_watching(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close_late(self) -> None:
        self._late = None
        if self._waits_for_head():
            self.transport.close()

    def _refuse(self, answer: Answer) -> None:
        told = {"content-type": answer.media_type, "content-length": str(len(answer.content)), "connection": "close"}
        lines = [f"HTTP/1.1 {answer.status} {REASONS[answer.status]}"]
        lines += [f"{name}: {value}" for name, value in (told | HEADERS).items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + answer.content)
        self.transport.close()


def _address(connection: Any) -> str:
    return connection.client[0] if connection.client else ""


def uvicorn_config(app: Any, graceful_s: int = 3) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        app,
        http=ServedConnection,
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_S,
        timeout_graceful_shutdown=graceful_s,
        ws="none",
    )
