"""The examples, run as they are."""

import subprocess
import sys
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from tests.helpers.loop_grid import LoopGrid

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_own_model"


def test_own_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    sys.modules.pop("own_model.app", None)
    from own_model.app import client, server

    config = {"num-server-rounds": 6, "num-clients": 3}
    server(LoopGrid(client, range(3), config), Context(1, 0, {}, RecordDict(), config))
    output = capsys.readouterr().out
    scores = [float(part.split("}")[0]) for part in output.split("'accuracy': ")[1:]]
    assert len(scores) == 6
    assert scores[-1] > max(scores[0], 0.6)
    assert output.rstrip().endswith("J")


def test_it_is_short() -> None:
    lines = (EXAMPLE / "own_model" / "app.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60


@pytest.mark.long
@pytest.mark.deployment
def test_a_federation_with_tls_and_keys() -> None:
    """The ready app in a deployment, without changes."""
    example = EXAMPLE.parent / "flower_tls.py"
    done = subprocess.run([sys.executable, str(example), "1", "2"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 registered SuperNodes" in done.stdout
    lines = done.stdout.splitlines()
    assert lines[2].split()[:3] == ["0", "2", "2"], done.stdout
    assert lines[-1].startswith("2 uploads of")
