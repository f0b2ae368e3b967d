"""Requests choose no code, no file and no size beyond the limits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qccf.core.errors import ConfigError, QccfError
from qccf.service.answers import RefusedError
from qccf.service.limits import Limits
from qccf.service.requests import PlanBody, ScenarioBody, read_body, requested_scenario
from qccf.service.setup import Setup

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
    with pytest.raises(ConfigError, match="is not a bundled trace"):
        requested_scenario(ScenarioBody(settings=trace), SETUP)
    assert requested_scenario(ScenarioBody(settings=trace | {"statistics.trace": "growing-weights"}), SETUP)
    with pytest.raises(ConfigError, match="preset: input should be 'femnist'"):
        read_body(ScenarioBody, b'{"preset": "../my.toml"}')


@pytest.mark.parametrize(
    "settings",
    [
        {"radio.trace": "/etc/passwd"},
        {"devices.table": "/etc/passwd"},
        {"devices.profile": "/etc/board.toml"},
        {"devices.mix": {"paper": 0.5, "/etc/board.toml": 0.5}},
        {"devices": {"table": "/etc/passwd"}},
    ],
)
def test_no_files_of_radio_or_devices(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused before anything reads them."""
    opened, original = [], Path.open

    def recorded(path: Path, *arguments: Any, **options: Any) -> Any:
        opened.append(str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", recorded)
    with pytest.raises(ConfigError, match="names a file, and files are not read for a request"):
        requested_scenario(ScenarioBody(settings=settings), SETUP)
    assert not [path for path in opened if path.startswith("/etc")]


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
