"""Requests choose no code, no file and no size beyond the limits."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from qccf.core.errors import ConfigError, QccfError
from qccf.service.answers import RefusedError
from qccf.service.limits import Limits
from qccf.service.requests import PlanBody, ScenarioBody, read_body, requested_scenario
from qccf.service.setup import Setup
from qccf.settings.loading import PRESETS
from qccf.settings.reference import settings_reference

SETUP = Setup(Path("runs"))


@pytest.mark.parametrize(
    "settings",
    [
        {"policy.name": "os:system"},
        {"codec.name": "os:system"},
        {"cell.path_loss": "os:system"},
        {"learning.model": "os:system", "learning.num_parameters": 5},
        {"learning.optimizer": "os:system"},
        {"data.dataset": "os:system"},
        {"data.fallbacks": ["os:system"]},
        {"data.options": {"os:system": 1}},
        {"policy.options": {"deep": [{"deeper": "os:system"}]}},
    ],
)
def test_no_code_of_the_users_own(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'os:system' names code of your own"):
        requested_scenario(ScenarioBody(settings=settings), SETUP)
    if "policy.options" not in settings:
        assert requested_scenario(ScenarioBody(settings=settings), replace(SETUP, allow_plugins=True))


def test_no_code_as_a_policy_of_a_plan() -> None:
    with pytest.raises(ConfigError, match="names code of your own"):
        requested_scenario(ScenarioBody(), SETUP, ["qccf", "os:system"])


def test_no_paths() -> None:
    trace = {"statistics.model": "trace", "statistics.trace": "/etc/passwd", "codec.name": "model"}
    for name in ("/etc/passwd", "femnist"):  # the second is a recording, or a file of this name
        with pytest.raises(ConfigError, match=r"statistics.trace = .* files are not read"):
            requested_scenario(ScenarioBody(settings=trace | {"statistics.trace": name}), SETUP)
    assert requested_scenario(ScenarioBody(settings=trace | {"statistics.trace": "growing-weights"}), SETUP)
    with pytest.raises(ConfigError, match="preset: input should be 'femnist'"):
        read_body(ScenarioBody, b'{"preset": "../my.toml"}')


FILES = [info for info in settings_reference() if info.names is not None]


@pytest.mark.parametrize("path", [info.path for info in FILES])
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_no_setting_names_a_file(tmp_path: Path, path: str, nested: bool) -> None:
    """Neither the content nor the existence of a file shows, and it is refused before anything is read."""
    (tmp_path / "t.csv").write_text("root-secret,other\n1,2\n")
    section, _, key = path.rpartition(".")
    for value in (str(tmp_path / "t.csv"), str(tmp_path / "none.csv"), "/dev/zero", "folder"):
        settings = {section: {key: value}} if nested else {path: value}
        with pytest.raises(ConfigError, match=f"^{path} = ") as refused:
            requested_scenario(ScenarioBody(settings=settings), SETUP)
        assert "files are not read for a request" in str(refused.value)


def test_every_setting_that_may_name_a_file_is_marked() -> None:
    """A new setting must say whether it does: requests must not choose which file is read."""
    told = [
        info.path
        for info in settings_reference()
        if re.search(r"\b(files?|folders?|SHA-256)\b", info.description)
        or info.path in ("devices.table", "devices.profile", "devices.mix", "devices.digest")
    ]
    assert {"radio.trace", "radio.trace_digest", "statistics.trace"} <= set(told)
    assert told == [info.path for info in FILES]


def test_no_text_looks_like_a_path() -> None:
    """Also in options and in names of keys, whatever reads them."""
    for text in ("/etc/shadow", "..\\x", "a/b", "mine.toml", "t.CSV"):
        for settings in ({"codec.options": {"a": [text]}}, {"policy.options": {text: 1}}, {"policy.label": text}):
            with pytest.raises(ConfigError, match="looks like a path"):
                requested_scenario(ScenarioBody(settings=settings), SETUP)


def test_devices_may_be_chosen_in_a_request() -> None:
    chosen = {"devices.profile": "raspberry-pi-4", "device.deadline_s": 60.0}
    assert requested_scenario(ScenarioBody(settings=chosen), SETUP).devices.profile == "raspberry-pi-4"
    own = chosen | {"learning.model_options": {"wide": 2}}
    with pytest.raises(ConfigError, match="flops_per_sample = 0 is not accepted"):
        requested_scenario(ScenarioBody(settings=own), SETUP)


def test_no_model_is_built_to_count_it() -> None:
    """Counting loads torch and the user's model."""
    with pytest.raises(ConfigError, match=r"learning.num_parameters = 0 is not accepted"):
        requested_scenario(ScenarioBody(settings={"learning.model": "cifar10-cnn"}), SETUP)


def test_sizes_are_limited() -> None:
    small = replace(SETUP, limits=replace(Limits(), links=99))
    with pytest.raises(RefusedError, match="10 clients × 10 channels is above the limit of 99 links") as refused:
        requested_scenario(ScenarioBody(), small)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "the body: is not valid JSON"),
        (b"\xff", "the body: is not valid JSON"),
        (b"[" * 100_000, "the body: is not valid JSON"),
        (b"[]", "the body: input should be a valid"),
        (b'{"seeds": 0}', "seeds: input should be greater than or equal to 1"),
        (b'{"seeds": 1.5}', "seeds: "),
        (b'{"seeds": NaN}', "seeds: "),
        (b'{"policies": []}', "policies: list should have at least 1 item"),
        (b'{"policies": [3]}', r"policies\[0\]: input should be a valid string"),
        (b'{"Seeds": 3}', "Seeds: extra inputs are not permitted"),
    ],
)
def test_a_mistake_is_one_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(QccfError, match=sentence) as refused:
        read_body(PlanBody, body)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")


def test_every_preset_may_be_asked_for():
    assert set(get_args(ScenarioBody.model_fields["preset"].annotation)) == set(PRESETS)
