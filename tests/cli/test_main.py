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
    with pytest.raises(ModuleNotFoundError):  # a bug of ours, not a missing package
        main([command, *arguments])


@pytest.mark.parametrize("command", COMMANDS)
def test_only_commands_that_train_change_the_allocator(monkeypatch, command) -> None:
    """The change lasts until the process ends, so no other command and no library function makes it."""
    required = {"sweep": ["x"], "report": ["x"], "decide": ["x"], "data": ["list"], "flower": ["new", "x"]}
    changed: list[int] = []
    monkeypatch.setattr("qccf.cli.main.keep_freed_memory", lambda: changed.append(1))
    monkeypatch.setattr(f"qccf.cli.{command}.{command}_command", lambda _options: 0)
    assert main([command, *required.get(command, [])]) == 0
    assert len(changed) == (command in ("run", "compare", "reproduce", "sweep"))
