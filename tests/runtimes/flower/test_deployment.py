"""A real federation on loopback: a SuperLink with TLS, SuperNodes with keys, and the failures of each of them.

All tests share one SuperLink and two SuperNodes. Each message starts a process on its node, so tests run few rounds.
"""

import json
import re
import time
import tomllib
from collections.abc import Callable
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from flwr.app import Context, RecordDict

from qccf.devices.profiles.registry import find_profile
from qccf.quantization.wire import HEADER_BYTES
from qccf.rounds.ledger import MEASURED
from qccf.rounds.world import build_world
from qccf.runtimes.flower.loopback import Loopback, make_node_key
from qccf.settings.loading import load_scenario
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.proxy import CountingProxy

pytestmark = pytest.mark.deployment

APP = Path(__file__).parents[2] / "helpers" / "fab"
ENOUGH_S = 600.0
"""Limit of every wait. On a busy machine nodes need minutes to reconnect, because their retries become rarer."""
SETTINGS = "radio.bandwidth_hz=1e6 device.cycles_per_sample=1e4 control.energy_weight=1"
MOST_OVERHEAD_BYTES = 30_000
"""Limit of the bytes per reply beyond its payload: Flower's messages, HTTP, TLS, polling and heartbeats."""
LINK_BPS = 64_000.0


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory):
    with Loopback(tmp_path_factory.mktemp("federation"), 2, app=APP) as running:
        yield running


def wait_until(federation: Loopback, reached: Callable[[], object]) -> None:
    """Wait for an event of the run, and fail at once if the run ends before."""
    end = time.monotonic() + ENOUGH_S
    while not reached():
        assert time.monotonic() < end, federation.log_text("run")
        assert federation.processes["run"].poll() is None, federation.log_text("run")
        time.sleep(0.1)


def finish(federation: Loopback, out: Path) -> pd.DataFrame:
    federation.processes["run"].wait(ENOUGH_S)
    assert (out / "summary.json").exists(), federation.log_text("run")
    return pd.read_parquet(out / "clients.parquet")


def test_a_run_with_a_corrupt_upload_and_a_node_that_dies(federation: Loopback, tmp_path: Path) -> None:
    """Client 1 corrupts its upload of round 1. In round 2 its node is killed and replaced by one with another key.

    Client 0 waits in round 2 until the new node is online and in round 3 until it has answered, so that the new node
    works in round 4. It states a device of its own, a file that the server does not read.
    """
    gateway = find_profile("paper").to_dict() | {"cycles_per_sample": 2e4, "energy_coefficient": 3e-27}
    (tmp_path / "gateway.toml").write_text(tomli_w.dumps(gateway))
    faults = {"corrupt": "1:0", "hang": "1:1", "wait": "0:1 0:2", "events": tmp_path}
    federation.run({"rounds": 4, "out": tmp_path / "run", "settings": SETTINGS, "timeout": ENOUGH_S, **faults})
    wait_until(federation, (tmp_path / "hangs").exists)
    federation.stop("node1", hard=True)
    federation.unregister(1)
    federation.register(1)
    federation.start_node(1, profile=tmp_path / "gateway.toml")
    wait_until(federation, lambda: "SuperNode ID" in federation.log_text("node1"))
    (tmp_path / "round-1").touch()
    wait_until(federation, lambda: "Sent successfully" in federation.log_text("node1"))
    (tmp_path / "round-2").touch()
    clients = finish(federation, tmp_path / "run")
    log = federation.log_text("run")
    assert re.search(r"WARNING.*\(client 1\) is rejected: the payload's checksum", log)
    assert re.search(r"WARNING.*\(client 1\) is rejected: the client failed .*Unavailable", log)
    assert re.search(r"WARNING.*client 1 sent no usable upload in round 2 and counts as missed", log)
    table = {name: clients.pivot(index="round", columns="client", values=name) for name in ("arrived", "missed")}
    assert table["arrived"][0].tolist() == [True, True, True, True]
    assert table["arrived"][1].tolist() == [False, False, False, True]
    assert table["missed"][1].tolist() == [True, True, False, False]
    devices = clients.pivot(index="round", columns="client", values="device")
    assert devices[0].tolist() == ["paper"] * 4
    assert devices[1][3] == "gateway"
    last = clients[(clients.client == 1) & (clients["round"] == 3)].iloc[0]
    assert last.compute_energy_j == pytest.approx(3e-27 * 2 * 2e4 * 110 * last.frequency_hz**2)


def test_an_unregistered_node_is_refused(federation: Loopback, tmp_path: Path) -> None:
    """A node with a key that is not registered, and a node without a key."""
    make_node_key(tmp_path, "unknown")
    federation.start_node(8, key=tmp_path / "unknown")
    federation.start_node(9, keyless=True)
    for name, reason in (("node8", "Failed to activate"), ("node9", "SuperNode authentication is enabled")):
        assert federation.processes[name].wait(ENOUGH_S) != 0
        assert "305" in federation.log_text(name)
        assert reason in federation.log_text(name)


@pytest.mark.long
def test_a_killed_server_resumes_from_its_checkpoint(
    federation: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result equals that of the same federation in one process without the interruption."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    # Client 0 waits in round 2 until the server is dead.
    config = {"rounds": 2, "out": killed, "settings": SETTINGS, "timeout": ENOUGH_S, "wait": "0:1", "events": tmp_path}
    federation.run(config)
    wait_until(federation, (killed / "checkpoints" / "round-000001.npz").exists)
    federation.stop("run", hard=True)
    federation.stop("link", hard=True)
    assert not (killed / "summary.json").exists()
    (tmp_path / "round-1").touch()
    federation.start_link()
    federation.run(config)
    resumed = finish(federation, killed)
    assert "resuming after round 1" in federation.log_text("run")

    monkeypatch.syspath_prepend(str(APP))
    from mischief.app import client, server

    defaults = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    undisturbed = {**defaults, **config, "out": str(whole)}
    grid = LoopGrid(client, range(2), undisturbed, node_configs=federation.node_configs)
    server(grid, Context(1, 0, {}, RecordDict(), undisturbed))
    expected = pd.read_parquet(whole / "clients.parquet")
    clock = list(MEASURED)  # seconds are not the same twice
    pd.testing.assert_frame_equal(resumed.drop(columns=clock), expected.drop(columns=clock))
    last = [np.load(out / "checkpoints" / "round-000002.npz")["weights"] for out in (whole, killed)]
    np.testing.assert_array_equal(*last)


@pytest.mark.long
def test_the_rate_of_a_throttled_upload_over_a_slow_link_is_measured(federation: Loopback, tmp_path: Path) -> None:
    """Both clients are throttled to their simulated rates, and node 0 is behind a link of 64 kbit/s.

    The server measures both within a quarter. A busy machine may spoil a measurement but not three of them. The bytes
    on the link are the payload with its header, and a limited overhead per reply.
    """
    with CountingProxy(federation.port, bytes_per_s=LINK_BPS / 8.0) as proxy:
        federation.stop("node0")
        federation.start_node(0, port=proxy.port)
        errors = np.full(2, np.inf)
        for out in (tmp_path / str(attempt) for attempt in range(3)):
            sent_before = proxy.sent
            clients, measured_bps = one_round_of_long_uploads(federation, out)
            sent = proxy.sent - sent_before
            cell = build_world(load_scenario(out / "scenario.toml"), 0).cell
            simulated_bps = cell.round_rates_bps(0)[[0, 1], clients.channel]
            assert (clients.payload_bits / simulated_bps > 5.0).all(), "the uploads are long enough to be measured"
            true_bps = 1.0 / (1.0 / simulated_bps + [1.0 / LINK_BPS, 0.0])
            errors = np.minimum(errors, np.abs(measured_bps / true_bps - 1.0))
            print(f"measured {measured_bps.round()} of {true_bps.round()} bit/s")
            if errors.max() < 0.25:
                break
        federation.stop("node0")  # it signs off through the proxy
    assert errors.max() < 0.25
    payload_bytes = ceil(clients.payload_bits[0] / 8) + HEADER_BYTES
    overhead_bytes = (sent - payload_bytes) / 3  # the replies to "hello", "probe" and "train"
    print(f"{payload_bytes} bytes of payload, {overhead_bytes:.0f} further bytes per reply")
    assert 0 < overhead_bytes < MOST_OVERHEAD_BYTES


def one_round_of_long_uploads(federation: Loopback, out: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """The clients' rows of one round, and the rates that the server measured in it."""
    slow = "radio.bandwidth_hz=2000 radio.gain_db=10 device.deadline_s=10 device.cycles_per_sample=1e4"
    settings = f"{slow} policy.name=channel-allocate"
    federation.run(
        {"rounds": 1, "out": out, "settings": settings, "throttle": True, "rates": "measured", "timeout": ENOUGH_S}
    )
    clients = finish(federation, out).set_index("client")
    header = json.loads(np.load(out / "checkpoints" / "round-000001.npz")["header"].tobytes())
    return clients, np.array(header["policy_state"]["rates"]["rates_bps"])
