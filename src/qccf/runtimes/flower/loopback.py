"""A whole federation on this machine: a SuperLink with TLS and SuperNodes with their own keys, for trials and tests.

Everything that is started here is stopped when the context ends.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from qccf.core.errors import LoopbackError
from qccf.core.files import write_text_whole
from qccf.runtimes.flower.scaffold import new_app

LOCALHOST = "127.0.0.1"
CONNECTION = "loopback"
IN_MEMORY = ":flwr-in-memory:"
"""What Flower calls a database that ends with its SuperLink."""
START_S = 180.0
"""Limit for the start of the SuperLink."""


class Loopback:
    """A SuperLink and `num_nodes` SuperNodes; node i is client i. Without `app`, a new app is made by `new_app`.

    With `simulated`, the SuperLink simulates the nodes on Ray and there are no SuperNodes. A SuperLink that is started
    again knows its nodes from its `database`; many nodes at once need one in memory, because SQLite locks the file.
    """

    def __init__(
        self,
        folder: Path,
        num_nodes: int,
        *,
        app: Path | None = None,
        simulated: bool = False,
        database: str = "link.db",
    ) -> None:
        self.folder = folder.resolve()
        self.app = (app or folder / "app").resolve()
        self.num_nodes = num_nodes
        self.simulated = simulated
        self.database = database if database == IN_MEMORY else str(self.folder / database)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.node_configs: dict[int, dict[str, str]] = {}
        """Node to the further keys of its node config."""
        self._logs: list[BinaryIO] = []

    def __enter__(self) -> "Loopback":
        try:
            make_certificates(self.folder)
            write_text_whole(
                self.folder / "home" / "config.toml",
                f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
                f'address = "{LOCALHOST}:{self.port}"\nroot-certificates = "{self.folder / "ca.crt"}"\n',
            )
            if not self.app.exists():
                new_app(self.app)
            self.start_link()
            for number in range(0 if self.simulated else self.num_nodes):
                self.register(number)
                self.start_node(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # The nodes sign off first; then the SuperLink has nothing left to save.
        for name in sorted(self.processes, key="link".__eq__):
            self.stop(name, hard=name == "link" and not self.simulated)
        for log in self._logs:
            log.close()

    def start_link(self) -> None:
        """Start the SuperLink and wait until it answers."""
        self._start(
            "link",
            "flower-superlink",
            *("--host", LOCALHOST, "--port", str(self.port)),
            "--simulation" if self.simulated else "--enable-supernode-auth",
            *("--ssl-ca-certfile", self.folder / "ca.crt"),
            *("--ssl-certfile", self.folder / "server.pem", "--ssl-keyfile", self.folder / "server.key"),
            *("--disable-runtime-dependency-installation", "--database", self.database),
        )
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((LOCALHOST, self.port), timeout=1.0).close()
                return
            except OSError:
                if self.processes["link"].poll() is not None or time.monotonic() > end:
                    raise LoopbackError(f"the SuperLink did not start: {self.log_text('link')}") from None
                time.sleep(0.2)

    def register(self, number: int) -> None:
        """Make a new key for a node and register it with the SuperLink."""
        public = make_node_key(self.folder / "keys", f"node{number}")
        self._flwr("supernode", "register", public, CONNECTION)

    def unregister(self, number: int) -> None:
        """Remove a node from the SuperLink, which otherwise expects it for a minute after its last heartbeat."""
        found = re.search(r"SuperNode ID: (\d+)", self.log_text(f"node{number}"))
        if found is None:
            raise LoopbackError(f"node {number} has not connected: {self.log_text(f'node{number}')}")
        self._flwr("supernode", "unregister", found.group(1), CONNECTION)

    def start_node(
        self, number: int, *, key: Path | None = None, port: int | None = None, keyless: bool = False, **config: Any
    ) -> None:
        """Start a SuperNode. It uses its own key, another `key`, or none; it connects to the SuperLink or to `port`.

        `config` are further keys of its node config.
        """
        own = self.folder / "keys" / f"node{number}"
        self.node_configs[number] = {name: str(value) for name, value in config.items()}
        pairs = " ".join(f"{name}={_toml(value)}" for name, value in {"partition-id": number, **config}.items())
        self._start(
            f"node{number}",
            "flower-supernode",
            *("--root-certificates", self.folder / "ca.crt", "--superlink", f"{LOCALHOST}:{port or self.port}"),
            *(() if keyless else ("--auth-supernode-private-key", key or own)),
            *("--port", str(free_port()), "--node-config", pairs),
        )

    def run(self, config: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """Start a run of the app with this run config. Its output goes to the log "run"."""
        pairs = " ".join(f"{name}={_toml(value)}" for name, value in config.items())
        nodes = f"num-supernodes={self.num_nodes} client-resources-num-cpus=1"
        simulation = ["--federation-config", nodes] if self.simulated else []
        return self._start("run", "flwr", "run", self.app, CONNECTION, "--stream", "--run-config", pairs, *simulation)

    def stop(self, name: str, *, hard: bool = False) -> None:
        """Stop a process and its children with SIGTERM, or with SIGKILL if `hard`."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        for sign, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0))[1 if hard else 0 :]:
            try:
                os.killpg(process.pid, sign)
                process.wait(patience_s)
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue

    def log_text(self, name: str) -> str:
        """The output of a process since its last start."""
        return (self.folder / "logs" / f"{name}.txt").read_text(encoding="utf-8", errors="replace")

    def _start(self, name: str, *command: object) -> subprocess.Popen[bytes]:
        self.stop(name)
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        log = (self.folder / "logs" / f"{name}.txt").open("wb")
        self._logs.append(log)
        self.processes[name] = subprocess.Popen(
            [_script(command[0]), *map(str, command[1:])],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self.processes[name]

    def _flwr(self, *arguments: object) -> None:
        done = subprocess.run(
            [_script("flwr"), *map(str, arguments)],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            raise LoopbackError(f"flwr {' '.join(map(str, arguments))} failed: {done.stdout.decode().strip()}")

    def _environment(self) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)
        return {
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }


def make_certificates(folder: Path) -> None:
    """Make a certificate authority and a certificate for this machine, valid for one day."""
    authority = trustme.CA()
    server = authority.issue_cert(LOCALHOST, "localhost", not_after=datetime.now(UTC) + timedelta(days=1))
    _write_private(folder / "ca.crt", authority.cert_pem.bytes())
    _write_private(folder / "server.pem", server.cert_chain_pems[0].bytes())
    _write_private(folder / "server.key", server.private_key_pem.bytes())


def make_node_key(folder: Path, name: str) -> Path:
    """Make a key pair for a SuperNode, in the format that Flower reads; returns the file of the public key."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(
        folder / name,
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ),
    )
    public = folder / f"{name}.pub"
    _write_private(
        public, key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return public


def free_port() -> int:
    """A port that is not in use now."""
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _script(name: object) -> str:
    """Flower's programs are in the folder of the interpreter, which may not be on the PATH."""
    return str(Path(sys.executable).parent / str(name))


def _write_private(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str | Path) else repr(value)
