"""`qccf run`."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from qccf.cli.main import main
from qccf.core.errors import DataError
from qccf.learning.datasets import require_dataset
from tests.helpers.tiny import SETTINGS, tiny_arguments

FIGURES = ["bits.png", "cell.png", "learning.png", "partition.png"]


pytestmark = pytest.mark.usefixtures("tiny_source")


def test_a_run_writes_a_folder_and_prints_its_results(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert (
        main(
            [
                "run",
                "femnist",
                *tiny_arguments(),
                "--policy",
                "same-size",
                "--rounds",
                "6",
                "--seed",
                "3",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "same-size, codec model, seed 3: round 6/6" in shown
    assert "blurred blobs made for a test" in shown, "synthetic data must be named"
    assert f"Written: {out}" in shown
    assert sorted(path.name for path in (out / "figures").glob("*.png")) == FIGURES
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["policy"], summary["seed"], summary["rounds"]) == ("same-size", 3, 6)
    assert len(pd.read_parquet(out / "rounds.parquet")) == 6


def test_a_finished_run_can_be_resumed_without_harm(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["run", "femnist", *tiny_arguments(), "--out", str(out)]) == 0
    before = (out / "rounds.parquet").read_bytes()
    assert main(["run", "--resume", str(out), "--workers", "1", "--trust"]) == 0
    assert (out / "rounds.parquet").read_bytes() == before
    assert main(["run", "--resume", str(tmp_path / "nothing")]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_run_takes_a_codec_and_has_a_default(tmp_path: Path) -> None:
    kept = [value for value in (*SETTINGS, "data.dataset=tiny", "federation.rounds=2") if value != "codec.name=model"]
    plain = [part for value in kept for part in ("--set", value)]
    for arguments, codec in (([], "update+entropy"), (["--codec", "block"], "block")):
        out = tmp_path / codec
        assert main(["run", "femnist", *plain, *arguments, "--out", str(out)]) == 0
        assert json.loads((out / "summary.json").read_text())["codec"] == codec


def test_user_errors_get_one_sentence_before_the_first_round(tmp_path: Path, capsys) -> None:
    cases = [
        (["run", "femnist", "--policy", "nothing"], "policy 'nothing'"),
        (["run", "paper-table"], "needs 28 Mb/s"),
        (
            ["run", "femnist", "--set", "control.inner=closed-form"],
            'inner = "closed-form" has no effect in form = "scale-free"',
        ),
        (
            ["run", "femnist", "--set", "control.inner=closed-form", "--set", "control.form=paper"],
            "those of codec 'update+entropy' are not",
        ),
        (["run", "femnist", "--codec", "block", "--set", "codec.options={block = 0}"], "block = 0 is not possible"),
        (["run", "femnist", "--codec", "model", "--set", "codec.options={block = 4}"], "cannot be built with options"),
        (["run", "femnist", "--set", "data.dataset=nothing"], "nothing"),
        (
            ["run", "femnist", *tiny_arguments("data.dataset_size_mean=5000", "device.cycles_per_sample=100")],
            "samples together but the dataset has 1,200",
        ),
    ]
    for arguments, words in cases:
        assert main([*arguments, "--out", str(tmp_path / "out")]) == 2, arguments
        captured = capsys.readouterr()
        assert words in captured.err
        assert captured.err.count("\n") == 1, captured.err


def test_a_missing_dataset_is_refused_with_one_sentence(capsys, tmp_path: Path) -> None:
    assert main(["run", "femnist", "--set", "data.dataset=emnist", "--out", str(tmp_path / "run")]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "emnist" in captured.err
    with pytest.raises(DataError):
        require_dataset("emnist", tmp_path)


def test_tensorboard_logs_every_number_or_is_refused(tmp_path: Path, capsys, monkeypatch) -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            assert folder.endswith("tensorboard")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def flush(self) -> None:
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    command = [
        "run",
        "femnist",
        *tiny_arguments("federation.rounds=2"),
        "--tensorboard",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(command) == 0
    rounds = pd.read_parquet(tmp_path / "run" / "rounds.parquet")
    energies = [(value, step) for name, value, step in written if name == "cumulative_energy_j"]
    assert energies == list(zip(rounds["cumulative_energy_j"], rounds["round"], strict=True))
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main([*command[:-1], str(tmp_path / "other")]) == 2
    assert "pip install 'qccf[tensorboard]'" in capsys.readouterr().err


def test_a_diverging_training_ends_with_one_sentence_and_keeps_its_checkpoints(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("tests.helpers.tiny.Tiny.forward", _explode_later())
    out = tmp_path / "run"
    assert main(["run", "femnist", *tiny_arguments(), "--workers", "1", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "the training diverged" in error
    assert error.count("\n") == 1
    assert list((out / "checkpoints").glob("*.npz"))


def _explode_later():
    """A forward pass that turns to NaN after two rounds' worth of calls."""
    calls = [0]

    def forward(self, images):
        calls[0] += 1
        logits = self.layer(images.flatten(1))
        return logits * float("nan") if calls[0] > 90 else logits

    return forward


def test_a_run_stops_at_an_accuracy_and_is_extended_to_a_higher_one(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    start = ["run", "femnist", *tiny_arguments(), "--rounds", "30", "--until-accuracy", "0.4", "--out", str(out)]
    assert main(start) == 0
    rounds = json.loads((out / "summary.json").read_text())["rounds"]
    assert rounds < 30
    assert main(start) == 0
    assert "This run was finished already" in capsys.readouterr().out
    assert main(["run", "--resume", str(out), "--until-accuracy", "0.6", "--trust"]) == 0
    after = json.loads((out / "summary.json").read_text())
    assert rounds < after["rounds"] <= 30
    assert main(["run", "--resume", str(out), "--until-accuracy", "0.3", "--trust"]) == 2
    assert "--until-accuracy 0.3 would make this run shorter (it stops at 0.6)" in capsys.readouterr().err
