"""Sweeps on real Ray clusters: one of this machine, and one of two nodes, one of which is killed on the way."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.helpers.batch_jobs import PATIENCE_S, wait_for

pytest.importorskip("ray", reason="ray is not installed: pip install 'qccf[ray]'")
pytestmark = pytest.mark.deployment

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "PYTHONUNBUFFERED": "1",
}

TRIES = 3
"""Ray gives a node half a minute to start, which is not enough on such a machine."""


class Node:
    """One node of a cluster in a session of its own, as on a machine of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", *arguments]
        shown = ""
        for _ in range(TRIES):
            self.process = subprocess.Popen(
                command,
                env=ENVIRONMENT,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            started = False
            try:
                for line in self.process.stdout:
                    shown += line
                    if started := "Ray runtime started" in line:
                        return
            finally:  # whoever gives up waiting must not leave it behind
                if not started:
                    self.kill()
        raise AssertionError(shown)

    def kill(self) -> None:
        """As when the power fails; a second time does nothing."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(stat.read_text().rpartition(")")[2].split()[3]) == self.process.pid:
                    os.kill(int(stat.parent.name), signal.SIGKILL)
            except OSError:
                continue
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def cluster() -> Iterator[tuple[str, Node, Node]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    nodes: list[Node] = []
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as folder:  # short: it holds sockets
        options = ["--node-ip-address=127.0.0.1", "--object-store-memory=100000000"]
        try:
            head = ["--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false"]
            nodes.append(Node(*head, *options))
            nodes.append(Node(f"--address={address}", *options))
            yield address, nodes[0], nodes[1]
        finally:
            for node in reversed(nodes):
                node.kill()


def write_sweep(path: Path, marks: Path) -> Path:
    path.write_text(
        f"""
        scenario = "quick"
        kind = "plan"
        [settings]
        federation.rounds = 3
        policy.name = "tests.helpers.slow_policy:Slow"
        policy.options.folder = "{marks}"
        [grid]
        control.energy_weight = [1, 2, 4]
        seed = [0, 1]
        """
    )
    return path


def sweep(file: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "qccf", "sweep", str(file), "--out", str(out), *more]
    return subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finished(process: "subprocess.Popen[str]") -> str:
    shown, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, shown
    assert "Traceback" not in shown
    return shown


@pytest.mark.long
def test_a_node_dies_and_every_run_is_there_once(tmp_path: Path, cluster) -> None:
    address, _, second = cluster
    file = write_sweep(tmp_path / "grid.toml", tmp_path)
    running = sweep(file, tmp_path / "ray", "--engine", "ray", "--address", address)
    try:
        wait_for((tmp_path / f"session-{second.process.pid}").exists, "a run on the second node")
        second.kill()
        shown = finished(running)
    finally:
        running.kill()
        running.communicate()
    assert "will be retried: the node that ran it was lost." in shown
    assert "6 done, 0 running, 0 left" in shown
    expected = finished(sweep(file, tmp_path / "local", "--jobs", "3"))
    assert "6 done, 0 running, 0 left" in expected
    for table in ("results.parquet", "rounds.parquet"):
        one, other = (pd.read_parquet(tmp_path / engine / table) for engine in ("ray", "local"))
        pd.testing.assert_frame_equal(one, other)
    assert pd.read_parquet(tmp_path / "ray" / "results.parquet")["run"].nunique() == 6
    assert len(list((tmp_path / "ray" / "runs").iterdir())) == 6, "nothing else is left there"


def test_the_example_on_a_cluster_of_this_machine(tmp_path: Path) -> None:
    example = ROOT / "examples" / "sweep.toml"
    assert "48 done, 0 running, 0 left" in finished(sweep(example, tmp_path / "ray", "--engine", "ray"))
    results = pd.read_parquet(tmp_path / "ray" / "results.parquet")
    assert results["run"].nunique() == 48
    assert (results["energy_j"] > 0).all()
