"""Completion in the shell."""

import os
import subprocess
import sys

import pytest

from qccf.cli import choices, completers
from qccf.cli.main import COMMANDS, main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(capsys, shell: str) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert "qccf" in shown
    assert ("complete --command qccf" if shell == "fish" else "complete -o") in shown


def completions(line: str) -> set[str]:
    """What argcomplete offers at the end of a line, as a shell asks for it."""
    read, write = os.pipe()
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_STDOUT_FILENAME": f"/dev/fd/{write}",
    }
    code = "from qccf.cli.main import main; main()"
    with os.fdopen(read) as offered:
        subprocess.run([sys.executable, "-c", code], env=environment, pass_fds=(write,), check=False)
        os.close(write)
        return {word.strip() for word in offered.read().split("\n") if word.strip()}


def test_commands_options_and_names_are_offered() -> None:
    assert set(COMMANDS) <= completions("qccf ")
    assert completions("qccf run --pol") == {"--policy"}
    assert completions("qccf compare --policy qccf,same") == {"qccf,same-size"}
    assert "quick" in completions("qccf plan ")


def test_lists_settings_and_their_values() -> None:
    assert completers.policies("qccf,") == [f"qccf,{name}" for name in choices.POLICIES if name != "qccf"]
    assert completers.codecs("") == list(choices.CODECS)
    assert completers.datasets() == list(choices.DATASETS)
    assert "radio.bandwidth_hz=" in completers.overrides("rad")
    assert completers.overrides("data.dataset=")[0] == "data.dataset=handwriting"
    assert completers.overrides("control.form=") == ["control.form=scale-free", "control.form=paper"]
    assert completers.overrides("radio.bandwidth_hz=") == []
    assert "control.paper" in completers.sections()
