"""Limits of time and number, made small enough to be reached."""

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import httpx

from qccf.service.limits import Limits
from qccf.service.setup import Setup
from tests.helpers.service import PATIENCE_S, served_app

EVENTS = {"accept": "text/event-stream"}


def test_each_limit_is_refused_with_its_status(tmp_path: Path) -> None:
    limits = replace(Limits(), body_s=0.05, streams=1, plan_s=0.5, sessions=1, body_bytes=2000)
    long = {"seeds": 50, "settings": {"federation.rounds": 1000}, "policies": ["qccf"]}
    with (
        served_app(Setup(tmp_path / "runs", limits=limits), tmp_path / "state") as address,
        httpx.Client(base_url=address, timeout=PATIENCE_S) as client,
    ):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            head = f"POST /v1/decide HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
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
