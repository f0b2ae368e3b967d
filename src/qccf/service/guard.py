"""Every request passes here first: who may ask, and the headers that every answer has.

Without a token the service answers only to its own host name, so that no other site can reach it through a name that
it lets point here, and to no page of another origin.
"""

import hashlib
import hmac
import logging
import time
from typing import Any

from qccf.service.answers import Answer, refusal

log = logging.getLogger("qccf.service")

Scope = dict[str, Any]

HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
}


class Guard:
    """ASGI middleware: host, origin, token, headers and one line in the log."""

    def __init__(self, app: Any, *, hosts: frozenset[str], token: str | None) -> None:
        self._app = app
        self._hosts = hosts
        self._token = None if token is None else _digest(token)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def send_guarded(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in present)]
            await send(message)

        refused = self._refusal(scope)
        if refused is not None:
            await send_answer(refused, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)
        route = getattr(scope.get("route"), "path", "unknown path")  # never the path itself: it may name a session
        log.info("%s %s %d %.1f ms", scope["method"], route, status, 1e3 * (time.perf_counter() - started))

    def _refusal(self, scope: Scope) -> Answer | None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._token is None and _without_port(host) not in self._hosts:
            return refusal(421, "this service answers only to the host name that it was started with.")
        if origin is not None and origin.partition("://")[2] != host:
            return refusal(403, "pages of other origins may not use this service.")
        if self._token is not None and scope["path"].startswith("/v1"):
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(_digest(given.strip()), self._token):
                return refusal(401, "this service needs a token: send the header `Authorization: Bearer TOKEN`.")
        return None


async def send_answer(answer: Answer, send: Any) -> None:
    headers = [(b"content-type", answer.media_type.encode()), (b"content-length", str(len(answer.content)).encode())]
    if answer.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})


def _digest(token: str) -> bytes:
    """Digests have equal lengths, so that comparing them takes the same time for every token."""
    return hashlib.sha256(token.encode("utf-8", errors="replace")).digest()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()
