"""The command line as a whole: `qccf --help` is fast because a command imports what it needs when it is called."""

import subprocess
import sys

import pytest

from qccf.cli.main import COMMANDS, main, parser
from qccf.settings.loading import PRESETS


def test_the_parser_loads_no_large_package() -> None:
    heavy = ("torch", "pandas", "matplotlib", "rich", "numpy", "scipy", "pydantic")
    code = f"import sys, qccf.cli.main; qccf.cli.main.parser(); print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_help_names_every_command_and_preset(capsys) -> None:
    for arguments, names in ((["--help"], COMMANDS), (["run", "--help"], PRESETS)):
        with pytest.raises(SystemExit, match="0"):
            parser().parse_args(arguments)
        shown = capsys.readouterr().out
        assert all(name in shown for name in names)


@pytest.mark.parametrize(
    ("command", "function", "arguments", "extra"),
    [("data", "data_command", ["list"], "sim"), ("flower", "flower_command", ["new", "app"], "flower")],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, capsys, command, function, arguments, extra) -> None:
    def fail(package: str):
        def run(_options):
            raise ModuleNotFoundError(name=package)

        return run

    monkeypatch.setattr(f"qccf.cli.{command}.{function}", fail("missing"))
    assert main([command, *arguments]) == 2
    assert capsys.readouterr().err == f"qccf: this command needs missing: pip install 'qccf[{extra}]'.\n"
    monkeypatch.setattr(f"qccf.cli.{command}.{function}", fail("qccf.nothing"))
    assert main([command, *arguments]) == 1  # a fault of ours, not a missing package
    assert "this is a fault in qccf" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_only_commands_that_train_change_the_allocator(monkeypatch, command) -> None:
    """The change lasts until the process ends, so no other command and no library function makes it."""
    required = {"sweep": ["x"], "report": ["x"], "decide": ["x"], "data": ["list"], "flower": ["new", "x"]}
    required |= {"completion": ["bash"], "device": ["measure"]}
    changed: list[int] = []
    monkeypatch.setattr("qccf.cli.main.keep_freed_memory", lambda: changed.append(1))
    monkeypatch.setattr(f"qccf.cli.{command}.{command}_command", lambda _options: 0)
    assert main([command, *required.get(command, [])]) == 0
    assert len(changed) == (command in ("run", "compare", "reproduce", "sweep"))


PLUGIN = """
class Policy:
    def __init__(self, constants, *, rounds):
        pass

    def init(self, *arguments):
        return {}

    def decide(self, *arguments):
        return 1 / 0

    def update(self, state, *arguments):
        return state
"""


@pytest.mark.parametrize("debug", ["", "before", "after"])
def test_an_error_in_a_plugin_names_it_with_its_line(tmp_path, monkeypatch, capsys, debug: str) -> None:
    name = f"broken_{debug or 'plain'}"
    (tmp_path / f"{name}.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    plan = ["plan", "quick", "--rounds", "1", "--seeds", "1", "--policy", f"{name}:Policy", "--out", "out"]
    assert main(["--debug"] * (debug == "before") + plan + ["--debug"] * (debug == "after")) == 2
    error = capsys.readouterr().err
    sentence = (
        f"qccf: policy '{name}:Policy' failed in decide ({name}.py, line 10): ZeroDivisionError: division by zero"
    )
    if debug:
        assert error.startswith("Traceback")
        assert error.endswith(f"{sentence}.\n")
    else:
        assert error == f"{sentence}; run again with --debug for the traceback.\n"


def test_a_fault_of_our_own_says_so_and_keeps_the_traceback(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("qccf.settings.reference.settings_reference", lambda: {}["key"])
    assert main(["settings"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("qccf: this is a fault in qccf (")
    assert error.count("\n") == 1
    (file,) = tmp_path.glob("qccf-fault-*.txt")
    assert str(file) in error
    assert "Traceback" in file.read_text()
