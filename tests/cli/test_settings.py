"""`qccf settings`."""

import pytest

from qccf.cli.main import main
from qccf.settings.reference import settings_reference


def test_every_setting_is_listed_with_its_meaning(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["settings"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    listed = {words[0] for words in lines if words}
    assert {info.key for info in settings_reference()} <= listed


def test_one_section_is_listed_with_unit_default_and_limits(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["settings", "radio"]) == 0
    shown = capsys.readouterr().out
    (row,) = (" ".join(line.split()) for line in shown.splitlines() if "transmit_power_w" in line)
    assert row.startswith("transmit_power_w transmit power")
    assert row.endswith("W 0.2 ≥ 1e-06, ≤ 10")
    assert "deadline_s" not in shown


@pytest.mark.parametrize(("section", "hint"), [("radoi", "did you mean radio?"), ("x", "choose one of federation")])
def test_an_unknown_section_is_refused_with_one_sentence(capsys, section: str, hint: str) -> None:
    assert main(["settings", section]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"qccf: '{section}' is not a section of the settings: {hint}")
    assert error.count("\n") == 1
