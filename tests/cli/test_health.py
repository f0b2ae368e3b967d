"""What is wrong with a run is said after every command that decides, and nothing is said where all is well."""

import json
from pathlib import Path

import pandas as pd
import pytest

from qccf.cli.main import main
from tests.helpers.tiny import tiny_arguments

NOBODY = "tests.helpers.tiny:Nobody"
EMPTY = (
    "2 of 2 rounds had no participant although a client could upload, and none should be empty: use policy.name = "
    '"qccf".'
)


def test_plan(tmp_path: Path, capsys) -> None:
    arguments = ["plan", "quick", "--rounds", "2", "--seeds", "2", "--policy", "qccf"]
    arguments += ["--codec", "model", "--force", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "Health" not in capsys.readouterr().out
    assert main([*arguments, "--policy", NOBODY]) == 0
    captured = capsys.readouterr()
    assert f"Health: {NOBODY}, seed 0: {EMPTY} Also in 1 other run.\n" in captured.out
    assert captured.out.count("Health") == 1
    runs = json.loads((tmp_path / "plan.json").read_text())["runs"]
    assert [run["health"] for run in runs] == [[], []] + [[{"kind": "empty-rounds", "message": EMPTY}]] * 2
    assert main([*arguments, "--policy", NOBODY, "--json", "full"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][2]["health"][0]["message"] == EMPTY


@pytest.mark.usefixtures("tiny_source")
def test_run_and_its_summary(tmp_path: Path, capsys) -> None:
    arguments = ["run", "femnist", *tiny_arguments("federation.rounds=2")]
    assert main([*arguments, "--policy", NOBODY, "--out", str(tmp_path / "nobody")]) == 2
    shown = capsys.readouterr()
    assert f"\nHealth: {EMPTY}\n" in shown.out
    assert "nobody took part in 2 rounds, so the model is still the initial one" in shown.err
    summary = json.loads((tmp_path / "nobody" / "summary.json").read_text())
    assert summary["health"] == [{"kind": "empty-rounds", "message": EMPTY}]
    assert (summary["empty_rounds"], summary["participation_ratio"]) == (2, 0.0)
    assert summary["jain"] is summary["error_ratio"] is None
    assert main([*arguments, "--out", str(tmp_path / "well")]) == 0
    shown = capsys.readouterr().out
    assert "Health" not in shown
    assert "Clients and error budget" in shown
    summary = json.loads((tmp_path / "well" / "summary.json").read_text())
    assert summary["health"] == []
    assert (summary["empty_rounds"], summary["participation_ratio"], summary["jain"]) == (0, 1.0, 1.0)
    assert summary["error_ratio"] > 0.0


@pytest.mark.usefixtures("tiny_source")
def test_compare(tmp_path: Path, capsys) -> None:
    arguments = ["compare", "femnist", *tiny_arguments("federation.rounds=2"), "--out", str(tmp_path)]
    assert main([*arguments, "--policy", f"channel-allocate,{NOBODY}"]) == 2
    shown = capsys.readouterr().out
    assert f"Health: {NOBODY}: {EMPTY}\n" in shown
    assert shown.count("Health") == 1


def test_sweep(tmp_path: Path, capsys) -> None:
    file = tmp_path / "grid.toml"
    grid = f'[settings]\nfederation.rounds = 2\n[grid]\npolicy = ["channel-allocate", "{NOBODY}"]\nseed = [3, 4]\n'
    file.write_text(f'scenario = "quick"\nkind = "plan"\n{grid}')
    assert main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    results = pd.read_parquet(tmp_path / "out" / "results.parquet")
    assert results["health"].tolist() == ["", "", EMPTY, EMPTY]
    assert f"Health: {results['run'][2]}: {EMPTY} Also in 1 other run.\n" in shown
    assert results["empty_rounds"].tolist() == [0, 0, 2, 2]
    assert shown.count("Health") == 1
    assert main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("Health") == 1, "also of runs that were finished before"


@pytest.mark.usefixtures("tiny_source")
def test_a_run_that_trained_nobody_is_no_success(tmp_path, capsys, monkeypatch) -> None:
    """Its energy of 0 J is the best of all, and its model is the initial one."""
    monkeypatch.chdir(tmp_path)
    nobody = [*tiny_arguments("federation.rounds=2"), "--policy", "tests.helpers.tiny:Nobody"]
    for again in range(2):
        assert main(["run", "femnist", *nobody, "--out", "run"]) == 2, again
        error = capsys.readouterr().err
        assert "nobody took part in 2 rounds, so the model is still the initial one: " in error
    assert main(["compare", "femnist", *nobody, "--policy", "qccf", "--out", "compared"]) == 2
    assert "tests.helpers.tiny:Nobody, codec model, seed 0: nobody took part" in capsys.readouterr().err
    assert main(["run", "femnist", *tiny_arguments("federation.rounds=2"), "--out", "good"]) == 0
    assert "nobody took part" not in capsys.readouterr().err
