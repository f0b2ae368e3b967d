"""Starts the service: checks where it may be reached from, and listens."""

import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qccf.core.errors import ConfigError
from qccf.core.files import alone_in
from qccf.service.setup import Setup

STATE = ".service"
"""The folder of the sessions, below that of the runs."""
LEAST_TOKEN = 16
MOST_WORKERS = 64


@dataclass(frozen=True)
class Address:
    """Where the service listens, and the token that it then needs."""

    host: str
    port: int
    token: str | None

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def names(self) -> frozenset[str]:
        """Host names by which it may be called without a token."""
        own = f"[{self.host}]" if ":" in self.host else self.host.lower()
        return frozenset({"127.0.0.1", "localhost", "[::1]", own})


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_address(host: str, port: int, token_file: Path | None) -> Address:
    """Refuse another host than this machine's own without a token."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"--port {port} is out of range: give 1 to 65535, or 0 for any free port.")
    address = Address(host, port, None if token_file is None else read_token(token_file))
    if not address.loopback and address.token is None:
        raise ConfigError(
            f"--host {host} can be reached from other machines: give --token FILE, a file with a secret of at least "
            f"{LEAST_TOKEN} characters, or stay on 127.0.0.1."
        )
    return address


def read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path}: the token cannot be read: {reason}.") from None
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{path}: the token must be one line of at least {LEAST_TOKEN} letters, digits and signs, such as the "
            "output of `python -c 'import secrets; print(secrets.token_urlsafe(32))'`."
        )
    return token


def default_workers() -> int:
    return min(8, os.cpu_count() or 1)


def serve(setup: Setup, address: Address, workers: int, say: Callable[[str], None], *, verbose: bool = False) -> None:
    """Serve until interrupted. One service uses a folder of runs at a time."""
    import uvicorn

    from qccf.service.app import create_app
    from qccf.service.connections import uvicorn_config

    if not 1 <= workers <= MOST_WORKERS:
        raise ConfigError(f"--workers {workers} is out of range: give 1 to {MOST_WORKERS}.")
    state = setup.runs / STATE
    listening = _listening(address)
    with listening, alone_in(state):
        host = f"[{address.host}]" if ":" in address.host else address.host
        say(f"Planner: http://{host}:{listening.getsockname()[1]}/  runs: /runs  API: /docs  (Ctrl-C stops)")
        if not address.loopback:
            say("Other machines can reach this service. Requests need the token, and nothing is encrypted: put a proxy "
                "with TLS before it.")  # fmt: skip
        logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(message)s")
        app = create_app(setup, state=state, hosts=address.names, token=address.token, workers=workers)
        uvicorn.Server(uvicorn_config(app)).run(sockets=[listening])


def _listening(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{address.host}:{address.port} cannot be used: {reason}; choose another --port or --host."
        ) from None
