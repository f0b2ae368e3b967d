"""The smallest reproduction for real, in processes of its own, interrupted once on the way."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.batch_jobs import wait_for


def start(out: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "qccf", "reproduce", "--scale", "smoke", "--jobs", "2", "--out", str(out)]
    environment = {**os.environ, "QCCF_DATA": str(out / "data"), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


@pytest.mark.long
def test_the_smoke_reproduction_is_interrupted_and_resumed(tmp_path: Path) -> None:
    first = start(tmp_path)
    lines = []
    for line in first.stdout:
        lines.append(line)
        if sum(one.startswith("done:") for one in lines) == 3:
            break
    first.send_signal(signal.SIGINT)  # only to the command, which must stop its workers
    rest, _ = first.communicate(timeout=300)
    assert first.returncode == 130, rest
    assert "Traceback" not in rest
    assert "resume with the same command" in rest
    assert (tmp_path / "report.html").exists(), "what there is, is reported"
    wait_for(lambda: not _alive_in_session(first.pid), "the end of all workers")

    finished = {path.parent for path in (tmp_path / "runs").glob("*/summary.json") if _finished(path)}
    before = {path: (path / "rounds.parquet").stat().st_mtime_ns for path in finished}
    second = start(tmp_path)
    shown, _ = second.communicate(timeout=1500)
    assert second.returncode == 0, shown
    assert "Traceback" not in shown
    tree = json.loads((tmp_path / "reproduction.json").read_text())
    assert len(tree["runs"]) == 24
    assert len(tree["varied"]) == 3
    assert all(_finished(tmp_path / name / "summary.json") for name in [*tree["runs"], *tree["varied"]])
    assert {path: (path / "rounds.parquet").stat().st_mtime_ns for path in finished} == before, "nothing runs twice"
    page = (tmp_path / "report.html").read_text()
    assert "24 training runs on handwriting (synthetic data): 10 clients on 10 channels, 3 rounds, 2 seeds" in page
    assert "10 dB, trained" in page


def _finished(summary: Path) -> bool:
    return bool(json.loads(summary.read_text())["finished"])


def _alive_in_session(session: int) -> list[int]:
    """Processes of that session that are still there; only where the system lists them in /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found
