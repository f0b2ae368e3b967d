"""`qccf plan --statistics-from`: the statistics of a training run instead of a model of them."""

import json
from pathlib import Path

import pytest

from qccf.cli.main import main
from qccf.rounds.run_folder import read_run
from tests.helpers.tiny import tiny_arguments

pytestmark = pytest.mark.usefixtures("tiny_source")


@pytest.fixture
def recorded(tmp_path: Path, capsys) -> Path:
    out = tmp_path / "run"
    assert main(["run", "femnist", *tiny_arguments("federation.rounds=4"), "--seed", "3", "--out", str(out)]) == 0
    capsys.readouterr()
    return out


def plan(recorded: Path, *more: str) -> list[str]:
    scenario = str(recorded / "scenario.toml")
    arguments = ["plan", scenario, "--statistics-from", str(recorded), "--policy", "qccf", "--seeds", "1"]
    return [*arguments, "--out", str(recorded.parent / "plan"), *more]


def test_the_plan_of_a_recorded_run_repeats_its_decisions(recorded: Path, capsys) -> None:
    assert main(plan(recorded)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Statistics used instead of training: 4 rounds recorded in {recorded}." in shown
    (planned,) = json.loads((recorded.parent / "plan" / "plan.json").read_text())["runs"]
    run = read_run(recorded)
    assert planned["rounds"]["energy_j"] == pytest.approx(run.round_columns["energy_j"].tolist(), rel=1e-12)
    assert planned["rounds"]["mean_bits"] == pytest.approx(run.mean_bits.tolist(), rel=1e-12)


def test_beyond_the_last_recorded_round_values_are_held(recorded: Path, capsys) -> None:
    assert main(plan(recorded, "--rounds", "6")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        f"4 rounds recorded in {recorded}; after that the last values are held, and the loss goes on falling." in shown
    )


def test_a_folder_that_does_not_fit_is_refused_with_one_sentence(recorded: Path, capsys) -> None:
    for arguments, sentence in (
        (["--set", "federation.num_clients=4"], "federation.num_clients = 4, but the run in"),
        (["--statistics-from", str(recorded.parent / "absent")], "holds no complete run"),
    ):
        assert main(plan(recorded, *arguments)) == 2
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1
    assert not (recorded.parent / "plan").exists()
