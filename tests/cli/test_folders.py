"""Nothing is overwritten: the default folder of each command, and folders that already hold something."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from qccf.cli.folders import kind_of, remove_written
from qccf.cli.main import main
from qccf.core.errors import RunFolderError
from qccf.core.files import alone_in
from qccf.rounds.run_folder import begin_run
from qccf.runtimes.clients import Clients
from tests.helpers.tiny import tiny_arguments, tiny_scenario

pytestmark = pytest.mark.usefixtures("tiny_source")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trained(monkeypatch) -> list[int]:
    """The rounds that are trained."""
    rounds: list[int] = []
    train = Clients.train

    def counted(self, who, weights, round_index, then):
        rounds.append(round_index)
        return train(self, who, weights, round_index, then)

    monkeypatch.setattr(Clients, "train", counted)
    return rounds


def run(*more: str) -> int:
    return main(["run", "femnist", *tiny_arguments("federation.rounds=3"), *more])


def files() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def refused(capsys) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


def test_each_settings_have_their_own_folder_and_find_it_again(capsys, trained: list[int]) -> None:
    assert run() == 0
    (first,) = Path("runs").iterdir()
    assert first.name.startswith("femnist-qccf-model-seed0-")
    assert len(first.name.rpartition("-")[2]) == 8
    assert trained == [0, 1, 2]
    assert run("--rounds", "2") == 0
    assert run("--seed", "1") == 0
    assert run("--set", "control.slack=3.0") == 0
    assert len(list(Path("runs").iterdir())) == 4
    assert len(pd.read_parquet(first / "rounds.parquet")) == 3
    before = files()
    trained.clear()
    capsys.readouterr()
    assert run("--workers", "2", "--set", "execution.checkpoint_every=7") == 0
    shown = capsys.readouterr().out
    assert "This run was finished already: nothing was trained" in shown
    assert "tiny, 3 rounds, codec model" in shown
    assert f"Written: {first}" in shown
    assert (trained, files()) == ([], before)


@pytest.mark.parametrize("name", ["learning.optimizer=admw", "learning.loss=cross", "data.transform=['flop']"])
def test_a_mistake_leaves_no_folder_behind(capsys, name: str) -> None:
    assert run("--set", name, "--out", "mine") == 2
    assert "is not one of" in capsys.readouterr().err
    assert not Path("mine").exists()


def test_a_run_that_completed_no_round_does_not_hold_its_folder(trained: list[int]) -> None:
    begin_run(Path("mine"), tiny_scenario())
    Path("mine/.lock").touch()
    assert run("--out", "mine") == 0
    assert trained == [0, 1, 2]


def test_results_of_another_version_of_ones_own_code_are_not_shown_as_todays(capsys) -> None:
    own = Path("own_policy_of_this_test.py")
    own.write_text("from qccf.policies.channel_allocate import ChannelAllocate as Mine\n")
    assert run("--policy", f"{own.stem}:Mine", "--out", "mine") == 0
    assert run("--policy", f"{own.stem}:Mine") == 0
    own.write_text(own.read_text() + "# changed\n")
    before = files()
    capsys.readouterr()
    assert run("--policy", f"{own.stem}:Mine", "--out", "mine") == 2
    assert "mine holds a run of another version of your own code (own_policy_of_this_test:Mine" in refused(capsys)
    assert files() == before
    assert run("--policy", f"{own.stem}:Mine") == 0
    assert len(list(Path("runs").iterdir())) == 2, "other code has another default folder"


def test_an_unfinished_run_resumes_from_its_default_folder(trained: list[int], monkeypatch) -> None:
    stop = Clients.evaluate

    def interrupted(self, weights, samples=None):
        if trained[-1] == 1:
            raise KeyboardInterrupt
        return stop(self, weights, samples)

    monkeypatch.setattr(Clients, "evaluate", interrupted)
    assert run() == 130
    monkeypatch.setattr(Clients, "evaluate", stop)
    trained.clear()
    assert run() == 0
    assert trained == [1, 2]
    assert len(list(Path("runs").iterdir())) == 1


def test_a_folder_with_something_else_is_refused_and_left_as_it_is(capsys) -> None:
    compare = ["compare", "femnist", *tiny_arguments("federation.rounds=2"), "--policy", "qccf"]
    assert run("--out", "run") == 0
    assert main([*compare, "--out", "comparison"]) == 0
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    Path("reproduction").mkdir()
    Path("reproduction/reproduction.json").write_text("{}")
    before = files()
    capsys.readouterr()
    cases = [
        (["--out", "run", "--rounds", "2"], "holds another run (federation.rounds = 3 there, 2 here)"),
        (["--out", "comparison"], "holds a comparison: name another folder with --out, or replace it with --force."),
        (["--out", "mine"], "holds files of another origin"),
        (["--out", "reproduction"], "holds a reproduction: name another folder with --out."),
        (["--out", "reproduction", "--force"], "which --force does not remove"),
    ]
    for arguments, sentence in cases:
        assert run(*arguments) == 2, arguments
        assert sentence in refused(capsys)
    for arguments, sentence in (
        (["--out", "run"], "holds a run: name"),
        (["--out", "comparison", "--seeds", "2"], "holds a comparison of other settings"),
        (["--out", "mine"], "holds files of another origin"),
    ):
        assert main([*compare, *arguments]) == 2
        assert sentence in refused(capsys)
    assert {path: data for path, data in files().items() if path.name != ".lock"} == {
        path: data for path, data in before.items() if path.name != ".lock"
    }
    assert not Path("mine/.lock").exists()


def test_force_replaces_what_qccf_wrote_and_nothing_else(trained: list[int]) -> None:
    compare = ["compare", "femnist", *tiny_arguments("federation.rounds=2"), "--policy", "qccf", "--out", "out"]
    assert main(compare) == 0
    for name in ("out/notes.txt", "out/figures/mine.png", "out/other/summary.json"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("mine")
    assert run("--out", "out", "--force") == 0
    assert kind_of(Path("out")) == "run"
    assert sorted(path.name for path in Path("out").iterdir()) == [
        ".lock", "checkpoints", "clients.parquet", "figures", "notes.txt", "other", "rounds.parquet", "scenario.toml",
        "statistics.parquet", "summary.json",
    ]  # fmt: skip
    trained.clear()
    assert run("--out", "out", "--force", "--rounds", "2") == 0
    assert trained == [0, 1]
    assert sorted(path.name for path in Path("out/checkpoints").iterdir()) == ["round-000001.npz", "round-000002.npz"]
    for name in ("out/notes.txt", "out/figures/mine.png", "out/other/summary.json"):
        assert Path(name).read_text() == "mine"


def test_a_users_folder_keeps_its_files_even_if_they_have_our_names() -> None:
    folder = Path("project")
    folder.mkdir()
    for name in ("scenario.toml", "summary.json.bak", "plan.json", "results.parquet"):
        (folder / name).write_text("mine")
    before = files()
    assert kind_of(folder) is None
    remove_written(folder)
    assert files() == before


def test_a_sweep_and_a_run_are_removed_but_links_are_not_followed() -> None:
    assert run("--out", "elsewhere") == 0
    runs = Path("sweep/runs")
    runs.mkdir(parents=True)
    shutil.copytree("elsewhere", runs / "one")
    (runs / "link").symlink_to(Path("elsewhere").resolve())
    Path("sweep/sweep.toml").write_text("kind = 'plan'")
    remove_written(Path("sweep"))
    assert [path.name for path in runs.iterdir()] == ["link"]
    assert kind_of(Path("elsewhere")) == "run"
    remove_written(Path("elsewhere"))
    assert [path.name for path in Path("elsewhere").iterdir()] == [".lock"]


def test_a_folder_in_use_is_refused(capsys) -> None:
    compare = ["compare", "femnist", *tiny_arguments("federation.rounds=2"), "--policy", "qccf"]
    with alone_in(Path("busy")):
        for command in (["--out", "busy"], ["--out", "busy", "--force"]):
            assert run(*command) == 2
            assert "another process works in busy" in refused(capsys)
            assert main([*compare, *command]) == 2
            assert "another process works in busy" in refused(capsys)


def test_comparisons_have_folders_of_their_own(capsys) -> None:
    compare = ["compare", "femnist", *tiny_arguments("federation.rounds=2"), "--policy", "qccf,principle"]
    assert main(compare) == 0
    assert "tiny, 2 rounds, 1 seed, codec model" in " ".join(capsys.readouterr().out.split())
    (first,) = Path("runs").iterdir()
    assert first.name.startswith("compare-femnist-")
    before = (first / "summary.json").read_bytes()
    assert main([*compare, "--rounds", "1"]) == 0
    assert len(list(Path("runs").iterdir())) == 2
    assert (first / "summary.json").read_bytes() == before
    assert main([*compare, "--workers", "2"]) == 0
    assert "2 already finished" in capsys.readouterr().out
    assert len(list(Path("runs").iterdir())) == 2


def test_a_run_is_extended_by_resume_and_rounds(capsys, trained: list[int]) -> None:
    assert run("--out", "run") == 0
    assert run("--out", "long", "--rounds", "5") == 0
    trained.clear()
    assert main(["run", "--resume", "run", "--rounds", "5", "--workers", "1", "--trust"]) == 0
    assert trained == [3, 4]
    for name in ("rounds.parquet", "clients.parquet", "statistics.parquet"):
        assert Path("run", name).read_bytes() == Path("long", name).read_bytes()
    shown = [json.loads(Path(folder, "summary.json").read_text()) for folder in ("run", "long")]
    assert shown[0] == shown[1]
    trained.clear()
    assert main(["run", "--resume", "run", "--trust"]) == 0
    assert trained == []
    assert "finished already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rounds", "2"], "--rounds 2 is less than the 3 rounds of this run"),
        (["--set", "control.slack=3.0"], "so --set cannot be given"),
        (["--seed", "0"], "so --seed cannot be given"),
        (["--policy", "qccf"], "so --policy cannot be given"),
        (["--codec", "model"], "so --codec cannot be given"),
        (["--out", "other"], "so --out cannot be given"),
        (["--force"], "so --force cannot be given"),
        (["femnist"], "so a scenario cannot be given"),
        (["--precision", "bf16"], "leave out --device and --precision"),
    ],
)
def test_resume_refuses_what_it_would_ignore(capsys, arguments: list[str], sentence: str) -> None:
    assert run("--out", "run") == 0
    before = files()
    capsys.readouterr()
    assert main(["run", "--resume", "run", "--trust", *arguments]) == 2
    assert sentence in refused(capsys)
    assert files() == before


def test_a_reproduction_is_never_removed() -> None:
    Path("reproduction").mkdir()
    Path("reproduction/reproduction.json").write_text("{}")
    with pytest.raises(RunFolderError, match="does not remove"):
        remove_written(Path("reproduction"))
