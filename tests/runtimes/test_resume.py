"""A run that is killed and resumed ends bit for bit like one that was not, whatever the moment."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from qccf.core.errors import CheckpointError, QccfError, RunFolderError
from qccf.policies.qccf import Qccf
from qccf.rounds import checkpoint
from qccf.rounds.packed_table import PackedTable
from qccf.rounds.run import Run
from qccf.rounds.run_folder import is_finished, read_run
from qccf.runtimes.simulator import run_fingerprint, simulate
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
@pytest.mark.parametrize(
    ("policy", "codec"),
    [("qccf", "update+block+entropy"), pytest.param("principle", "model", marks=pytest.mark.long)],
)
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


@pytest.mark.parametrize("optimizer", [("fedavgm",), ("fedavgm", "learning.decay=0.7"), ("fedadam",), ("fedyogi",)])
def test_a_server_optimizer_resumes_with_its_state(optimizer: tuple[str, ...], tmp_path: Path) -> None:
    settings = (f"server.optimizer={optimizer[0]}", *optimizer[1:], "learning.batch_size=7")
    stopped_after(4, tmp_path, *settings)
    resumed = run_to_the_end("qccf", tmp_path, *settings)
    assert_same(resumed, run_to_the_end("qccf", None, *settings))


@pytest.mark.parametrize(
    "settings",
    [
        ("attack.kind=noise", "attack.noise.scale=50", "attack.clients=2", "radio.num_channels=2"),
        ("aggregation.rule=multi-krum", "attack.kind=sign-flip"),
        ("privacy.clip_norm=0.5", "privacy.noise_multiplier=0.1"),
    ],
)
def test_aggregation_attacks_and_privacy_resume(settings: tuple[str, ...], tmp_path: Path) -> None:
    stopped_after(4, tmp_path, *settings)
    resumed = run_to_the_end("qccf", tmp_path, *settings)
    whole = run_to_the_end("qccf", None, *settings)
    assert_same(resumed, whole)
    assert resumed.summary.get("privacy") == whole.summary.get("privacy")
    np.testing.assert_array_equal(resumed.clients["kept"], whole.clients["kept"])


def stopped_after(rounds: int, out: Path, *overrides: str) -> None:
    class StopError(Exception):
        pass

    def stop(progress) -> None:
        if len(progress.ledger) == rounds:
            raise StopError

    with pytest.raises(StopError):
        simulate(tiny_scenario(*overrides), "qccf", out=out, dataset=tiny_dataset(), callbacks=[stop])


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "text"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    stopped_after(5, tmp_path)
    newest = sorted((tmp_path / "checkpoints").glob("*.npz"))[-1]
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        with np.load(newest) as arrays:
            content[content.index(arrays["weights"].tobytes()[:64])] ^= 0xFF
    newest.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "flip": content, "text": b"hello"}[damage])
    complaints: list[str] = []
    run = simulate(tiny_scenario(), "qccf", out=tmp_path, dataset=tiny_dataset(), warn=complaints.append)
    assert len(complaints) == 1
    assert "round-000005.npz" in complaints[0]
    assert "is used instead" in complaints[0]
    assert_same(run, run_to_the_end("qccf"))


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_another_run_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    stopped_after(4, tmp_path)
    before = files_in(tmp_path)
    with pytest.raises(RunFolderError, match=r"control.energy_weight = 1.0 there, 5.0 here.*--force"):
        run_to_the_end("qccf", tmp_path, "control.energy_weight=5.0")
    assert files_in(tmp_path) == before


def test_checkpoints_of_another_run_are_no_reason_to_start_again(tmp_path: Path) -> None:
    """The settings are gone, or the data have changed: only the checkpoints tell."""
    stopped_after(4, tmp_path)
    with pytest.raises(RunFolderError, match="other settings, other data, another version"):
        simulate(tiny_scenario(), "qccf", out=tmp_path, dataset=tiny_dataset(seed=1))
    (tmp_path / "scenario.toml").unlink()
    with pytest.raises(RunFolderError, match="other settings, other data, another version"):
        run_to_the_end("qccf", tmp_path, "control.energy_weight=5.0")


def test_stale_checkpoints_of_a_longer_run_never_win(tmp_path: Path) -> None:
    run_to_the_end("qccf", tmp_path / "long")
    (tmp_path / "short").mkdir()
    (tmp_path / "long" / "checkpoints").rename(tmp_path / "short" / "checkpoints")
    fingerprint = run_fingerprint(tiny_scenario("federation.rounds=3"), tiny_dataset())
    assert checkpoint.holds_foreign(tmp_path / "short" / "checkpoints", fingerprint)
    complaints: list[str] = []
    short = {"out": tmp_path / "short", "dataset": tiny_dataset(), "warn": complaints.append}
    own = simulate(tiny_scenario("federation.rounds=3"), "qccf", out=tmp_path / "own", dataset=tiny_dataset())
    for path in (tmp_path / "own" / "checkpoints").iterdir():
        path.rename(tmp_path / "short" / "checkpoints" / path.name)
    assert_same(simulate(tiny_scenario("federation.rounds=3"), "qccf", **short), own)
    assert complaints == []


def test_only_the_last_checkpoints_are_kept_and_nothing_half_written(tmp_path: Path) -> None:
    run_to_the_end("qccf", tmp_path)
    names = sorted(os.listdir(tmp_path / "checkpoints"))
    assert names == ["round-000007.npz", "round-000008.npz"]
    assert sorted(os.listdir(tmp_path)) == [
        ".lock", "checkpoints", "clients.parquet", "rounds.parquet", "scenario.toml", "statistics.parquet",
        "summary.json",
    ]  # fmt: skip


def test_a_checkpoint_holds_everything(tmp_path: Path) -> None:
    run = run_to_the_end("qccf", tmp_path)
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
    before = files_in(tmp_path)
    now = checkpoint.FORMAT
    monkeypatch.setattr(checkpoint, "FORMAT", now + 1)
    with pytest.raises(RunFolderError, match=rf"written by another version of qccf \(format {now}, not {now + 1}\)"):
        run_to_the_end("qccf", tmp_path)
    assert files_in(tmp_path) == before


def test_pruning_removes_only_this_runs_checkpoints(tmp_path: Path) -> None:
    run_to_the_end("qccf", tmp_path / "other", "federation.rounds=2")
    run_to_the_end("qccf", tmp_path / "one", "execution.checkpoint_every=8")
    there = tmp_path / "one" / "checkpoints"
    (tmp_path / "other" / "checkpoints" / "round-000001.npz").rename(there / "round-000001.npz")
    (there / "round-000002.npz").write_text("damaged")
    fingerprint = run_fingerprint(tiny_scenario(), tiny_dataset())
    (state, ledger), _ = checkpoint.latest(there, fingerprint)
    for number in (5, 6, 7):
        checkpoint.save(there, replace(state, round_index=number), ledger, fingerprint)
    assert checkpoint.holds_foreign(there, fingerprint), "one of several"
    kept = sorted(path.name for path in there.iterdir())
    assert kept == [f"round-{number:06d}.npz" for number in (1, 2, 6, 7, 8)]


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("qccf", ["codec.name=update+entropy"]),
        ("qccf", ["evaluation.every=4", "control.form=paper"]),
        ("same-size", ["evaluation.every=5", "execution.checkpoint_every=3"]),
        ("principle", ["principle.patience=3", "evaluation.every=3"]),
        ("principle", []),  # a tenth of 4 and of 6 rounds is the same least patience
        ("no-quantization", ["evaluation.every=100"]),
        ("channel-allocate", []),
        ("examples.custom_policy:BestLinks", []),
    ],
)
def test_an_extended_run_is_the_longer_run_bit_for_bit(tmp_path: Path, policy: str, settings: list[str]) -> None:
    short, long = ([*settings, f"federation.rounds={rounds}"] for rounds in (4, 6))
    run_to_the_end(policy, tmp_path / "run", *short)
    extended = extend(policy, tmp_path / "run", *long)
    reference = run_to_the_end(policy, tmp_path / "long", *long)
    assert_same(extended, reference)
    written, expected = read_run(tmp_path / "run"), read_run(tmp_path / "long")
    pd.testing.assert_frame_equal(written.rounds, expected.rounds, check_exact=True)
    assert (written.scenario, written.summary) == (expected.scenario, expected.summary)
    for name in ("checkpoints/round-000006.npz", "rounds.parquet", "clients.parquet", "statistics.parquet"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "long" / name).read_bytes(), name


def extend(policy: str, out: Path, *overrides: str) -> Run:
    return simulate(tiny_scenario(*overrides), policy, out=out, dataset=tiny_dataset(), extend=True)


def test_a_run_in_a_changing_cell_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    """Correlated fading and walking clients have a history, which the checkpoint need not hold."""
    settings = ["radio.fading_correlation=0.9", "cell.walk_step_m=20", "cell.shadowing=true", "radio.estimate_age=2"]
    settings += ["radio.estimate_error_db=1", "cell.neighbours=2", "evaluation.every=1"]
    longer = run_to_the_end("qccf", None, *settings, "federation.rounds=6")
    run_to_the_end("qccf", tmp_path, *settings, "federation.rounds=3")
    scenario = tiny_scenario(*settings, "federation.rounds=6")
    extended = simulate(scenario, "qccf", out=tmp_path, extend=True, dataset=tiny_dataset())
    assert_same(longer, extended)


def test_a_run_is_resumed_only_with_its_own_trace(tmp_path: Path) -> None:
    rates_bps = np.random.default_rng(0).uniform(1e5, 4e5, (7, 5, 5))
    np.savez(tmp_path / "t.npz", rates_bps=rates_bps)
    settings = [f"radio.trace={tmp_path / 't.npz'}", "federation.rounds=3"]
    first = run_to_the_end("qccf", tmp_path / "run", *settings)
    assert_same(first, run_to_the_end("qccf", tmp_path / "run", *settings))
    np.savez(tmp_path / "t.npz", rates_bps=rates_bps + 1.0)
    with pytest.raises(RunFolderError, match=r"holds another run \(radio.trace_digest = "):
        run_to_the_end("qccf", tmp_path / "run", *settings)


def test_an_unfinished_run_can_be_extended_and_an_extension_can_be_killed(tmp_path: Path, monkeypatch) -> None:
    stopped_after(5, tmp_path)
    long = "federation.rounds=10"

    def killed(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("qccf.runtimes.simulator.begin_run", killed)
    with pytest.raises(MemoryError):
        extend("qccf", tmp_path, long)
    monkeypatch.undo()
    monkeypatch.setattr("qccf.runtimes.simulator.run_round", killed)
    with pytest.raises(MemoryError):
        extend("qccf", tmp_path, long)
    monkeypatch.undo()
    assert_same(run_to_the_end("qccf", tmp_path, long), run_to_the_end("qccf", None, long))


def test_a_killed_extension_does_not_count_as_finished(tmp_path: Path, monkeypatch) -> None:
    run_to_the_end("qccf", tmp_path)
    assert is_finished(tmp_path, 8)

    def killed(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("qccf.runtimes.simulator.run_round", killed)
    with pytest.raises(MemoryError):
        extend("qccf", tmp_path, "federation.rounds=9")
    assert not is_finished(tmp_path, 8)
    assert not is_finished(tmp_path, 9)
    assert not read_run(tmp_path).finished


class ByTheClock(Qccf):
    """A policy whose rule may depend on the number of rounds."""

    def __init__(self, constants, *, rounds):
        super().__init__(constants, rounds=rounds)
        self.rounds = rounds


@pytest.mark.parametrize(
    ("policy", "settings", "sentence"),
    [
        ("qccf", ["federation.rounds=7"], "--rounds 7 is less than the 8 rounds"),
        ("qccf", ["federation.rounds=9", "control.slack=3.0"], r"control.slack = 4.0 there, 3.0 here"),
        ("principle", ["federation.rounds=40"], "principle.patience = 0, a tenth of the rounds"),
        (f"{__name__}:ByTheClock", ["federation.rounds=9"], "ByTheClock' is built from the number of rounds"),
    ],
)
def test_what_forbids_an_extension_is_named(tmp_path: Path, policy: str, settings: list[str], sentence: str) -> None:
    run_to_the_end(policy, tmp_path)
    before = files_in(tmp_path)
    with pytest.raises(RunFolderError, match=sentence):
        extend(policy, tmp_path, *settings)
    assert files_in(tmp_path) == before


def test_without_a_checkpoint_a_finished_run_is_not_extended(tmp_path: Path) -> None:
    run_to_the_end("qccf", tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(RunFolderError, match="holds no checkpoint"):
        extend("qccf", tmp_path, "federation.rounds=9")


def test_two_runs_in_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    def second(_: object) -> None:
        with pytest.raises(QccfError, match=r"another process works in .*: stop it, or name another folder\."):
            run_to_the_end("qccf", tmp_path)

    run = simulate(tiny_scenario(), "qccf", out=tmp_path, dataset=tiny_dataset(), callbacks=[second])
    assert run.finished


def test_a_killed_writer_leaves_no_lock(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "60", "qccf", "model"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(QccfError, match="another process works in"):
        run_to_the_end("qccf", tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
    assert_same(run_to_the_end("qccf", tmp_path), run_to_the_end("qccf"))


STOP = "evaluation.until_accuracy=0.4"


def test_a_run_that_reached_its_accuracy_is_finished_and_not_trained_again(tmp_path: Path) -> None:
    run = run_to_the_end("qccf", tmp_path, STOP)
    whole = run_to_the_end("qccf")
    assert run.finished
    assert 3 <= run.num_rounds < whole.num_rounds
    assert run.summary["stopped_at_accuracy"] == 0.4
    assert whole.summary["stopped_at_accuracy"] is None
    last = run.accuracy[-3:]
    assert last.mean() >= 0.4 > whole.accuracy[run.num_rounds - 4 : run.num_rounds - 1].mean()
    np.testing.assert_array_equal(run.accuracy, whole.accuracy[: run.num_rounds])
    assert is_finished(tmp_path, 8, 0.4)
    assert not is_finished(tmp_path, 8)
    assert not is_finished(tmp_path, 8, 0.5)
    assert_same(run_to_the_end("qccf", tmp_path, STOP), run)  # from its checkpoint


@pytest.mark.parametrize("until", [0.0, 0.46])
def test_a_run_that_stopped_at_an_accuracy_can_be_extended(tmp_path: Path, until: float) -> None:
    short = run_to_the_end("qccf", tmp_path, STOP)
    longer = tiny_scenario(f"evaluation.until_accuracy={until}")
    run = simulate(longer, "qccf", out=tmp_path, extend=True, dataset=tiny_dataset())
    assert run.num_rounds > short.num_rounds
    assert_same(run, simulate(longer, "qccf", dataset=tiny_dataset()))
    assert is_finished(tmp_path, 8, until)


@pytest.mark.parametrize(("before", "after"), [("0.4", "0.3"), ("0.0", "0.4")])
def test_a_lower_accuracy_would_shorten_a_run_and_is_refused(tmp_path: Path, before: str, after: str) -> None:
    run_to_the_end("qccf", tmp_path, f"evaluation.until_accuracy={before}")
    wanted = tiny_scenario(f"evaluation.until_accuracy={after}")
    with pytest.raises(RunFolderError, match=f"--until-accuracy {after} would make this run shorter"):
        simulate(wanted, "qccf", out=tmp_path, extend=True, dataset=tiny_dataset())


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: weights.view(np.int32),
        lambda weights: weights.reshape(-1, 2),
        lambda weights: weights[None],
        lambda weights: -weights,
    ],
)
def test_a_checkpoint_whose_arrays_have_another_type_or_shape_or_content_is_damaged(tmp_path: Path, change) -> None:
    """With the same bytes only the digest of type and shape can tell."""
    stopped_after(2, tmp_path)
    newest = tmp_path / "checkpoints" / "round-000002.npz"
    with np.load(newest) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(newest, **arrays | {"weights": change(arrays["weights"])})
    with pytest.raises(CheckpointError, match="its checksum does not match"):
        checkpoint.load(newest, run_fingerprint(tiny_scenario(), tiny_dataset()))


FORGED = (
    "federation.rounds=3", "codec.name=update+entropy", "server.optimizer=fedadam", "server.downlink=update+entropy",
    "device.battery_j=1e6", "server.averaging=0.5",
)  # fmt: skip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds that has completed two, with all that a checkpoint can hold."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    stopped_after(2, folder, *FORGED)
    return folder


def forge(path: Path, change) -> None:
    """Change arrays and header of a checkpoint, and compute its checksum again."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "checksum"}
    header = json.loads(arrays["header"].tobytes())
    change(arrays, header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    arrays["checksum"] = np.frombuffer(checkpoint._digest(arrays), dtype=np.uint8)
    np.savez(path, **arrays)


def array(name: str, change) -> Any:
    """Replace an array by what `change` makes of it; None removes it."""

    def forged(arrays: dict, _header: dict) -> None:
        changed = change(arrays.pop(name))
        arrays.update({} if changed is None else {name: changed})

    return forged


def header(key: str, value: object) -> Any:
    return lambda _arrays, tree: tree.update({key: value})


def policy(**changes: object) -> Any:
    return lambda _arrays, tree: tree["policy_state"].update(changes)


def layout(table: str, change) -> Any:
    return lambda _arrays, tree: tree["layouts"].update({table: change(tree["layouts"][table])})


def without(name: str) -> Any:
    return array(name, lambda _: None)


def table(name: str, change) -> Any:
    """Change the columns of all rounds of a packed table, and pack it again."""

    def forged(arrays: dict, tree: dict) -> None:
        packed = {key: arrays[f"{name}/{key}"] for key in ("sizes", "content")}
        columns = change(PackedTable.unpacked(tree["layouts"][name], packed, 5).columns())
        again = PackedTable()
        for start in range(0, 10, 5):
            again.append({key: column[start : start + 5] for key, column in columns.items()})
        tree["layouts"][name], packed = again.packed()
        arrays.update({f"{name}/{key}": array for key, array in packed.items()})

    return forged


def both(*changes) -> Any:
    return lambda arrays, tree: [change(arrays, tree) for change in changes]


def with_value(values: np.ndarray, value: float) -> np.ndarray:
    return np.concatenate([np.full_like(values[:1], value), values[1:]])


def swapped(columns: dict) -> dict:
    """The first two clients of each round in the other order."""
    return columns | {"client": np.tile([1, 0, 2, 3, 4], 2)}


def fewer_bits(columns: dict) -> dict:
    return columns | {"upload_bits": columns["upload_bits"][:, :3]}


WEIGHTS = "its weights are not a vector of finite 32-bit floats"
ROUND = "its round is not that of its ledger"
RULE = "the state of its rule is not {'parameters_sq': (5,), 'buffers_sq': (5,), 'strikes': (5,)}"
DOWNLINK = "the state of its downlink is not {'residual': (650,), 'sizes_bits': (2,), 'versions': (5,)}"
GAPS = "its downlink has gaps"
AVERAGE = "the state of its average is not {'total': (650,), 'weight': (1,)}"
NO_MODELS = "its average is not one of models"
FORGERIES = {
    "short weights": (array("weights", lambda weights: weights[:3]), "it has 3 weights, not 650"),
    "weights of text": (array("weights", lambda weights: weights.astype("U")), WEIGHTS),
    "weights of 64 bits": (array("weights", lambda weights: weights.astype(float)), WEIGHTS),
    "weights that are not finite": (array("weights", lambda weights: with_value(weights, np.nan)), WEIGHTS),
    "weights of a matrix": (array("weights", lambda weights: weights.reshape(-1, 2)), WEIGHTS),
    "empty weights": (array("weights", lambda weights: weights[:0]), WEIGHTS),
    "no weights": (without("weights"), ""),
    "round before the first": (header("round_index", -5), ROUND),
    "round of text": (header("round_index", "2"), ROUND),
    "round of a float": (header("round_index", 2.0), ROUND),
    "round far away": (header("round_index", 10**9), ROUND),
    "policy list": (header("policy_state", []), "the state of its policy is not a table"),
    "policy of another kind": (header("policy_state", {}), "debts of its policy has another form"),
    "policy text": (policy(debts="x"), "debts of its policy is no number"),
    "policy text in a list": (policy(debts=["0", 0, 0, 0, 0]), "debts of its policy is no number"),
    "policy short": (policy(debts=[0.0]), "debts of its policy has another form"),
    "policy number for a list": (policy(debts=0.0), "debts of its policy has another form"),
    "policy list for a number": (policy(error_price=[0.0]), "error_price of its policy has another form"),
    "policy NaN": (policy(error_price=float("nan")), "error_price of its policy is no number"),
    "policy null": (policy(last_num_bits=None), "last_num_bits of its policy is no number"),
    "policy true": (policy(error_price=True), "error_price of its policy is no number"),
    "policy large": (policy(last_num_bits=[1 << 62] * 5), "last_num_bits of its policy is no number"),
    "doubts short": (array("claims/doubts", lambda doubts: doubts[:1]), "doubts has another type or shape"),
    "doubts below -2": (array("claims/doubts", lambda doubts: with_value(doubts, -3)), "doubts are below -2"),
    "doubts of floats": (
        array("claims/doubts", lambda doubts: doubts.astype(float)), "doubts has another type or shape",
    ),
    "rule missing": (without("rule/parameters_sq"), RULE),
    "rule short": (array("rule/parameters_sq", lambda values: values[:1]), RULE),
    "rule of text": (
        array("rule/parameters_sq", lambda values: values.astype("U")), "a state is not of 64-bit floats",
    ),
    "optimizer short": (
        array("optimizer/mean", lambda values: values[:1]),
        "the state of its optimizer is not {'mean': (650,), 'square': (650,)}",
    ),
    "downlink missing": (without("downlink/versions"), DOWNLINK),
    "downlink without a list of changes": (
        without("downlink/sizes_bits"),
        "the state of its downlink is not {'residual': (650,), 'sizes_bits': (0,), 'versions': (5,)}",
    ),
    "downlink without changes": (array("downlink/sizes_bits", lambda values: values[:0]), GAPS),
    "downlink with a table of changes": (array("downlink/sizes_bits", lambda values: values[:, None]), GAPS),
    "downlink before the first change": (
        array("downlink/versions", lambda values: with_value(values, -2)), GAPS,
    ),
    "downlink after the last change": (array("downlink/versions", lambda values: with_value(values, 3)), GAPS),
    "downlink short": (array("downlink/residual", lambda values: values[:1]), DOWNLINK),
    "average missing": (without("average/weight"), AVERAGE),
    "average short": (array("average/total", lambda values: values[:1]), AVERAGE),
    "average of nothing": (array("average/weight", lambda values: with_value(values, 0.9)), NO_MODELS),
    "average of too many": (array("average/weight", lambda values: with_value(values, 2.1)), NO_MODELS),
    "average without a weight": (array("average/weight", lambda values: with_value(values, np.nan)), NO_MODELS),
    "average that is not finite": (array("average/total", lambda values: with_value(values, np.inf)), NO_MODELS),
    "sizes NaN": (
        array("known/dataset_sizes", lambda sizes: with_value(sizes, np.nan)), "dataset_sizes holds NaN",
    ),
    "sizes infinite": (
        array("known/dataset_sizes", lambda sizes: with_value(sizes, np.inf)),
        "dataset_sizes is not finite, or below 0",
    ),
    "sizes below 0": (
        array("known/dataset_sizes", lambda sizes: with_value(sizes, -1.0)),
        "dataset_sizes is not finite, or below 0",
    ),
    "sizes of text": (
        array("known/dataset_sizes", lambda sizes: sizes.astype("U")), "dataset_sizes has another type or shape",
    ),
    "norms short": (
        array("known/gradient_norms_sq", lambda norms: norms[:1]), "gradient_norms_sq has another type or shape",
    ),
    "no sizes of uploads": (without("known/upload_bits"), "it has not the columns of statistics"),
    "sizes of uploads for fewer bits": (
        array("known/upload_bits", lambda sizes: sizes[:, :3]),
        "upload_bits of its statistics has another type or shape",
    ),
    "sizes of uploads for fewer bits in all rounds": (
        both(array("known/upload_bits", lambda sizes: sizes[:, :3]), table("statistics", fewer_bits)),
        "upload_bits is not what update+entropy reports",
    ),
    "batteries NaN": (array("batteries_j", lambda joules: with_value(joules, np.nan)), "batteries_j holds NaN"),
    "batteries missing": (without("batteries_j"), "its batteries are missing"),
    "column of rounds missing": (without("rounds/energy_j"), "it has not the columns of rounds"),
    "column of rounds of text": (
        array("rounds/cumulative_energy_j", lambda values: values.astype("U")),
        "cumulative_energy_j of its rounds is no column of numbers",
    ),
    "column of rounds long": (
        array("rounds/energy_j", lambda values: np.append(values, 0.0)),
        "energy_j of its rounds is no column of numbers",
    ),
    "energy not finite": (
        array("rounds/cumulative_energy_j", lambda values: with_value(values, np.inf)), "its energy is not finite",
    ),
    "other rounds": (array("rounds/round", lambda values: values + 1), "its rounds are not successive"),
    "columns of clients missing": (layout("clients", lambda columns: columns[:2]), ""),
    "column of clients renamed": (
        layout("clients", lambda columns: [["other", *columns[0][1:]], *columns[1:]]),
        "it has not the columns of clients",
    ),
    "column of clients of another kind": (
        layout("clients", lambda columns: [[name, kind.replace("i", "f"), shape] for name, kind, shape in columns]),
        "it has not the columns of clients",
    ),
    "columns of clients exchanged": (
        layout("clients", lambda columns: [["client", *columns[0][1:]], ["round", *columns[1][1:]], *columns[2:]]),
        "its clients are of other rounds",
    ),
    "clients in another order": (table("clients", swapped), "its clients are not in order"),
    "column of statistics renamed": (
        layout("statistics", lambda columns: [*columns[:-1], ["x", *columns[-1][1:]]]),
        "it has not the columns of statistics",
    ),
    "column of statistics of another kind": (
        layout("statistics", lambda columns: [["round", "<f8", [5]], *columns[1:]]),
        "round of its statistics has another type or shape",
    ),
}  # fmt: skip
"""Changes of a checkpoint, and why it then does not fit; no reason where it looks damaged."""


def forged_copy(stopped: Path, tmp_path: Path, change) -> Path:
    """The newest checkpoint of a copy of the run, changed."""
    shutil.copytree(stopped, tmp_path / "run")
    newest = tmp_path / "run" / "checkpoints" / "round-000002.npz"
    forge(newest, change)
    return newest


def forged_fingerprint() -> str:
    return run_fingerprint(tiny_scenario(*FORGED), tiny_dataset())


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_checkpoint_does_not_fit_its_run(stopped: Path, tmp_path: Path, name: str) -> None:
    change, reason = FORGERIES[name]
    newest = forged_copy(stopped, tmp_path, change)
    sentence = f"does not fit its run: {reason}." if reason else "is cut short or damaged."
    with pytest.raises(CheckpointError, match=f"^round-000002.npz {re.escape(sentence)}$"):
        checkpoint.load(newest, forged_fingerprint())


@pytest.mark.parametrize(
    "change",
    [
        lambda *_: None,
        array("claims/doubts", lambda doubts: with_value(doubts, -2)),
        array("known/gradient_variances", lambda variances: with_value(variances, 0.0)),
        array("downlink/versions", lambda _: np.array([-1.0, 0.0, 1.0, 2.0, 2.0])),
        policy(last_num_bits=[1, 1, 1, 1, (1 << 62) - 1]),
        policy(error_price=0),
        array("average/weight", lambda values: with_value(values, 0.0)),
        array("average/weight", lambda values: with_value(values, 2.0 + 1e-12)),
    ],
)
def test_a_checkpoint_with_values_at_their_limits_fits(stopped: Path, tmp_path: Path, change) -> None:
    newest = forged_copy(stopped, tmp_path, change)
    assert checkpoint.load(newest, forged_fingerprint())[0].round_index == 2


@pytest.mark.parametrize(
    ("before", "after", "change", "reason"),
    [
        ("num_clients = 5", "num_clients = 4", lambda *_: None, "it has 5 clients, not 4"),
        ("num_buffers = 0", "num_buffers = 3", lambda *_: None, "it has 650 weights, not 653"),
        ('path_loss = "umi"', 'scenario = "umi"', *FORGERIES["short weights"]),  # as version 0.1 called it
        (
            'downlink = "update+entropy"',
            'downlink = "model"',
            both(without("downlink/residual"), without("downlink/versions")),
            "the state of its downlink is not {}",
        ),
    ],
)
def test_a_checkpoint_does_not_fit_other_settings(
    stopped: Path, tmp_path: Path, before: str, after: str, change, reason: str
) -> None:
    newest = forged_copy(stopped, tmp_path, change)
    settings = tmp_path / "run" / "scenario.toml"
    assert before in settings.read_text()
    settings.write_text(settings.read_text().replace(before, after))
    with pytest.raises(CheckpointError, match=re.escape(f"does not fit its run: {reason}.")):
        checkpoint.load(newest, forged_fingerprint())
    settings.rename(tmp_path / "elsewhere.toml")
    assert checkpoint.load(newest, forged_fingerprint()), "without settings there is nothing to compare with"
    settings.symlink_to(tmp_path / "elsewhere.toml")
    assert checkpoint.load(newest, forged_fingerprint()), "settings outside of the folder are not read"


def test_a_checkpoint_without_a_format_is_of_the_first_version(stopped: Path, tmp_path: Path) -> None:
    newest = forged_copy(stopped, tmp_path, lambda _, tree: tree.pop("format"))
    with pytest.raises(RunFolderError, match=r"another version of qccf \(format 1, not "):
        checkpoint.load(newest, forged_fingerprint())


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def test_a_checkpoint_with_a_pickle_is_damaged_and_not_unpickled(stopped: Path, tmp_path: Path) -> None:
    newest = forged_copy(stopped, tmp_path, lambda *_: None)
    np.savez(newest, weights=np.array([Trap(tmp_path / "made")], dtype=object))
    with pytest.raises(CheckpointError, match="is cut short or damaged"):
        checkpoint.load(newest, forged_fingerprint())
    assert not (tmp_path / "made").exists()


def test_a_forged_checkpoint_is_named_and_the_one_before_is_used(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    for number in (2, 1):
        forge(tmp_path / "run" / "checkpoints" / f"round-00000{number}.npz", FORGERIES["short weights"][0])
        if number == 2:
            complaints: list[str] = []
            shutil.copytree(tmp_path / "run", tmp_path / "one")
            run = simulate(
                tiny_scenario(*FORGED), "qccf", out=tmp_path / "one", dataset=tiny_dataset(), warn=complaints.append
            )
            assert complaints == [
                "round-000002.npz does not fit its run: it has 3 weights, not 650. round-000001.npz is used instead."
            ]
            assert_same(run, run_to_the_end("qccf", None, *FORGED))
    with pytest.raises(
        RunFolderError, match=r"can be resumed \(round-000002.npz does not fit its run: it has 3 weights"
    ):
        run_to_the_end("qccf", tmp_path / "run", *FORGED)


def test_the_columns_of_a_checkpoint_are_those_that_the_ledger_records(stopped: Path) -> None:
    tables, _ = checkpoint.newest_tables(stopped / "checkpoints")
    assert set(tables["rounds"]) == checkpoint.ROUND_COLUMNS
    known = {name for names in checkpoint.CLIENT_COLUMNS.values() for name in names} | {"battery_j"}
    assert set(tables["clients"]) == known


@pytest.mark.parametrize("name", ["columns of clients missing", "column of rounds missing", "other rounds"])
def test_progress_is_read_from_the_newest_tables_that_fit(stopped: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    there = tmp_path / "run" / "checkpoints"
    forge(there / "round-000002.npz", FORGERIES[name][0])
    tables, _ = checkpoint.newest_tables(there)
    assert len(tables["rounds"]["round"]) == 1
