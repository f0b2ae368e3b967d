"""Limits of time and number, made small enough to be reached."""

import json
import socket
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from qccf.service.guard import HEADERS
from qccf.service.limits import Limits
from qccf.service.runs import run_name
from qccf.service.setup import Setup
from qccf.settings.loading import load_scenario
from tests.helpers.service import PATIENCE_S, served_app, written_rounds

EVENTS = {"accept": "text/event-stream"}


def test_each_limit_is_refused_with_its_status(tmp_path: Path) -> None:
    limits = replace(Limits(), body_s=0.05, streams=1, plan_s=0.5, sessions=1, body_bytes=2000)
    long = {"seeds": 50, "settings": {"federation.rounds": 1000}, "policies": ["qccf"]}
    with (
        served_app(Setup(tmp_path / "runs", limits=limits), tmp_path / "state") as address,
        httpx.Client(base_url=address, timeout=PATIENCE_S) as client,
    ):
        with connected(address) as slow:
            head = "POST /v1/decide HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            slow.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
        with client.stream("POST", "/v1/plan", json=long, headers=EVENTS) as first:
            lines = first.iter_lines()
            assert next(lines) == "event: started"
            second = client.post("/v1/plan", json=long, headers=EVENTS)
            assert second.status_code == 503
            assert second.headers["retry-after"] == "1"
            assert "1 streams of events are open" in second.json()["detail"]
            assert json.loads([line for line in lines if line.startswith("data")][-1][6:]) == {
                "detail": "The request took more than 0.5 s: ask for less."
            }
        assert client.post("/v1/plan", json=long).status_code == 504
        assert client.post("/v1/sessions", json={}).status_code == 201
        assert client.post("/v1/sessions", json={}).status_code == 429
        assert client.post("/v1/cell", json={"settings": {"x": "y" * 2000}}).status_code == 413
    assert threading.active_count() < 20


def test_streams_that_open_at_once_are_counted(begun_run: Path, tmp_path: Path) -> None:
    """The place is taken before the run is looked for, which takes a while."""
    limits = replace(Limits(), streams=3)
    opened: list[int] = []
    enough = threading.Event()

    def watch(address: str, name: str) -> None:
        with (
            httpx.Client(base_url=address, timeout=PATIENCE_S) as client,
            client.stream("GET", f"/v1/runs/{name}/events") as answer,
        ):
            opened.append(answer.status_code)
            if answer.status_code == 200:
                enough.wait(PATIENCE_S)

    with served_app(Setup(begun_run.parent, limits=limits), tmp_path / "state") as address:
        name = run_name(begun_run, begun_run.parent)
        threads = [threading.Thread(target=watch, args=(address, name)) for _ in range(12)]
        for one in threads:
            one.start()
        while len(opened) < 12:
            time.sleep(0.02)
        enough.set()
        for one in threads:
            one.join()
        assert sorted(opened) == [200] * 3 + [503] * 9
        unknown = [httpx.get(f"{address}/v1/runs/none/events", timeout=PATIENCE_S).status_code for _ in range(4)]
        assert unknown == [404] * 4, "a refused stream gives its place back"


@pytest.fixture
def begun_run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "begun"
    next(written_rounds(folder, load_scenario("femnist", {"federation.num_clients": 4, "federation.rounds": 3})))
    return folder


def test_connections_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qccf.service.connections.HEAD_S", PATIENCE_S)
    monkeypatch.setattr("qccf.service.connections.MOST_PER_ADDRESS", 3)
    with served_app(Setup(tmp_path / "runs"), tmp_path / "state") as address, ExitStack() as open_ones:
        for _ in range(3):
            open_ones.enter_context(connected(address))
        with connected(address) as more:
            refused = b"".join(iter(lambda: more.recv(10_000), b"")).decode()
    assert refused.startswith("HTTP/1.1 503 ")
    for name, value in HEADERS.items():
        assert f"{name}: {value}\r\n" in refused
    assert json.loads(refused.partition("\r\n\r\n")[2]) == {
        "detail": "3 connections are open, which is the limit: close some."
    }


def test_idle_connections_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sends nothing, one half a header, one half a header after an answer. The service closes all three."""
    monkeypatch.setattr("qccf.service.connections.HEAD_S", PATIENCE_S)
    monkeypatch.setattr("qccf.service.connections.MOST_PER_ADDRESS", 3)
    half = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-"
    with served_app(Setup(tmp_path / "runs"), tmp_path / "state") as address:
        with connected(address) as answered:
            answered.sendall(half + b"a: b\r\n\r\n")
            assert answered.recv(200_000).startswith(b"HTTP/1.1 200 ")
            monkeypatch.setattr("qccf.service.connections.HEAD_S", 0.2)
            with connected(address) as silent, connected(address) as slow:
                answered.sendall(half)
                slow.sendall(half)
                for one in (silent, slow, answered):
                    wait_until_closed(one)
        assert httpx.get(f"{address}/v1/options", timeout=PATIENCE_S).status_code == 200


def connected(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def wait_until_closed(connection: socket.socket) -> None:
    """Reads what is left of an answer until the service closes the connection."""
    with suppress(ConnectionError):  # a reset, if something was sent to a connection that was closed already
        while connection.recv(200_000):
            pass


def test_what_is_not_http_is_refused_in_the_same_form(tmp_path: Path) -> None:
    with served_app(Setup(tmp_path / "runs"), tmp_path / "state") as address:
        with connected(address) as odd:
            odd.sendall(b"\x16\x03\x01 hello\r\n\r\n")
            refused = b"".join(iter(lambda: odd.recv(10_000), b"")).decode()
        assert refused.startswith("HTTP/1.1 400 ")
        assert "x-content-type-options: nosniff\r\n" in refused


def test_an_answer_that_takes_longer_than_a_header_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qccf.service.connections.HEAD_S", 0.2)
    body = {"seeds": 1, "settings": {"federation.rounds": 200}, "policies": ["qccf"]}
    with served_app(Setup(tmp_path / "runs"), tmp_path / "state") as address:
        assert httpx.post(f"{address}/v1/plan", json=body, timeout=PATIENCE_S).status_code == 200
