"""`qccf flower new`."""

import tomllib
from pathlib import Path

import pytest

from qccf.cli.main import main
from qccf.runtimes.flower.run_config import RUN_CONFIG


def test_a_new_app_states_every_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "My Federation"
    assert main(["flower", "new", str(folder)]) == 0
    assert "flwr run" in capsys.readouterr().out
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["name"] == "my-federation"
    assert project["tool"]["flwr"]["app"]["config"] == RUN_CONFIG
    for part, target in project["tool"]["flwr"]["app"]["components"].items():
        module, name = target.split(":")
        code: dict[str, object] = {}
        exec((folder / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"), code)
        assert type(code[name]).__name__.lower() == part


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    assert main(["flower", "new", str(tmp_path)]) == 2
    assert "is not empty: name a new folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
