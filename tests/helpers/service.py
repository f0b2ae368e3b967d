"""The service in a process of its own, on any free port."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np
import uvicorn

from qccf.rounds import checkpoint
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import close_round, first_state, open_round
from qccf.rounds.run import Run, finished_run
from qccf.rounds.run_folder import CHECKPOINTS, begin_run
from qccf.rounds.sources import statistics_source
from qccf.rounds.world import build_world
from qccf.runtimes.planner import planned_rules
from qccf.service.app import create_app
from qccf.service.connections import uvicorn_config
from qccf.service.setup import Setup
from qccf.settings.loading import Scenario

PATIENCE_S = 120.0
"""Longer than any answer takes on a busy machine; nothing waits for it to pass."""


@dataclass(frozen=True)
class Running:
    """A service: its address, a client for it, and its process."""

    address: str
    client: httpx.Client
    process: subprocess.Popen[str]
    runs: Path


@contextmanager
def running_service(runs: Path, *arguments: str, token: str | None = None) -> Iterator[Running]:
    """Start `qccf serve`; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "qccf", "serve", "--port", "0", "--workers", "1", "--runs", str(runs), *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=runs.parent, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"(http://[\w.:\[\]]+)/", process.stdout.readline())
    try:
        assert found is not None, "the service did not start"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        address = found[1].replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=address, timeout=PATIENCE_S, headers=headers) as client:
            yield Running(address, client, process, runs)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        process.stdout.close()
        process.wait()


@contextmanager
def served_app(setup: Setup, state: Path) -> Iterator[str]:
    """The address of the application in a thread of this process, for limits that the command line does not change."""
    listening = socket.create_server(("127.0.0.1", 0))
    hosts = frozenset({"127.0.0.1"})
    app = create_app(setup, state=state, hosts=hosts, workers=1)
    server = uvicorn.Server(uvicorn_config(app, graceful_s=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def written_rounds(folder: Path, scenario: Scenario) -> Iterator[Run]:
    """A run that writes its folder like a training run, one round at a time, but trains nothing."""
    world, rules = build_world(scenario, scenario.federation.seed), planned_rules(scenario)
    source, ledger = statistics_source(scenario, world.dataset_sizes), Ledger()
    begin_run(folder, scenario)
    state = first_state(rules, source)
    for number in range(scenario.federation.rounds):
        opened = open_round(state, rules, world.observe(number, state.statistics))
        learned = 1.0 - 0.8**number
        state = close_round(
            state, rules, opened, source.uploads(state, opened), ledger, lambda *_, one=learned: (one, 1.0)
        )
        held = replace(state, weights=np.zeros(1, dtype=np.float32))
        checkpoint.save(folder / CHECKPOINTS, held, ledger, "a fingerprint")
        yield finished_run(scenario, ledger, accuracy=learned)
