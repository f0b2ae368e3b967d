"""The benchmark of the service runs, and no request fails."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_benchmark_of_the_service_runs() -> None:
    command = [sys.executable, "-m", "benchmarks.serve", "--quick", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| 10 × 10 \| (\d+) \|.*?\| (\d+) \|", done.stdout, re.MULTILINE)
    assert [connections for connections, _ in rows] == ["1", "8", "32"]
    failed = re.findall(r"ms \| (\d+) \| [\d.]+ ms \|", done.stdout) + re.findall(r"MiB \| (\d+) \|", done.stdout)
    assert set(failed) == {"0"}
    assert len(failed) == 13
