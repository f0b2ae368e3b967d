"""A folder from somebody else is data: no code that it names runs, no link is followed out of it, nothing is written
outside, and whatever it says is shown as text."""

import json
import os
import shutil
import signal
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from qccf.cli.main import main
from qccf.core.errors import ConfigError, QccfError
from qccf.core.registry import without_plugins
from qccf.rounds.run_folder import read_run, read_scenario, require_only_data
from qccf.settings.loading import PLUGINS, load_scenario, own_names, with_settings
from qccf.settings.reference import settings_reference
from tests.helpers.tiny import tiny_arguments

EVIL = """
from pathlib import Path
Path("ran").touch()
def P(*arguments, **options):
    Path("ran").touch()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three rounds, whose model is a plug-in."""
    from qccf.learning.datasets import DATASETS
    from tests.helpers.tiny import TinySource

    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "tiny", TinySource)
        patch.setenv("QCCF_DATA", str(folder / "data"))
        patch.chdir(folder)
        assert main(["run", "femnist", *tiny_arguments("federation.rounds=3"), "--out", "run"]) == 0
    return folder / "run"


@pytest.fixture
def theirs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_source: Path) -> Path:  # noqa: ARG001
    """A copy of it in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, "theirs")
    return Path("theirs")


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    assert "fault in qccf" not in error
    return error


def change_settings(folder: Path, **changes: object) -> None:
    """Change settings in the file only, as somebody may who knows the format, and pretend to be an old version."""
    path = folder / "scenario.toml"
    tree = with_settings(tomllib.loads(path.read_text()), {key.replace("__", "."): v for key, v in changes.items()})
    path.write_text(tomli_w.dumps(tree))
    summary = json.loads((folder / "summary.json").read_text())
    summary.pop("digests", None)
    summary["version"] = "0.1.0"
    (folder / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize(
    "setting",
    [
        "policy.name", "codec.name", "data.dataset", "learning.model", "learning.loss", "learning.optimizer",
        "cell.path_loss", "data.fallbacks", "data.transform",
    ],
)  # fmt: skip
def test_resume_and_report_load_no_code_that_the_folder_names(theirs: Path, setting: str, capsys) -> None:
    Path("evil.py").write_text(EVIL)
    listed = setting in ("data.fallbacks", "data.transform")
    change_settings(theirs, learning__model="femnist-cnn", data__dataset="handwriting")
    change_settings(theirs, **{setting.replace(".", "__"): ["evil:P"] if listed else "evil:P"})
    capsys.readouterr()
    assert main(["run", "--resume", "theirs", "--rounds", "4"]) == 2
    assert f"theirs names code ({setting} = 'evil:P')" in one_sentence(capsys)
    assert main(["report", "theirs"]) in (0, 2)
    assert not Path("ran").exists()


def test_every_setting_that_may_name_code_is_known() -> None:
    named = [info.path for info in settings_reference() if "module:" in info.description]
    assert set(named) <= set(PLUGINS)
    scenario = load_scenario("quick", ["policy.name=a:B", "codec.name=c:D", "data.transform=['flip', 'e:F']"])
    assert own_names(scenario) == {"policy.name": "a:B", "codec.name": "c:D", "data.transform": "e:F"}


@pytest.mark.usefixtures("theirs")
def test_trust_and_the_users_own_command_line_load_code(capsys) -> None:
    assert main(["run", "--resume", "theirs", "--rounds", "4"]) == 2
    assert "read it, then allow it with --trust." in one_sentence(capsys)
    assert main(["run", "--resume", "theirs", "--rounds", "4", "--trust"]) == 0
    same = ["run", "femnist", *tiny_arguments("federation.rounds=4"), "--out", "theirs"]
    assert main(same) == 0
    assert "finished already" in capsys.readouterr().out
    assert main([*same, "--trust"]) == 2
    assert "--trust is for the folder of --resume" in one_sentence(capsys)


def test_plugins_are_loaded_again_after_an_untrusted_folder() -> None:
    from qccf.learning.models.registry import MODELS

    with without_plugins("x"), pytest.raises(ConfigError, match="is code that x names"):
        MODELS.find("tests.helpers.tiny:Tiny")
    assert MODELS.find("tests.helpers.tiny:Tiny").__name__ == "Tiny"


@pytest.mark.parametrize("name", ["summary.json", "rounds.parquet", "clients.parquet", "scenario.toml"])
def test_no_link_is_read_out_of_the_folder(theirs: Path, name: str, capsys) -> None:
    shutil.copytree(theirs, "elsewhere")
    (theirs / name).unlink()
    (theirs / name).symlink_to(Path("elsewhere", name).resolve())
    with pytest.raises(QccfError, match="leads out of theirs"):
        read_run(theirs)
    assert main(["report", "theirs"]) == 2
    assert "leads out of" in one_sentence(capsys)


def test_a_pipe_in_the_folder_does_not_hang(theirs: Path) -> None:
    (theirs / "rounds.parquet").unlink()
    os.mkfifo(theirs / "rounds.parquet")
    with pytest.raises(QccfError, match="is not a file"):
        read_run(theirs)


@pytest.mark.parametrize("name", ["figures", "checkpoints"])
def test_nothing_is_written_through_a_link(theirs: Path, name: str, capsys) -> None:
    Path("victim").mkdir()
    shutil.rmtree(theirs / name)
    (theirs / name).symlink_to(Path("victim").resolve())
    (theirs / "rounds.parquet").write_bytes(b"damaged, so that resuming would write")
    capsys.readouterr()
    change_settings(theirs, learning__model="femnist-cnn", data__dataset="handwriting")
    assert main(["run", "--resume", "theirs"]) == 2
    assert "leads out of theirs" in one_sentence(capsys)
    if name == "figures":
        assert main(["report", "theirs"]) == 2
    assert list(Path("victim").iterdir()) == []


def test_a_lock_that_is_a_link_truncates_nothing(theirs: Path, capsys) -> None:
    Path("victim").write_text("mine")
    (theirs / ".lock").unlink()
    (theirs / ".lock").symlink_to(Path("victim").resolve())
    assert main(["run", "--resume", "theirs", "--rounds", "4", "--trust"]) == 2
    assert "is a link" in one_sentence(capsys)
    assert Path("victim").read_text() == "mine"


@pytest.mark.usefixtures("theirs")
def test_a_manifest_names_no_folder_outside(capsys) -> None:
    Path("inner").mkdir()
    tree = {"command": "", "scale": "small", "not_run": [], "failed": [], "runs": ["../theirs"], "studies": []}
    Path("inner/reproduction.json").write_text(json.dumps(tree))
    assert main(["report", "inner"]) == 2
    assert "leads out of inner" in one_sentence(capsys)


def test_the_page_shows_any_settings_as_text(theirs: Path, capsys) -> None:
    evil = "<script>alert(1)</script>/../../x $\\frac{ & [/red] :smile: 😀"
    change_settings(theirs, data__dataset=evil, policy__name=evil)
    summary = json.loads((theirs / "summary.json").read_text())
    summary |= {"data": evil, "precision": evil, "packages": {evil: evil}, "policy": evil, "device": evil}
    summary["health"] = [{"kind": evil, "message": evil}]
    (theirs / "summary.json").write_text(json.dumps(summary))
    (theirs / "diagnosis.md").write_text(f"{evil}\n\n| a | b |\n|---|---|\n| 1 | 2 | 3 | 4 |\n| 1 |\n")
    before = {path for path in Path().rglob("*") if path.is_file() and theirs not in path.parents}
    assert main(["report", "theirs"]) == 0
    page = (theirs / "report.html").read_text()
    assert page.count("<script") == 3, "only the page's own"
    assert "[/red] :smile:" in capsys.readouterr().out
    assert {path for path in Path().rglob("*") if path.is_file() and theirs not in path.parents} == before


def put(key: str, value: object) -> Callable[[dict], dict]:
    return lambda tree: {**tree, key: value}


PRIVACY = {"delta": 1e-5, "uploads": 3, "epsilon_server": 1.0, "epsilon_models": 2, "epsilon_models_unknown": ""}


@pytest.mark.parametrize(
    "changed",
    [
        lambda _: [1, 2],
        lambda _: {},
        put("health", [{"kind": 1}]),
        put("health", 7),
        put("health", [{"kind": "x", "message": 3}]),
        put("health", [{"kind": ["x"], "message": "x"}]),
        put("privacy", {"delta": "x"}),
        put("privacy", PRIVACY | {"delta": "x"}),
        put("privacy", PRIVACY | {"uploads": None}),
        put("privacy", PRIVACY | {"epsilon_server": "<b>"}),
        put("privacy", PRIVACY | {"epsilon_models": [1]}),
        put("privacy", PRIVACY | {"epsilon_models": None, "epsilon_models_unknown": 3}),
        put("privacy", 3),
        put("packages", [1]),
        put("rounds", "many"),
        put("energy_j", "much"),
        put("data", {"a": 1}),
        put("digests", 3),
        put("finished", []),
    ],
)
def test_a_summary_of_any_content_ends_in_one_sentence(theirs: Path, changed, capsys) -> None:
    summary = json.loads((theirs / "summary.json").read_text())
    del summary["digests"]
    summary["version"] = "0.1.0"
    (theirs / "summary.json").write_text(json.dumps(changed(summary)))
    assert main(["report", "theirs"]) in (0, 2)
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "fault in qccf" not in error
    assert error.count("\n") <= 1


@pytest.mark.usefixtures("theirs")
def test_brackets_in_a_path_are_text(capsys) -> None:
    shutil.move("theirs", "a[/b] [red]c")
    assert main(["report", "a[/b] [red]c"]) == 0
    assert "Written: a[/b] [red]c/report.html" in capsys.readouterr().out.replace("\n", "")
    same = ["run", "femnist", *tiny_arguments("federation.rounds=3"), "--out", "a[/b] [red]c"]
    assert main(same) == 0
    assert "Written: a[/b] [red]c" in capsys.readouterr().out


@pytest.mark.parametrize("notes", [b"\xff\xfe", b"| a |\n|---|\n| 1 | 2 |\n", b"## x, y: holds\n|||\n|-|\n", b"\x00"])
def test_notes_of_any_content(theirs: Path, notes: bytes, capsys) -> None:
    (theirs / "diagnosis.md").write_bytes(notes)
    assert main(["report", "theirs"]) in (0, 2)
    assert "fault in qccf" not in capsys.readouterr().err


def test_the_privacy_of_a_summary_is_shown_if_it_has_the_right_types(theirs: Path) -> None:
    summary = json.loads((theirs / "summary.json").read_text()) | {"privacy": PRIVACY, "version": "0.1.0"}
    del summary["digests"]
    (theirs / "summary.json").write_text(json.dumps(summary))
    assert main(["report", "theirs"]) == 0
    assert "ε = 1 at δ = 1e-05 against the server" in (theirs / "report.html").read_text()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail instead of waiting for a pipe."""

    def late(*_: object) -> None:
        pytest.fail(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


FILE_SETTINGS = {"radio.trace": "csv", "devices.table": "csv", "devices.profile": "toml"}


@pytest.mark.parametrize("setting", FILE_SETTINGS)
@pytest.mark.parametrize("kind", ["pipe", "device", "file"])
def test_a_report_opens_no_file_that_the_settings_name(theirs: Path, setting: str, kind: str, capsys) -> None:
    path = Path(f"any.{FILE_SETTINGS[setting]}")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("secret")
    change_settings(theirs, **{setting.replace(".", "__"): str(path.resolve()) if kind != "device" else str(path)})
    with within(30.0):
        held = read_scenario(theirs)
        assert main(["report", "theirs"]) in (0, 2)
    assert "fault in qccf" not in capsys.readouterr().err
    assert held.radio.trace_digest == held.devices.digest == ""
    with pytest.raises(QccfError, match=rf"names a file \({setting} = .*\) without its checksum"):
        require_only_data(theirs, held.replaced(learning={"model": "femnist-cnn"}))


@pytest.mark.parametrize("setting", FILE_SETTINGS)
def test_a_resumed_run_reads_no_pipe(theirs: Path, setting: str, capsys) -> None:
    path = Path(f"pipe.{FILE_SETTINGS[setting]}")
    os.mkfifo(path)
    change_settings(theirs, **{setting.replace(".", "__"): str(path)})
    with within(30.0):
        assert main(["run", "--resume", "theirs", "--rounds", "4", "--trust"]) == 2
    assert "cannot be read: it is not a regular file." in one_sentence(capsys)


@pytest.mark.usefixtures("theirs")
def test_a_run_is_resumed_with_its_own_trace_and_with_no_other(capsys) -> None:
    rates_bps = np.random.default_rng(0).uniform(1e5, 4e5, (7, 5, 5))
    np.savez("t.npz", rates_bps=rates_bps)
    own = ["run", "femnist", *tiny_arguments("federation.rounds=2", "radio.trace=t.npz"), "--out", "own"]
    assert main(own) == 0
    held = read_scenario(Path("own"))
    assert len(held.radio.trace_digest) == 64
    require_only_data(Path("own"), held.replaced(learning={"model": "femnist-cnn"}))
    assert main(["run", "--resume", "own", "--rounds", "3", "--trust"]) == 0
    assert read_run(Path("own")).num_rounds == 3
    assert read_scenario(Path("own")).radio.trace_digest == held.radio.trace_digest
    np.savez("t.npz", rates_bps=rates_bps + 1.0)
    capsys.readouterr()
    assert main(["run", "--resume", "own", "--rounds", "4", "--trust"]) == 2
    assert "is not the trace with which this run began" in one_sentence(capsys)
    assert main(["report", "own"]) == 0


def test_settings_of_a_folder_may_begin_with_a_preset(theirs: Path) -> None:
    """What they state beside it is not compared with a table of clients, which would be opened."""
    os.mkfifo("pipe.csv")
    text = 'preset = "quick"\n[device]\nbattery_j = 5.0\n[devices]\ntable = "pipe.csv"\n'
    (theirs / "scenario.toml").write_text(text)
    with within(10.0):
        assert read_scenario(theirs).device.battery_j == 5.0
