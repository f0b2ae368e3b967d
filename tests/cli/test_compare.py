"""`qccf compare`: the table of all runs, resume, several processes, and one sentence for every user error."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from qccf.cli.main import main
from qccf.jobs.training import TrainingJob
from qccf.policies.registry import PAPERS_POLICIES
from tests.helpers.batch_jobs import interrupt_third_run
from tests.helpers.tiny import tiny_arguments

pytestmark = pytest.mark.usefixtures("tiny_source")

FIGURES = ["bits.png", "cell.png", "learning.png", "partition.png"]


def command(out: Path, *more: str) -> list[str]:
    return ["compare", "femnist", *tiny_arguments("federation.rounds=3"), "--out", str(out), *more]


def run_folders(out: Path) -> list[Path]:
    return sorted(path for path in out.iterdir() if path.is_dir() and path.name != "figures")


def folder_of(out: Path, name: str) -> Path:
    """The folder of that policy, codec and seed; its name ends with a digest."""
    (folder,) = (path for path in run_folders(out) if path.name.startswith(f"{name}-"))
    return folder


def test_all_policies_are_compared_and_the_same_command_resumes(tmp_path: Path, capsys, monkeypatch) -> None:
    ran: list[str] = []
    run = TrainingJob.run
    monkeypatch.setattr(TrainingJob, "run", lambda job, *rest: (ran.append(job.folder.name), run(job, *rest))[1])
    out = tmp_path / "comparison"
    assert main(command(out, "--seeds", "2")) == 0
    shown = capsys.readouterr().out
    assert "10 runs in" in shown
    assert len(ran) == len(run_folders(out)) == 10
    summaries = json.loads((out / "summary.json").read_text())
    assert [(s["policy"], s["seed"]) for s in summaries] == [
        (name, seed) for seed in (0, 1) for name in PAPERS_POLICIES
    ]
    assert all(name in shown for name in PAPERS_POLICIES)
    assert "Δ: difference from the first row" in shown
    assert "blurred blobs made for a test" in shown, "synthetic data must be named"
    assert sorted(path.name for path in (out / "figures").glob("*.png")) == FIGURES
    sizes = [
        pd.read_parquet(folder_of(out, f"qccf-model-seed{seed}") / "clients.parquet")["dataset_size"].tolist()
        for seed in (0, 1)
    ]
    assert sizes[0] != sizes[1], "another seed is another cell"
    removed = folder_of(out, "principle-model-seed1")
    (removed / "summary.json").unlink()
    assert main(command(out, "--seeds", "2")) == 0
    assert ran[10:] == [removed.name]
    assert "9 already finished" in capsys.readouterr().out
    assert json.loads((out / "summary.json").read_text()) == summaries


def test_codecs_are_compared(tmp_path: Path, capsys) -> None:
    out = tmp_path / "codecs"
    assert main(command(out, "--policy", "qccf", "--codec", "model,update+entropy")) == 0
    shown = capsys.readouterr().out
    assert "update+entropy" in shown
    assert "Floor:" in shown
    assert [s["codec"] for s in json.loads((out / "summary.json").read_text())] == ["model", "update+entropy"]
    assert [path.name[: -len("-0123456789ab")] for path in run_folders(out)] == [
        "qccf-model-seed0",
        "qccf-update+entropy-seed0",
    ]
    assert main(command(out, "--codec", "model,nothing")) == 2
    assert "codec 'nothing' is not one of model, update" in capsys.readouterr().err


def test_an_interrupted_comparison_prints_how_to_resume(tmp_path: Path, capsys, monkeypatch) -> None:
    calls = interrupt_third_run(TrainingJob, monkeypatch)
    assert main(command(tmp_path)) == 130
    shown = capsys.readouterr().out
    assert "Stopped: 2 done, 0 running, 3 left" in shown
    assert "resume with the same command." in shown
    assert not (tmp_path / "summary.json").exists()
    assert main(command(tmp_path)) == 0
    assert len(calls) == 3 + 3


def test_the_table_of_the_other_runs_is_printed_when_one_fails(tmp_path: Path, capsys, monkeypatch) -> None:
    run = TrainingJob.run

    def principle_fails(job, *rest):
        if job.scenario.policy.name == "principle":
            raise RuntimeError("memory ran out")
        run(job, *rest)

    monkeypatch.setattr(TrainingJob, "run", principle_fails)
    assert main(command(tmp_path)) == 1
    assert "failed: RuntimeError: memory ran out" in capsys.readouterr().out
    assert {s["policy"] for s in json.loads((tmp_path / "summary.json").read_text())} == set(PAPERS_POLICIES) - {
        "principle"
    }


@pytest.mark.slow
def test_several_processes_leave_the_same_runs(tmp_path: Path) -> None:
    more = ["--policy", "qccf,same-size", "--set", "data.dataset=tests.helpers.tiny:TinySource"]
    assert main(command(tmp_path / "one", *more)) == 0
    assert main(command(tmp_path / "two", *more, "--jobs", "2")) == 0
    for one, two in zip(run_folders(tmp_path / "one"), run_folders(tmp_path / "two"), strict=True):
        assert one.name == two.name
        assert (one / "rounds.parquet").read_bytes() == (two / "rounds.parquet").read_bytes()


def test_tensorboard_logs_every_run_or_is_refused_before_the_first(tmp_path: Path, capsys, monkeypatch) -> None:
    logged: list[Path] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            logged.append(Path(folder))

        def add_scalar(self, *_) -> None:
            pass

        def flush(self) -> None:
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    out = tmp_path / "logged"
    assert main(command(out, "--policy", "qccf,same-size", "--tensorboard")) == 0
    assert sorted(logged) == [folder / "tensorboard" for folder in run_folders(out)]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(command(tmp_path / "refused", "--tensorboard")) == 2
    assert "pip install 'qccf[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "qccf,nothing"], "policy 'nothing'"),
        (["--seeds", "0"], "--seeds 0 is out of range: give 1 to 1000."),
        (["--jobs", "0"], "--jobs 0 is out of range"),
        (["--also-rounds", "5"], "--also-rounds 5 is for what --also adds: give --also PRESET as well."),
        (["--also", "lean", "--also-rounds", "0"], "federation.rounds"),
        (["--also", "lean", "--also", "lean"], "--also would call two kinds of run 'lean'"),
        (["--set", "policy.label=lean", "--also", "lean"], "--also would call two kinds of run 'lean'"),
        (["--set", "data.dataset=emnist"], "emnist"),
    ],
)
def test_user_errors_get_one_sentence_before_the_first_run(tmp_path: Path, capsys, arguments, sentence) -> None:
    assert main(command(tmp_path / "out", *arguments)) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_targets_are_listed_with_what_they_took_and_a_preset_is_compared_beside(tmp_path: Path, capsys) -> None:
    out = tmp_path / "both"
    arguments = command(out, "--policy", "qccf", "--also", "lean", "--rounds", "8", "--targets", "0.3,0.99")
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "To reach an accuracy" in shown
    assert "30 %, qccf" in shown
    assert "30 %, lean qccf" in shown
    assert "99 %, qccf, model not reached – –" in shown, "lean brings its own codec along"
    assert "the mean of 3 evaluations on 100 test samples" in shown
    assert main([*arguments, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(one["policy"], one["label"]) for one in runs] == [("qccf", ""), ("qccf", "lean")]
    for one in runs:
        assert one["targets"]["0.99"] is None
        assert set(one["targets"]["0.3"]) == {"rounds", "seconds", "energy_j"}
    assert runs[1]["energy_j"] < runs[0]["energy_j"], "one epoch of few clients"


def test_what_is_compared_beside_may_have_more_rounds(tmp_path: Path, capsys) -> None:
    arguments = command(tmp_path / "more", "--policy", "qccf", "--also", "lean", "--also-rounds", "5", "--rounds", "3")
    assert main(arguments) == 0
    assert "tiny, 3 to 5 rounds, 1 seed" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["rounds"] for one in runs] == [3, 5]


def test_a_file_without_a_label_is_told_apart_by_its_name(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine.toml").write_text('preset = "quick"\n[learning]\nlearning_rate = 0.01\n')
    arguments = command(tmp_path / "out", "--policy", "qccf", "--also", str(tmp_path / "mine.toml"))
    assert main([*arguments, "--rounds", "3", "--also-rounds", "5"]) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if line.lstrip().startswith(("qccf ", "mine qccf "))]
    assert [(row[0], row[-1]) for row in rows[:2]] == [("qccf", "3"), ("mine", "5")], "with its number of rounds"


def test_runs_stop_at_an_accuracy_and_are_finished(tmp_path: Path, capsys) -> None:
    arguments = command(tmp_path / "stopped", "--policy", "qccf", "--rounds", "30", "--until-accuracy", "0.5")
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "tiny, up to 30 rounds, 1 seed" in shown
    assert "50 %, qccf" in shown
    assert main(arguments) == 0
    assert "1 already finished" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["75", "0.5,high", ""])
def test_targets_that_are_no_accuracies_are_refused(tmp_path: Path, capsys, text: str) -> None:
    assert main(command(tmp_path / "none", "--targets", text)) == 2
    assert "is not a list of accuracies between 0 and 1" in capsys.readouterr().err
