"""A real federation on loopback: a SuperLink with TLS, SuperNodes with keys, and all that goes wrong with them."""

import re
import time
import tomllib
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict

from qccf.quantization.wire import HEADER_BYTES
from qccf.rounds.world import build_world
from qccf.runtimes.flower.loopback import Loopback, make_node_key
from qccf.settings.loading import load_scenario
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.proxy import CountingProxy

pytestmark = pytest.mark.deployment

APP = Path(__file__).parents[2] / "helpers" / "fab"
ENOUGH_S = 600.0
"""On a busy machine nodes take minutes to find a SuperLink that was away: they try again less and less often."""
SETTINGS = "radio.bandwidth_hz=1e6 device.cycles_per_sample=1e4 control.energy_weight=1"
MOST_OVERHEAD_BYTES = 30_000
"""Of a reply, beyond its payload: Flower's messages, HTTP, TLS, and the polling and heartbeats in between."""


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory):
    with Loopback(tmp_path_factory.mktemp("federation"), 3, app=APP) as running:
        yield running


def until(federation: Loopback, reached) -> None:
    end = time.monotonic() + ENOUGH_S
    while not reached():
        assert time.monotonic() < end, federation.told("run")
        assert federation.processes["run"].poll() is None, federation.told("run")
        time.sleep(0.2)


def come_back(federation: Loopback, number: int) -> bool:
    """A SuperLink refuses a node that it still believes to be there, for a minute after its last heartbeat."""
    federation.start_node(number)
    process = federation.processes[f"node{number}"]
    end = time.monotonic() + 30.0
    while process.poll() is None and time.monotonic() < end and "SuperNode ID" not in federation.told(f"node{number}"):
        time.sleep(0.2)
    refused = "Exit Code: 305" in federation.told(f"node{number}")
    if refused:
        federation.stop(f"node{number}", hard=True)
        time.sleep(5.0)
    return not refused


def finish(federation: Loopback, out: Path) -> pd.DataFrame:
    federation.processes["run"].wait(ENOUGH_S)
    assert (out / "summary.json").exists(), federation.told("run")
    return pd.read_parquet(out / "clients.parquet")


def attempts(folder: Path) -> list[Path]:
    """Folders for measurements of time: a busy machine may spoil some of them, an error in the method spoils all."""
    return [folder / str(number) for number in range(3)]


def two_rounds(federation: Loopback, out: Path, *, throttle: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two rounds of long uploads; the second has the rates that were measured in the first."""
    deadline_s = 60 if throttle else 120
    slow = f"radio.bandwidth_hz=1000 radio.gain_db=10 device.deadline_s={deadline_s} device.cycles_per_sample=1e4"
    config = {"rounds": 2, "out": out, "throttle": throttle, "rates": "measured", "timeout": 200.0}
    federation.run({**config, "settings": f"{slow} policy.name=channel-allocate"})
    clients = finish(federation, out)
    first, second = (clients[clients["round"] == n].set_index("client") for n in (0, 1))
    return first, second


def test_a_run_with_a_corrupt_upload_and_a_node_that_dies(federation: Loopback, tmp_path: Path) -> None:
    """Client 1 corrupts round 2. Client 2 hangs in round 3, and its node is killed; later it comes back.

    Client 0 takes its time in round 5 until then, so that the others do not finish before."""
    back = tmp_path / "node 2 is back"
    wrong = {"corrupt": "1:1", "hang": "2:2", "linger": "0:4", "until": back}
    config = {"rounds": 10, "out": tmp_path, "settings": SETTINGS, "timeout": 120.0, **wrong}
    federation.run(config)
    until(federation, lambda: "[ROUND 3/10]" in federation.told("run"))
    began = time.monotonic()
    time.sleep(5.0)
    federation.stop("node2", hard=True)
    until(federation, lambda: "[ROUND 4/10]" in federation.told("run"))
    assert time.monotonic() - began < config["timeout"] + 15.0, "the round ends within its time limit"
    until(federation, lambda: come_back(federation, 2))
    back.touch()
    clients = finish(federation, tmp_path)
    told = federation.told("run")
    assert re.search(r"WARNING.*\(client 1\) is rejected: the payload's checksum", told)
    assert re.search(r"WARNING.*client 2 sent nothing usable in round 3 and counts as missed", told)
    missed = clients.pivot(index="round", columns="client", values="missed").to_numpy()
    arrived = clients.pivot(index="round", columns="client", values="arrived").to_numpy()
    assert missed.sum() == 2
    assert missed[1, 1]
    assert missed[2, 2]
    assert arrived[:, 0].all(), "the others go on"
    assert not arrived[3, 2]
    assert arrived[5:, 2].any(), "the node that came back works again"


@pytest.mark.parametrize(
    ("keyless", "reason"), [(False, "Failed to activate"), (True, "SuperNode authentication is enabled")]
)
def test_an_unregistered_node_is_refused(federation: Loopback, tmp_path: Path, keyless: bool, reason: str) -> None:
    """One with a key that nobody has registered, and one that brings none."""
    make_node_key(tmp_path, "stranger")
    federation.start_node(9, key=tmp_path / "stranger", keyless=keyless)
    stranger = federation.processes["node9"]
    assert stranger.wait(ENOUGH_S) != 0
    assert "305" in federation.told("node9")
    assert reason in federation.told("node9")


def test_a_server_that_is_killed_goes_on_from_its_checkpoint(
    federation: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it ends with is what the same federation comes to in one process, undisturbed."""
    config = {"rounds": 3, "out": tmp_path / "killed", "settings": SETTINGS, "timeout": 120.0}
    federation.run(config)
    until(federation, lambda: list((tmp_path / "killed").glob("checkpoints/round-000001.npz")))
    federation.stop("run", hard=True)
    federation.stop("link", hard=True)
    assert not (tmp_path / "killed" / "summary.json").exists()
    federation.start_link()
    federation.run(config)
    resumed = finish(federation, tmp_path / "killed")
    assert re.search(r"going on after round [12]", federation.told("run"))

    monkeypatch.syspath_prepend(str(APP))
    from mischief.app import client, server

    defaults = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    undisturbed = {**defaults, **config, "out": str(tmp_path / "whole")}
    server(LoopGrid(client, range(3), undisturbed), Context(1, 0, {}, RecordDict(), undisturbed))
    pd.testing.assert_frame_equal(resumed, pd.read_parquet(tmp_path / "whole" / "clients.parquet"))
    last = [np.load(tmp_path / name / "checkpoints" / "round-000003.npz")["weights"] for name in ("whole", "killed")]
    np.testing.assert_array_equal(*last)


def test_the_rate_of_a_real_link_is_measured(federation: Loopback, tmp_path: Path) -> None:
    """Node 0 is behind a link of 64 kbit/s; nobody is throttled by us."""
    proxy = CountingProxy(federation.port, bytes_per_s=8000.0)
    federation.stop("node0")
    federation.start_node(0, port=proxy.port)
    error, fast_bps = np.inf, 0.0
    for out in attempts(tmp_path):
        _, second = two_rounds(federation, out, throttle=False)
        print(f"measured {second.rate_bps[0]:.0f} of 64000 bit/s")
        error = min(error, abs(second.rate_bps[0] / 64e3 - 1.0))
        fast_bps = max(fast_bps, second.rate_bps[[1, 2]].min())
        if error < 0.25 and fast_bps > 128e3:
            break
    assert error < 0.25
    assert fast_bps > 128e3, "the others' links are not slow"
    proxy.close()


def test_throttled_uploads_take_their_time_and_are_as_large_as_counted(federation: Loopback, tmp_path: Path) -> None:
    """Rates that the server measures, with uploads throttled to the simulated ones, agree with these within a tenth.
    Bytes on the wire of one node are its payloads with their headers, and a stated overhead a reply."""
    proxy = CountingProxy(federation.port)
    federation.stop("node0")
    federation.start_node(0, port=proxy.port)
    errors: dict[int, float] = {}
    for out in attempts(tmp_path):
        sent_before = proxy.sent
        first, second = two_rounds(federation, out, throttle=True)
        sent = proxy.sent - sent_before
        cell = build_world(load_scenario(out / "scenario.toml"), 0).cell
        for client in first.index[first.arrived]:
            simulated_bps = cell.round_rates_bps(0)[client, first.channel[client]]
            assert first.payload_bits[client] / simulated_bps > 10.0
            error = second.rate_bps[client] / simulated_bps - 1.0
            errors[client] = min(errors.get(client, np.inf), abs(error))
        if len(errors) >= 2 and max(errors.values()) < 0.1:
            break
    assert len(errors) >= 2
    assert max(errors.values()) < 0.1
    uploads = [rows.payload_bits[0] for rows in (first, second) if rows.arrived[0]]
    payload = sum(ceil(bits / 8) + HEADER_BYTES for bits in uploads)
    overhead = (sent - payload) / (2 + len(uploads))  # who it is, what it measured, and its uploads
    print(f"{payload / len(uploads):.0f} bytes a payload, {overhead:.0f} bytes a reply beyond it")
    assert 0 < overhead < MOST_OVERHEAD_BYTES
    proxy.close()
