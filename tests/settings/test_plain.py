"""Settings of any content are refused, or can be read back from the file of a run."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qccf.core.errors import ConfigError
from qccf.settings.loading import load_scenario, run_digest, scenario_to_toml

plain = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(options=st.dictionaries(st.text(), plain, max_size=4))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_options_of_any_content_are_read_back_or_refused(tmp_path: Path, options: dict) -> None:
    try:
        scenario = load_scenario("quick", {"policy.options": options})
    except ConfigError:
        return
    (tmp_path / "scenario.toml").write_text(scenario_to_toml(scenario), encoding="utf-8")
    again = load_scenario(tmp_path / "scenario.toml")
    assert again.policy.options == options
    assert run_digest(again) == run_digest(scenario)


@pytest.mark.parametrize("options", [{"😀 key": "😀"}, {"a b": 1}, {"tables": [{"a": 1}, {"b": [2.5]}]}, {"": ""}])
def test_odd_options_are_read_back(tmp_path: Path, options: dict) -> None:
    scenario = load_scenario("quick", {"codec.options": options})
    (tmp_path / "scenario.toml").write_text(scenario_to_toml(scenario), encoding="utf-8")
    assert load_scenario(tmp_path / "scenario.toml").codec.options == options


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("policy.options", {"when": date(2026, 1, 1)}, r"options.when = datetime.date.* cannot be written"),
        ("policy.options", {"a": None}, "options.a = None cannot be written to a settings file: use text"),
        ("policy.options", {"a": {1: 2}}, "options.a has the key 1, which is not text"),
        ("policy.options", {"a": object()}, "cannot be written"),
        ("data.dataset", "a\0b", r"dataset = 'a\\x00b' holds the character '\\x00', which is not text: leave it out"),
        ("policy.name", "\x1b[31mred", "holds the character"),
        ("learning.model", "\ud800", "holds the character"),
        ("data.transform", ["a\x07"], r"transform\[0\] = 'a\\x07' holds"),
    ],
)
def test_what_cannot_be_read_back_is_refused_before_the_run(key: str, value: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_scenario("quick", {key: value})


def test_a_file_that_is_nested_too_deep_or_has_endless_numbers_is_refused(tmp_path: Path) -> None:
    deep: object = 1
    for _ in range(20):
        deep = [deep]
    with pytest.raises(ConfigError, match="nested more than 16 deep"):
        load_scenario("quick", {"policy.options": {"a": deep}})
    for text in ("a = " + "[" * 100_000, "a = " + "9" * 5000):
        (tmp_path / "a.toml").write_text(text)
        with pytest.raises(ConfigError, match="is not valid TOML"):
            load_scenario(tmp_path / "a.toml")
