"""`--json`: one JSON value on standard output and nothing else there."""

import json
from pathlib import Path

import numpy as np
import pytest

from qccf.cli.json_output import print_json
from qccf.cli.main import main
from tests.helpers.tiny import tiny_arguments


def test_values_that_json_lacks_become_null(capsys) -> None:
    print_json({"a": np.array([1.0, np.nan]), "b": (np.int64(3), float("inf")), "c": Path("x"), "d": None, "é": True})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"a": [1.0, None], "b": [3, None], "c": "x", "d": None, "é": True}
    assert shown.count("\n") == 1


@pytest.mark.usefixtures("tiny_source")
def test_a_run_and_a_comparison(tmp_path: Path, capsys) -> None:
    tiny = tiny_arguments("federation.rounds=2")
    assert main(["run", "femnist", *tiny, "--out", str(tmp_path / "run"), "--json"]) == 0
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert summary["policy"] == "qccf"
    assert summary["folder"] == str(tmp_path / "run")
    assert "per_round" not in summary
    assert "round 2/2" in shown.err  # progress is on standard error
    arguments = ["compare", "femnist", *tiny, "--policy", "qccf,same-size", "--out", str(tmp_path / "two")]
    assert main([*arguments, "--json", "full"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [run["policy"] for run in runs] == ["qccf", "same-size"]
    assert all(len(run["per_round"]["energy_j"]) == 2 for run in runs)
    assert runs[0]["scenario"]["federation"]["rounds"] == 2


def test_a_sweep_and_its_table(tmp_path: Path, capsys) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'scenario = "quick"\nkind = "plan"\n[settings]\nfederation.rounds = 2\n[grid]\n'
        'radio.bandwidth_hz = [10e6, 20e6]\npolicy = ["qccf", "same-size"]\n'
    )
    arguments = ["sweep", str(file), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "grid.toml: 4 runs" in shown
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(row.startswith("policy, bandwidth_hz mJ bits") for row in rows)
    assert any(row.startswith("same-size, 20,000,000 ") for row in rows)
    assert main([*arguments, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [(run["policy"], run["radio.bandwidth_hz"]) for run in runs][-1] == ("same-size", 20e6)
    assert main([*arguments, "--json", "full"]) == 0
    assert all(len(run["per_round"]["energy_j"]) == 2 for run in json.loads(capsys.readouterr().out))


def test_a_plan_in_short_and_in_full(tmp_path: Path, capsys) -> None:
    arguments = ["plan", "quick", "--rounds", "2", "--seeds", "1", "--policy", "qccf", "--out", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    short = json.loads(capsys.readouterr().out)
    assert list(short) == ["scenario", "rounds", "cells", "summary", "health", "written"]
    assert (short["scenario"], short["rounds"], short["cells"]) == ("quick", 2, 1)
    assert str(tmp_path / "plan.json") in short["written"]
    assert main([*arguments, "--json", "full"]) == 0
    full = json.loads(capsys.readouterr().out)
    assert full["summary"] == short["summary"]
    assert len(full["runs"]) == 1
