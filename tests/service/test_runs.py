"""Runs as the service reads them: which of them run, how often they are read, and what of them is never executed."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from qccf.core.files import alone_in
from qccf.rounds.run_folder import CHECKPOINTS, SCENARIO, write_run
from qccf.service import runs
from qccf.service.setup import Setup
from qccf.service.workers import Worker
from qccf.settings.loading import load_scenario
from tests.helpers.service import PATIENCE_S, written_rounds

SMALL = {"federation.num_clients": 4, "radio.num_channels": 3, "federation.rounds": 4}


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    """A run with three of its four rounds."""
    folder = tmp_path_factory.mktemp("runs") / "begun"
    written = written_rounds(folder, load_scenario("femnist", SMALL))
    for _ in range(3):
        next(written)
    return folder


def copied(begun: Path, root: Path, name: str = "one", ages_s: tuple[float, ...] = ()) -> Path:
    """The run in another folder; `ages_s` are those of its checkpoints, the oldest first."""
    folder = root / name
    shutil.copytree(begun, folder)
    files = sorted((folder / CHECKPOINTS).glob("round-*.npz"))
    for file, age_s in zip(files[-len(ages_s) :], ages_s, strict=True) if ages_s else ():
        os.utime(file, (time.time() - age_s, time.time() - age_s))
    for file in files[: -len(ages_s)] if ages_s else ():
        file.unlink()
    return folder


def listed(root: Path) -> dict:
    (row,) = runs.list_answer(Setup(root))
    return row


def test_a_run_executes_no_code_unless_allowed(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder below `--runs` may come from somebody else."""
    monkeypatch.chdir(tmp_path)
    folder = copied(begun, tmp_path / "runs", "evil")
    for package in (tmp_path / "runs", folder):
        (package / "__init__.py").touch()
    (folder / "evilmod.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'executed')!r}).touch()\n"
        "from qccf.wireless.path_loss.umi import UrbanMicro as Thing\n"
    )
    settings = (folder / SCENARIO).read_text()
    assert 'path_loss = "umi"' in settings
    (folder / SCENARIO).write_text(settings.replace('path_loss = "umi"', 'path_loss = "runs.evil.evilmod:Thing"'))
    name = runs.run_name(folder, tmp_path / "runs")
    for allowed in (False, True):
        worker = Worker(Setup(tmp_path / "runs", allow_plugins=allowed))
        try:
            shown = worker.run("show_run", name, PATIENCE_S, lambda _: None)
            charts = worker.run("run_charts", [name], PATIENCE_S, lambda _: None)
            rows = worker.run("list_runs", None, PATIENCE_S, lambda _: None)
        finally:
            worker.stop()
        assert (tmp_path / "executed").exists() == allowed
        assert (shown.status, charts.status, rows.status) == (200, 200, 200), shown.content
        assert (json.loads(shown.content)["cell"] is not None) == allowed, "no map without the path loss"


def test_a_run_whose_process_holds_its_folder_is_running(begun: Path, tmp_path: Path) -> None:
    """However long its rounds take."""
    folder = copied(begun, tmp_path, ages_s=(5000.0,))
    with alone_in(folder):
        assert listed(tmp_path)["status"] == "running"
    assert listed(tmp_path)["status"] == "stopped"


def test_a_run_is_as_slow_as_its_checkpoints(begun: Path, tmp_path: Path) -> None:
    """With a checkpoint every many rounds, five rounds pass without one; the lock may be that of another machine."""
    folder = copied(begun, tmp_path, ages_s=(280.0, 180.0))
    newest = max((folder / CHECKPOINTS).glob("round-*.npz"))
    newest.rename(newest.with_name("round-000050.npz"))
    row = listed(tmp_path)
    assert row["status"] == "running"
    assert row["seconds_per_round"] == pytest.approx(100.0 / 48, rel=0.05)
    newest = max((folder / CHECKPOINTS).glob("round-*.npz"))
    for file, age_s in zip(sorted((folder / CHECKPOINTS).glob("*.npz")), (700.0, 600.0), strict=True):
        os.utime(file, (time.time() - age_s, time.time() - age_s))
    assert listed(tmp_path)["status"] == "stopped"


def test_many_runs_are_read_once(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(40):
        copied(begun, tmp_path, f"run{k}")
    read: list[Path] = []
    reading = runs.read_progress
    monkeypatch.setattr(runs, "read_progress", lambda folder: (read.append(folder), reading(folder))[1])
    first = runs.list_answer(Setup(tmp_path))
    assert len(read) == len(first) == 40
    assert len(runs.list_answer(Setup(tmp_path))) == 40
    assert len(read) == 40, "nothing was written, so nothing is read again"
    newest = max((tmp_path / "run7" / CHECKPOINTS).glob("round-*.npz"))
    os.utime(newest)
    runs.list_answer(Setup(tmp_path))
    assert read[40:] == [tmp_path / "run7"]
    shutil.rmtree(tmp_path / "run7")
    assert len(runs.list_answer(Setup(tmp_path))) == 39
    assert tmp_path / "run7" not in runs._ROWS


def test_checkpoints_that_vanish_or_are_none_do_no_harm(begun: Path, tmp_path: Path) -> None:
    """A running run removes its old checkpoints while it is looked at, which a dangling link stands for."""
    folder = copied(begun, tmp_path)
    (folder / CHECKPOINTS / "round-000099.npz").symlink_to(tmp_path / "gone")
    (folder / CHECKPOINTS / "round-x.npz").touch()
    assert listed(tmp_path)["rounds"] == 3


def test_a_run_that_cannot_be_read_names_no_path_of_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    *_, last = written_rounds(folder, load_scenario("femnist", SMALL))
    write_run(folder, last)
    (folder / "rounds.parquet").write_bytes(b"torn")
    row = listed(tmp_path)
    assert row["status"] == "unreadable"
    assert "rounds.parquet is damaged" in row["detail"]
    assert str(tmp_path) not in row["detail"]
