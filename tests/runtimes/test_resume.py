"""A run that is killed and resumed ends bit for bit like one that was not, whatever the moment."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from qccf.core.errors import RunFolderError
from qccf.rounds import checkpoint
from qccf.rounds.run import Run
from qccf.runtimes.simulator import simulate
from tests.helpers.tiny import tiny_dataset, tiny_scenario

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
from pathlib import Path
from qccf.runtimes.simulator import simulate
from tests.helpers.tiny import tiny_dataset, tiny_scenario
pause = float(sys.argv[2])
simulate(tiny_scenario(f"codec.name={sys.argv[4]}"), sys.argv[3], out=Path(sys.argv[1]), dataset=tiny_dataset(),
         callbacks=[lambda progress: (print(len(progress.ledger), flush=True), time.sleep(pause))])
print("done", flush=True)
"""


def run_to_the_end(policy: str, out: Path | None = None, *overrides: str) -> Run:
    return simulate(tiny_scenario(*overrides), policy, out=out, dataset=tiny_dataset())


def assert_same(first: Run, second: Run) -> None:
    pd.testing.assert_frame_equal(first.rounds, second.rounds, check_exact=True)
    pd.testing.assert_frame_equal(first.clients, second.clients, check_exact=True)
    for name, column in first.statistics_columns.items():
        np.testing.assert_array_equal(column, second.statistics_columns[name], err_msg=name)
    assert first.weights.tobytes() == second.weights.tobytes()
    assert first.summary == second.summary


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "codec"), [("qccf", "update+block+entropy"), ("principle", "model")])
def test_killed_at_random_moments_and_resumed(policy: str, codec: str, tmp_path: Path) -> None:
    reference = run_to_the_end(policy, None, f"codec.name={codec}")
    chance = random.Random(policy)
    kills = 0
    for _ in range(40):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), "0.05", policy, codec],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        if first.strip() == "done":
            process.wait()
            process.stdout.close()
            break
        time.sleep(chance.uniform(0.0, 0.12))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        kills += 1
    assert kills >= 2
    assert_same(run_to_the_end(policy, tmp_path, f"codec.name={codec}"), reference)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_number_of_workers_changes_nothing(workers: int) -> None:
    assert_same(run_to_the_end("qccf", None, f"execution.workers={workers}"), run_to_the_end("qccf"))


def stopped_after(rounds: int, out: Path) -> None:
    class StopError(Exception):
        pass

    def stop(progress) -> None:
        if len(progress.ledger) == rounds:
            raise StopError

    with pytest.raises(StopError):
        simulate(tiny_scenario(), "qccf", out=out, dataset=tiny_dataset(), callbacks=[stop])


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "text"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    stopped_after(5, tmp_path)
    newest = sorted((tmp_path / "checkpoints").glob("*.npz"))[-1]
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 0xFF
    newest.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "flip": content, "text": b"hello"}[damage])
    complaints: list[str] = []
    run = simulate(tiny_scenario(), "qccf", out=tmp_path, dataset=tiny_dataset(), warn=complaints.append)
    assert len(complaints) == 1
    assert "round-000005.npz" in complaints[0]
    assert "is used instead" in complaints[0]
    assert_same(run, run_to_the_end("qccf"))


def test_a_checkpoint_of_another_config_is_refused(tmp_path: Path) -> None:
    stopped_after(4, tmp_path)
    complaints: list[str] = []
    changed = tiny_scenario("control.energy_weight=5.0")
    run = simulate(changed, "qccf", out=tmp_path, dataset=tiny_dataset(), warn=complaints.append)
    assert len(complaints) == 2
    assert "belongs to another config" in complaints[0]
    fresh = simulate(changed, "qccf", dataset=tiny_dataset())
    assert_same(run, fresh)


def test_only_the_last_checkpoints_are_kept_and_nothing_half_written(tmp_path: Path) -> None:
    run_to_the_end("qccf", tmp_path)
    names = sorted(os.listdir(tmp_path / "checkpoints"))
    assert names == ["round-000007.npz", "round-000008.npz"]
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoints", "clients.parquet", "rounds.parquet", "scenario.toml", "statistics.parquet", "summary.json",
    ]  # fmt: skip


def test_a_checkpoint_holds_everything(tmp_path: Path) -> None:
    run = run_to_the_end("qccf", tmp_path)
    from qccf.runtimes.simulator import run_fingerprint

    fingerprint = run_fingerprint(tiny_scenario(), tiny_dataset())
    found, complaints = checkpoint.latest(tmp_path / "checkpoints", fingerprint)
    assert complaints == []
    assert found is not None
    server, ledger = found
    assert server.round_index == 8
    np.testing.assert_array_equal(server.weights, run.weights)
    for name, columns in (("rounds", run.round_columns), ("clients", run.client_columns)):
        for column, values in ledger.tables()[name].items():
            np.testing.assert_array_equal(values, columns[column])


def test_checkpoints_may_be_rarer(tmp_path: Path) -> None:
    run_to_the_end("qccf", tmp_path, "execution.checkpoint_every=3")
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["round-000006.npz", "round-000008.npz"]


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_after_writing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "0.3", "qccf", "model"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    assert process.returncode == 0
    assert "done" in rest
    rounds = pd.read_parquet(tmp_path / "rounds.parquet")
    assert 2 <= len(rounds) < 8
    assert_same(run_to_the_end("qccf", tmp_path), run_to_the_end("qccf"))


def test_ctrl_c_during_the_final_test_loses_nothing(tmp_path: Path, monkeypatch) -> None:
    from qccf.runtimes.clients import Clients

    plain = Clients.evaluate

    def interrupted(self, weights, samples=None):
        if samples is None:
            raise KeyboardInterrupt
        return plain(self, weights, samples)

    monkeypatch.setattr(Clients, "evaluate", interrupted)
    run = run_to_the_end("qccf", tmp_path)
    assert not run.finished
    assert run.summary["test_accuracy"] == run.rounds["test_accuracy"].iloc[-1]
    assert len(pd.read_parquet(tmp_path / "rounds.parquet")) == 8
    monkeypatch.undo()
    assert_same(run_to_the_end("qccf", tmp_path), run_to_the_end("qccf"))


def test_parameters_are_counted_whatever_is_stated() -> None:
    assert_same(run_to_the_end("qccf", None, "learning.num_parameters=651"), run_to_the_end("qccf"))


def test_a_folder_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path, monkeypatch) -> None:
    run_to_the_end("qccf", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(checkpoint, "FORMAT", 3)
    with pytest.raises(RunFolderError, match=r"written by another version of qccf \(format 2, not 3\)"):
        run_to_the_end("qccf", tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_checkpoints_of_another_run_do_not_displace_this_ones(tmp_path: Path) -> None:
    run_to_the_end("qccf", tmp_path)
    run_to_the_end("qccf", tmp_path, "federation.rounds=3")
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["round-000002.npz", "round-000003.npz", "round-000007.npz", "round-000008.npz"]
