"""A whole federation on this machine, as it would be on many: a SuperLink with TLS, SuperNodes with keys of their own.

For trying things out and for tests. Everything that is started here is stopped when the context ends.
"""

import datetime
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from qccf.core.errors import QccfError
from qccf.core.files import write_text_whole
from qccf.runtimes.flower.scaffold import new_app

LOCALHOST = "127.0.0.1"
CONNECTION = "loopback"
START_S = 180.0
"""How long a server process may take to answer."""


class LoopbackError(QccfError):
    """Something that did not start."""


class Loopback:
    """A SuperLink and `num_nodes` SuperNodes; node i is client i. The app is a new one of ours, unless one is given.

    `simulated` has the SuperLink simulate the nodes on Ray instead of waiting for processes of their own.
    """

    def __init__(self, folder: Path, num_nodes: int, *, app: Path | None = None, simulated: bool = False) -> None:
        self.folder = folder.resolve()
        self.app = (app or folder / "app").resolve()
        self.num_nodes = num_nodes
        self.simulated = simulated
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
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
        for name in list(self.processes):
            self.stop(name)
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
            *("--disable-runtime-dependency-installation", "--database", self.folder / "link.db"),
        )
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((LOCALHOST, self.port), timeout=1.0).close()
                return
            except OSError:
                if self.processes["link"].poll() is not None or time.monotonic() > end:
                    raise LoopbackError(f"the SuperLink did not start: {self.told('link')}") from None
                time.sleep(0.2)

    def register(self, number: int) -> None:
        """Make a key for a node and tell the SuperLink its public half."""
        public = make_node_key(self.folder / "keys", f"node{number}")
        done = self._flwr("supernode", "register", public, CONNECTION)
        if done.returncode:
            raise LoopbackError(f"node {number} could not be registered: {done.stdout.decode().strip()}")

    def start_node(
        self, number: int, *, key: Path | None = None, port: int | None = None, keyless: bool = False
    ) -> None:
        """Start a SuperNode, with its own key unless another or none is wanted, through another port if given."""
        own = self.folder / "keys" / f"node{number}"
        self._start(
            f"node{number}",
            "flower-supernode",
            *("--root-certificates", self.folder / "ca.crt", "--superlink", f"{LOCALHOST}:{port or self.port}"),
            *(() if keyless else ("--auth-supernode-private-key", key or own)),
            *("--port", str(free_port()), "--node-config", f"partition-id={number}"),
        )

    def run(self, config: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """Start a run of the app with that run config; what it says goes to the log "run"."""
        pairs = " ".join(f"{name}={_toml(value)}" for name, value in config.items())
        nodes = f"num-supernodes={self.num_nodes} client-resources-num-cpus=1"
        simulation = ["--federation-config", nodes] if self.simulated else []
        return self._start("run", "flwr", "run", self.app, CONNECTION, "--stream", "--run-config", pairs, *simulation)

    def stop(self, name: str, *, hard: bool = False) -> None:
        """Stop a process and all that it started; `hard` gives it no chance to say goodbye."""
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

    def told(self, name: str) -> str:
        """What a process said since it was started last."""
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

    def _flwr(self, *arguments: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [_script("flwr"), *map(str, arguments)],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        }


def make_certificates(folder: Path) -> None:
    """An authority of our own and a certificate for this machine, good for a day."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    authority = _name("qccf loopback authority")
    ca = (
        _certificate(authority, authority, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    addresses = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address(LOCALHOST)), x509.DNSName("localhost")]
    )
    server = (
        _certificate(_name("qccf loopback"), authority, server_key.public_key())
        .add_extension(addresses, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    _write_private(folder / "ca.crt", ca.public_bytes(pem))
    _write_private(folder / "server.pem", server.public_bytes(pem))
    _write_private(
        folder / "server.key",
        server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def make_node_key(folder: Path, name: str) -> Path:
    """A key pair for a SuperNode; returns the file of its public half."""
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
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _script(name: object) -> str:
    """Flower's programs are beside the interpreter, whatever the PATH says."""
    return str(Path(sys.executable).parent / str(name))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(subject: x509.Name, issuer: x509.Name, public_key: Any) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _write_private(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str | Path) else repr(value)
