"""`qccf device measure`."""

import signal
from io import StringIO

import pytest
from rich.console import Console

from qccf.cli import device
from qccf.cli.main import main
from qccf.devices.profiles.registry import find_profile
from qccf.runtimes import device as runtime
from tests.helpers.tiny import SETTINGS

pytestmark = pytest.mark.usefixtures("tiny_source")


def measure(*options: str) -> int:
    settings = [part for setting in [*SETTINGS, "data.dataset=tiny"] for part in ("--set", setting)]
    return main(["device", "measure", "quick", *settings, "--seconds", "0.2", "--frequency", "1e9", *options])


def test_a_profile_is_written_that_can_be_used(tmp_path, capsys) -> None:
    path = tmp_path / "mine.toml"
    assert measure("--meter", "none", "--out", str(path)) == 0
    shown = capsys.readouterr()
    assert "The energy of computing was not measured: assumed 1 nJ" in shown.out
    assert str(path) in shown.out
    assert "warming up" in shown.err
    profile = find_profile(str(path))
    assert profile.sources["energy_coefficient"].startswith("assumed")
    assert profile.cycles_per_sample == "auto"
    assert [one.name for one in tmp_path.glob("*.toml")] == ["mine.toml"]

    assert measure("--out", str(path)) == 2
    assert "exists: name another file, or replace it with --force" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm"])
def test_a_measurement_that_is_stopped_leaves_no_file(tmp_path, capsys, monkeypatch, how: str) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def stopped(*_: object, **__: object) -> None:
        if how == "ctrl-c":
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(runtime, "measure_device", stopped)
    assert measure("--out", str(tmp_path / "mine.toml")) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not list(tmp_path.glob("*mine*"))
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--out", "mine.json"), "is not the name of a TOML file"),
        (("--threads", "0"), "--threads 0 is out of range"),
        (("--meter", "battry"), "did you mean 'battery'"),
        (("--model", "big-cnn"), "model 'big-cnn' is not one of"),
    ],
)
def test_mistakes_are_sentences(tmp_path, capsys, monkeypatch, options, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert measure(*options) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.glob("*.toml"))


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_a_bar_on_a_terminal_and_a_line_per_part_elsewhere(terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=terminal, width=80)
    with device._view(console) as show:
        for done in (0.0, 1.0, 2.0):
            show("training at 600 MHz", done, 2.0)
    shown = console.file.getvalue()
    assert "training at 600 MHz" in shown
    assert terminal or shown == "training at 600 MHz, 2 s …\n"
