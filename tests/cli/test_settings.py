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
    (row,) = (" ".join(line.split()) for line in shown.splitlines() if line.split()[:1] == ["transmit_power_w"])
    assert row.startswith("transmit_power_w transmit power")
    assert row.endswith("W 0.2 ≥ 1e-06, ≤ 10")
    assert "deadline_s" not in shown


def test_a_section_is_listed_with_its_subsections(capsys) -> None:
    assert main(["settings", "control"]) == 0
    shown = capsys.readouterr().out
    listed = [line.partition(":")[0] for line in shown.splitlines() if line[:1].isalpha() and ": " in line]
    assert listed == ["control", "control.genetic", "control.paper"]
    assert "slack" in shown
    assert "quantization_margin" in shown
    assert main(["settings", "control.genetic"]) == 0
    assert "slack" not in capsys.readouterr().out


def test_settings_are_found_by_a_part_of_their_name(capsys) -> None:
    assert main(["settings", "BandWidth"]) == 0
    shown = capsys.readouterr().out
    assert "bandwidth_hz" in shown
    assert "transmit_power_w" not in shown


@pytest.mark.parametrize(
    ("section", "hint"),
    [("bandwith", "did you mean bandwidth_hz?"), ("radoi", "did you mean radio?"), ("xx", "choose one of federation")],
)
def test_an_unknown_section_is_refused_with_one_sentence(capsys, section: str, hint: str) -> None:
    assert main(["settings", section]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"qccf: '{section}' is neither a section of the settings nor a part of a name: {hint}")
    assert error.count("\n") == 1


def test_in_a_narrow_terminal_no_word_is_broken(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["settings", "accounts"]) == 0
    shown = capsys.readouterr().out
    assert "  receive_power_w = 0 W  (≥ 0, ≤ 100)" in shown
    words = {word for info in settings_reference() if info.section == "accounts" for word in info.description.split()}
    assert words <= set(shown.split())
