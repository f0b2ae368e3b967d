"""Profiles: the bundled ones are complete and plausible, and a wrong one is refused with a sentence."""

import math
import sys
from pathlib import Path

import pytest
import tomli_w

from qccf.core.errors import ConfigError
from qccf.devices.profile import FIGURES, checked_steps, profile_from_dict, read_profile, require_figure
from qccf.devices.profiles.registry import PROFILES, find_profile

FEMNIST_FLOPS = 65e6
"""About what one training sample of the FEMNIST network takes."""

TREE = {
    "title": "a board",
    "cycles_per_sample": "auto",
    "flops_per_cycle": 8.0,
    "energy_coefficient": 1e-27,
    "frequency_min_hz": 6e8,
    "frequency_max_hz": 1.5e9,
    "transmit_power_w": 0.2,
    "sources": dict.fromkeys(
        [
            "cycles_per_sample", "flops_per_cycle", "energy_coefficient", "frequency_min_hz", "frequency_max_hz",
            "transmit_power_w",
        ],
        "assumed",
    ),
}  # fmt: skip


def _changed(**values):
    """The tree with other figures; None takes one out. Sources follow."""
    tree = {key: value for key, value in (TREE | values).items() if value is not None}
    tree["sources"] = dict.fromkeys([key for key in tree if key in (*FIGURES, "steps")], "assumed")
    return tree


@pytest.mark.parametrize("name", PROFILES)
def test_bundled_profile_is_plausible(name):
    profile = find_profile(name)
    assert profile.name == name
    assert profile.title
    top_w = profile.steps[-1][1] if profile.steps else profile.energy_coefficient * profile.frequency_max_hz**3
    assert 0.5 <= top_w <= 60.0
    if name != "paper":
        assert profile.cycles_per_sample == "auto"
        seconds = profile.cycles(FEMNIST_FLOPS) / profile.frequency_max_hz
        assert 1e-4 <= seconds <= 1e-2  # of one sample
        assert profile.circuit_power_w > profile.transmit_power_w  # an amplifier loses most of its power


@pytest.mark.parametrize("name", PROFILES)
def test_profile_survives_its_file(name, tmp_path):
    profile = find_profile(name)
    path = tmp_path / f"{name}.toml"
    path.write_text(tomli_w.dumps(profile.to_dict()), encoding="utf-8")
    again = find_profile(str(path))
    assert again == profile


def test_registry_lists_every_file():
    files = {path.stem for path in Path(find_profile.__code__.co_filename).parent.glob("*.toml")}
    assert files == set(PROFILES)


def test_cycles_follow_from_the_work():
    profile = profile_from_dict(TREE, "board")
    assert profile.cycles(64e6) == 8e6
    assert profile_from_dict(_changed(cycles_per_sample=5000.0), "board").cycles(64e6) == 5000.0


def test_steps_state_the_limits():
    steps = [[6e8, 1.0], [1.5e9, 4.0]]
    no_law = dict.fromkeys(["energy_coefficient", "frequency_min_hz", "frequency_max_hz"])
    profile = profile_from_dict(_changed(steps=steps, **no_law), "board")
    assert (profile.frequency_min_hz, profile.frequency_max_hz) == (6e8, 1.5e9)
    assert profile.steps == ((6e8, 1.0), (1.5e9, 4.0))
    assert profile.battery_j == math.inf


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"frequency_max_hz": 1500.0}, "frequency_max_hz = 1500 is out of range: it must be from 1e+06"),
        ({"frequency_min_hz": 2e9}, "swap them"),
        ({"energy_coefficient": 1e-24}, "power of 3375 W"),
        ({"energy_coefficient": None}, "energy_coefficient is missing"),
        ({"transmit_power_w": 23.0}, "transmit_power_w = 23 is out of range"),
        ({"transmit_power_w": 14.0}, "transmit_power_w = 14 is out of range: it must be from 1e-06 to 10"),
        ({"flops_per_cycle": "many"}, "is not a number"),
        ({"flops_per_cycle": True}, "is not a number"),
        ({"idle_power_w": math.nan}, "is not a number"),
        ({"battery_j": -1.0}, "battery_j = -1 is out of range"),
        ({"batery_j": 1.0}, "did you mean battery_j?"),
        ({"steps": [[1e9, 2.0]]}, "contradicts steps"),
        ({"title": 3}, "title = 3 is not a text"),
        ({"flops_per_cycle": 10**400}, "flops_per_cycle = a number beyond 2e+308 is out of range"),
        ({"battery_j": 10**400}, "battery_j = a number beyond 2e+308 is out of range"),
    ],
)  # fmt: skip
def test_absurd_profile_is_refused(values, words):
    with pytest.raises(ConfigError, match=words.replace("?", r"\?").replace("+", r"\+")):
        profile_from_dict(_changed(**values), "board")


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([[1e9, 2.0], [6e8, 1.0]], "sort the frequencies"),
        ([[1500, 2.0]], "power|frequency of a step"),
        ([[1e9, 2000.0]], "power of a step"),
        ([[1e9]], "pairs"),
        ("fast", "pairs"),
        ([[1e6 * k, 1.0] for k in range(1, 66)], "65 entries, more than 64"),
        ([[6e8, 1.0], [1e9]], "pairs"),
        ([[1e9, 1.0], [1e9, 2.0]], "sort the frequencies"),
        ([["fast", 1.0]], "'fast' as the frequency of a step"),
        ([[1e9, True]], "True as the power of a step"),
    ],
)
def test_absurd_steps_are_refused(steps, words):
    no_law = dict.fromkeys(["energy_coefficient", "frequency_min_hz", "frequency_max_hz"])
    with pytest.raises(ConfigError, match=words):
        profile_from_dict(_changed(steps=steps, **no_law), "board")


def test_the_limits_of_steps_are_allowed_and_nothing_beyond():
    """From 1 MHz to 100 GHz, and from a microwatt to a kilowatt."""
    assert checked_steps([[1e6, 1e-6], [1e11, 1e3]]) == ((1e6, 1e-6), (1e11, 1e3))
    for step in ([9.9e5, 1.0], [1.01e11, 1.0], [1e9, 9.9e-7], [1e9, 1001.0]):
        with pytest.raises(ConfigError, match="of a step: it must be a number from"):
            checked_steps([step])


def test_steps_are_a_remedy_only_where_the_cubic_law_is_missing():
    with pytest.raises(ConfigError, match=r"energy_coefficient is missing: .* or give steps"):
        profile_from_dict(_changed(energy_coefficient=None), "board")
    with pytest.raises(ConfigError, match=r"flops_per_cycle is missing: state it with its source\.$"):
        profile_from_dict(_changed(flops_per_cycle=None), "board")


def test_64_steps_are_allowed():
    assert len(checked_steps([[1e6 * k, 1.0] for k in range(1, 65)])) == 64


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("cycles_per_sample", 1, 1e12),
        ("flops_per_cycle", 1e-4, 1e6),
        ("energy_coefficient", 1e-32, 1e-18),
        ("frequency_min_hz", 1e6, 1e11),
        ("frequency_max_hz", 1e6, 1e11),
        ("transmit_power_w", 1e-6, 10),
        ("circuit_power_w", 0, 100),
        ("idle_power_w", 0, 1000),
        ("battery_j", 1e-6, math.inf),
    ],
)
def test_the_limits_of_figures_are_allowed_and_nothing_beyond(key, least, most):
    assert (require_figure(key, least), require_figure(key, most)) == (least, most)
    for beyond in {math.nextafter(least, -math.inf), math.nextafter(most, math.inf)} - {math.inf}:
        with pytest.raises(ConfigError, match=f"{key} = .* is out of range"):
            require_figure(key, beyond)


def test_the_largest_float_is_a_number_also_as_an_integer():
    assert require_figure("battery_j", int(sys.float_info.max)) == sys.float_info.max


@pytest.mark.parametrize(("watts", "plausible"), [(1000.0, True), (1000.0 + 1e-7, True), (1000.00001, False)])
def test_computing_takes_at_most_a_kilowatt(watts, plausible):
    tree = _changed(energy_coefficient=watts * 1e-27, frequency_max_hz=1e9)
    if plausible:
        assert profile_from_dict(tree, "board").energy_coefficient == watts * 1e-27
    else:
        with pytest.raises(ConfigError, match="above 1000 W"):
            profile_from_dict(tree, "board")


def test_a_profile_without_circuits_rest_and_battery_has_none():
    profile = profile_from_dict(
        {key: value for key, value in TREE.items() if key != "cycles_per_sample"}
        | {"sources": {key: "assumed" for key in TREE["sources"] if key != "cycles_per_sample"}},
        "board",
    )
    assert profile.cycles_per_sample == "auto"
    assert (profile.circuit_power_w, profile.idle_power_w, profile.battery_j) == (0.0, 0.0, math.inf)


def test_a_file_of_at_most_a_mebibyte_is_read(tmp_path):
    text = tomli_w.dumps(TREE)
    path = tmp_path / "board.toml"
    path.write_text(text + "#" * (2**20 - len(text)), encoding="utf-8")
    assert read_profile(path) == profile_from_dict(TREE, "board")
    path.write_text(text + "#" * (2**20 - len(text) + 1), encoding="utf-8")
    with pytest.raises(ConfigError, match="more than 1,048,576 bytes"):
        read_profile(path)


def test_every_figure_needs_a_source():
    tree = dict(TREE, sources={})
    with pytest.raises(ConfigError, match=r"sources\.cycles_per_sample is missing"):
        profile_from_dict(tree, "board")
    with pytest.raises(ConfigError, match="source of no figure"):
        profile_from_dict(dict(TREE, sources=TREE["sources"] | {"idle_power_w": "assumed"}), "board")


def test_unknown_profile_is_suggested(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'raspberry-pi-4'"):
        find_profile("rasberry-pi-4")
    with pytest.raises(ConfigError, match=r"did you mean 'laptop'\?\); .* such as laptops\.toml\.$"):
        find_profile("laptops")
    with pytest.raises(ConfigError, match=r"not one of .*laptop\.$"):
        find_profile("mine.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        find_profile(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("a = = 1", encoding="utf-8")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_profile(tmp_path / "bad.toml")


@pytest.mark.parametrize("name", FIGURES)
def test_the_limits_of_a_figure_are_allowed_and_nothing_beyond(name):
    least, most = FIGURES[name].least, FIGURES[name].most
    assert (require_figure(name, least), require_figure(name, most)) == (least, most)
    for beyond in (math.nextafter(least, -math.inf), math.nextafter(most, math.inf)):
        if beyond not in (least, most):
            with pytest.raises(ConfigError, match="out of range"):
                require_figure(name, beyond)
