"""How names become entries, and what is said of a user's own entry that fails."""

from pathlib import Path

import pytest

from qccf.core.errors import ConfigError
from qccf.core.failures import plugin_failure
from qccf.core.registry import Registry

MODULE = """
def makes(width):
    return int(width)


def fails(width):
    return int("x")


Number = 3
"""


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    (tmp_path / "own_entries.py").write_text(MODULE)
    (tmp_path / "own_import.py").write_text("\nimport no_such_helper\n")
    (tmp_path / "own_syntax.py").write_text("x = (\n")
    monkeypatch.chdir(tmp_path)
    return Registry("optimizer", {"sgd": lambda width: width}, call="callable(width)")


def test_an_entry_is_built(entries: Registry) -> None:
    assert entries.build("sgd", width=2) == entries.build("own_entries:makes", width="2") == 2


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "sdg",
            r"optimizer 'sdg' is not one of sgd \(did you mean 'sgd'\?\); name one of your own as module:callable.",
        ),
        ("own_nothing:makes", "there is no module own_nothing; it must be importable from the current folder."),
        ("own_entries:make", "module own_entries has no make; did you mean makes?"),
        ("own_import:makes", "own_import.py, line 2: ModuleNotFoundError: No module named 'no_such_helper'."),
        ("own_syntax:makes", r"SyntaxError: '\(' was never closed \(own_syntax.py, line 1\)."),
    ],
)
def test_what_cannot_be_loaded_says_why(entries: Registry, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        entries.find(name)


def test_options_that_do_not_fit_are_refused(entries: Registry) -> None:
    for name in ("sgd", "own_entries:makes"):
        with pytest.raises(ConfigError, match=r"cannot be built with options .*; an optimizer is called as callable"):
            entries.build(name, height=2)


def test_an_error_inside_a_users_entry_keeps_its_line(entries: Registry) -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        entries.build("own_entries:fails", width=2)
    assert plugin_failure(caught.value) == (
        "optimizer 'own_entries:fails' failed in fails (own_entries.py, line 7): ValueError: invalid literal for int() "
        "with base 10: 'x'"
    )
