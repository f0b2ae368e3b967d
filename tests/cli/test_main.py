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
    ("arguments", "missing", "extra"),
    [(["data", "list"], "rich.table", "sim"), (["flower", "new", "x"], "qccf.runtimes.flower.scaffold", "flower")],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, capsys, arguments, missing, extra) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    if missing.startswith("qccf"):
        with pytest.raises(ModuleNotFoundError):
            main(arguments)
        return
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"qccf: this command needs {missing}: pip install 'qccf[{extra}]'.\n"
