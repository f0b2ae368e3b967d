"""Every command of the how-to documents runs in a short form, and its result makes sense."""

import json
import re
import shlex
from pathlib import Path

import pytest

from qccf.cli.main import main

ROOT = Path(__file__).parents[2]
SHORT = ["data.dataset_size_mean=100", "data.dataset_size_std=10", "data.dataset_size_min=60"]


def commands() -> list[tuple[str, str]]:
    documents = sorted((ROOT / "docs").glob("add-*.md"))
    pattern = re.compile(r"^\.venv/bin/qccf (.*)$", re.MULTILINE)
    return [(path.name, line) for path in documents for line in pattern.findall(path.read_text())]


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for _, command in commands()])
def test_a_command_runs_and_makes_sense(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(command)
    action = arguments[0]
    own = "examples.own_" in command
    rounds = "12" if own else "2"
    settings = [part for value in SHORT for part in ("--set", value)]
    assert main([*arguments, *settings, "--set", f"federation.rounds={rounds}", "--out", str(tmp_path / "out")]) == 0
    if action == "plan":
        return
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").rglob("summary.json"))]
    summaries = [summary for summary in found if isinstance(summary, dict)]  # a comparison has a list of its runs
    assert summaries
    for summary in summaries:
        assert summary["energy_j"] > 0.0
        assert summary["participation"] > 0.5
        chance = {"own-table": 1 / 3, "own-reviews": 1 / 2, "own-shapes": 1 / 4}.get(summary["dataset"], 1 / 62)
        assert summary["test_accuracy"] > 1.3 * chance


def test_there_are_commands_for_each_kind() -> None:
    assert {document for document, _ in commands()} >= {
        "add-codec.md",
        "add-dataset.md",
        "add-model.md",
        "add-policy.md",
    }
