"""A real federation on loopback: a SuperLink with TLS, SuperNodes with keys, and all that goes wrong with them."""

import re
import time
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from qccf.config import load_scenario
from qccf.flower.loopback import Loopback, make_node_key
from qccf.quantization.wire import HEADER_BYTES
from qccf.world import build_world
from tests.flower.proxy import CountingProxy

APP = Path(__file__).parent / "fab"
ENOUGH_S = 240.0
SETTINGS = "radio.bandwidth_hz=1e6 device.cycles_per_sample=1e4 control.energy_weight=1"
MOST_OVERHEAD_BYTES = 30_000
"""Of a reply, beyond its payload: Flower's messages, HTTP, TLS, and the polling and heartbeats in between."""
REPLIES = 4
"""Of a node in a run of two rounds: who it is, what it measured, two uploads."""


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


def test_a_run_with_a_corrupt_upload_and_a_node_that_dies(federation: Loopback, tmp_path: Path) -> None:
    """Client 1 corrupts round 2. Client 2 hangs in round 3, and its node is killed; later it comes back."""
    config = {"rounds": 12, "out": tmp_path, "settings": SETTINGS, "timeout": 25.0, "corrupt": "1:1", "hang": "2:2"}
    federation.run(config)
    until(federation, lambda: "[ROUND 3/12]" in federation.told("run"))
    time.sleep(5.0)
    federation.stop("node2", hard=True)
    until(federation, lambda: come_back(federation, 2))
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
    assert arrived[11, 2], "the node that came back works again"


def test_an_unregistered_node_is_refused(federation: Loopback, tmp_path: Path) -> None:
    make_node_key(tmp_path, "stranger")
    federation.start_node(9, key=tmp_path / "stranger")
    stranger = federation.processes["node9"]
    assert stranger.wait(ENOUGH_S) != 0
    assert "305" in federation.told("node9")


def test_a_server_that_is_killed_goes_on_from_its_checkpoint(federation: Loopback, tmp_path: Path) -> None:
    config = {"rounds": 3, "settings": SETTINGS, "timeout": 120.0}
    federation.run({**config, "out": tmp_path / "whole"})
    whole = finish(federation, tmp_path / "whole")
    federation.run({**config, "out": tmp_path / "killed"})
    until(federation, lambda: list((tmp_path / "killed").glob("checkpoints/round-000001.npz")))
    federation.stop("run", hard=True)
    federation.stop("link", hard=True)
    assert not (tmp_path / "killed" / "summary.json").exists()
    federation.start_link()
    federation.run({**config, "out": tmp_path / "killed"})
    resumed = finish(federation, tmp_path / "killed")
    assert re.search(r"going on after round [12]", federation.told("run"))
    pd.testing.assert_frame_equal(resumed, whole)
    last = [np.load(tmp_path / name / "checkpoints" / "round-000003.npz")["weights"] for name in ("whole", "killed")]
    np.testing.assert_array_equal(*last)


def test_what_is_sent_is_what_was_counted(federation: Loopback, tmp_path: Path) -> None:
    """Bytes on the wire of one node: its payloads with their headers, and a stated overhead each."""
    proxy = CountingProxy(federation.port)
    federation.stop("node0")
    federation.start_node(0, port=proxy.port)
    sent = []
    for name, settings in (("few", "codec.name=update+entropy"), ("many", "policy.name=no-quantization")):
        before = proxy.sent
        federation.run({"rounds": 2, "out": tmp_path / name, "settings": f"{SETTINGS} {settings}", "timeout": 120.0})
        clients = finish(federation, tmp_path / name).query("client == 0 and arrived")
        assert len(clients) == 2
        raw = name == "many"
        payload = sum(ceil(bits / 8) + (0 if raw else HEADER_BYTES) for bits in clients.payload_bits)
        overhead = (proxy.sent - before - payload) / REPLIES
        sent.append((payload / 2, overhead))
        print(f"{name}: {payload / 2:.0f} bytes a payload, {overhead:.0f} bytes a reply beyond it")
        assert 0 < overhead < MOST_OVERHEAD_BYTES
    assert sent[1][0] > 4 * sent[0][0]
    proxy.close()


def test_throttled_uploads_take_their_time(federation: Loopback, tmp_path: Path) -> None:
    """Rates that the server measures, with uploads throttled to the simulated ones, agree with these within a tenth."""
    slow = "radio.bandwidth_hz=1000 radio.gain_db=10 device.deadline_s=60 device.cycles_per_sample=1e4"
    config = {"rounds": 2, "out": tmp_path, "throttle": True, "rates": "measured", "timeout": 200.0}
    federation.run({**config, "settings": f"{slow} policy.name=channel-allocate"})
    clients = finish(federation, tmp_path)
    scenario = load_scenario(tmp_path / "scenario.toml")
    cell = build_world(scenario, 0).cell
    first, second = (clients[clients["round"] == n].set_index("client") for n in (0, 1))
    for client in first.index[first.arrived]:
        simulated_bps = cell.round_rates_bps(0)[client, first.channel[client]]
        assert first.payload_bits[client] / simulated_bps > 5.0
        assert second.rate_bps[client] == pytest.approx(simulated_bps, rel=0.1)
    assert first.arrived.sum() >= 2
