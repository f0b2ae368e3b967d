"""Who can never upload, and why."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qccf.core.errors import ConfigError, InfeasibleError
from qccf.quantization.registry import CODECS, build_codec
from qccf.rounds.feasibility import (
    _bandwidth_remedy,
    best_rates_bps,
    fitting_codecs,
    needed_rates_bps,
    require_feasible,
    why_never,
)
from qccf.rounds.recordings import bundled_recording
from qccf.rounds.world import build_world, draw_dataset_sizes, scenario_cell
from qccf.settings.loading import load_scenario

FAR = {"codec.name": "model", "cell.radius_m": 3000.0, "radio.gain_db": -12.0, "federation.num_clients": 3,
       "cell.positions_m": [[50.0, 0.0], [0.0, 2900.0], [100.0, 0.0]]}  # fmt: skip


def reasons(**changes) -> dict[int, str]:
    scenario = load_scenario("femnist", FAR | {key.replace("__", "."): value for key, value in changes.items()})
    return why_never(scenario, scenario_cell(scenario, 0), draw_dataset_sizes(scenario, 0))


def test_a_client_too_far_away_and_what_it_would_need() -> None:
    scenario = load_scenario("femnist", FAR)
    cell, sizes = scenario_cell(scenario, 0), draw_dataset_sizes(scenario, 0)
    found = reasons()
    assert list(found) == [1]
    # By hand: one bit for each of 246,590 parameters with overhead Z + 32, in what is left of the deadline.
    left_s = 0.02 - 2 * 1000 * sizes[1] / 1e9
    needed = (2 * 246_590 + 32) / left_s / 1e6
    assert found[1].startswith(f"training on {sizes[1]:g} samples takes {2 * sizes[1] / 1e6:.3g} s at the highest")
    assert f"one bit for each of 246,590 parameters then needs {needed:.3g} Mb/s" in found[1]
    assert f"needs {needed:.3g} Mb/s, but the link of 2900 m has {best_rates_bps(cell)[1] / 1e6:.3g} Mb/s" in found[1]


def test_a_client_that_cannot_finish_training() -> None:
    found = reasons(device__cycles_per_sample=1e7)
    assert list(found) == [0, 1, 2]
    assert "s at the highest frequency, beyond device.deadline_s = 0.02." in found[0]


def test_nobody_means_that_the_world_is_refused() -> None:
    """The map of such a cell can be drawn all the same."""
    scenario = load_scenario("femnist", FAR | {"radio.gain_db": -100.0})
    assert len(why_never(scenario, scenario_cell(scenario, 0), draw_dataset_sizes(scenario, 0))) == 3
    with pytest.raises(InfeasibleError):
        build_world(scenario, 0)


def test_one_client_that_can_upload_is_enough_even_if_it_only_just_can(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario("femnist", FAR)
    cell, sizes = scenario_cell(scenario, 0), draw_dataset_sizes(scenario, 0)
    require_feasible(scenario, cell, sizes)
    needed = needed_rates_bps(scenario, sizes)
    rates = np.where([True, False, False], needed, np.nextafter(needed, 0.0))
    monkeypatch.setattr("qccf.rounds.feasibility.best_rates_bps", lambda _: rates)
    require_feasible(scenario, cell, sizes)
    assert list(why_never(scenario, cell, sizes)) == [1, 2]


def test_the_rate_that_is_needed_follows_from_the_time_that_is_left() -> None:
    """1000 samples take 2 ms of the deadline of 20 ms; without any time left no rate is enough."""
    scenario, sizes = load_scenario("femnist", {"codec.name": "model"}), np.array([1000.0])
    assert needed_rates_bps(scenario, sizes)[0] == pytest.approx((2 * 246_590 + 32) / 0.018)
    for deadline_s, left_s in ((0.04, 0.038), (0.002, 0.0)):
        constants = replace(scenario.constants(), deadline_s=deadline_s)
        expected = (2 * 246_590 + 32) / left_s if left_s else np.inf
        assert needed_rates_bps(scenario, sizes, constants)[0] == pytest.approx(expected)
    unknown = scenario.replaced(learning={"num_parameters": 0})
    assert needed_rates_bps(unknown, sizes)[0] == pytest.approx(64 / 0.018), "a model that is not counted yet"


@pytest.mark.parametrize(("cycles", "words"), [(0.0, "samples takes"), (0.5, "samples and coding takes")])
def test_the_client_that_is_named_has_the_shortest_training(cycles: float, words: str) -> None:
    settings = {"device.cycles_per_sample": 1e7, "accounts.coding_cycles_per_parameter": cycles}
    scenario = load_scenario("femnist", FAR | settings)
    fewest = draw_dataset_sizes(scenario, 0).min()
    takes_s = (2 * 1e7 * fewest + 246_590 * cycles) / 1e9
    with pytest.raises(InfeasibleError, match=f"training on {fewest:g} {words} {takes_s:.3g} s at device.freq"):
        build_world(scenario, 0)


def test_the_remedy_is_a_deadline_where_the_mean_client_cannot_even_train_in_time() -> None:
    """1,200 samples take 2.4 ms of 2 ms; some clients have fewer."""
    scenario = load_scenario("femnist", {"codec.name": "model", "device.deadline_s": 0.002})
    with pytest.raises(InfeasibleError, match="more time than is left after training on 1200 samples") as refused:
        build_world(scenario, 0)
    message = str(refused.value)
    assert "nan" not in message
    assert "inf " not in message
    needed_s = float(message.split("device.deadline_s = ")[-1].rstrip("."))
    assert 0.0024 < needed_s < 0.02
    build_world(scenario.replaced(device={"deadline_s": needed_s}), 0)


def test_the_remedies_are_those_of_the_median_client() -> None:
    """Between 300 m and 500 m half of the area is within √((300² + 500²)/2) = 412 m."""
    scenario = load_scenario(
        "femnist",
        {"codec.name": "model", "cell.radius_m": 500.0, "cell.distance_min_m": 300.0, "radio.gain_db": -40.0},
    )
    with pytest.raises(InfeasibleError, match=r"for the median client \(412 m\) one of these is enough: ") as refused:
        build_world(scenario, 0)
    # By hand: the path loss of UMi in sight beyond its breakpoint of 144 m, with antennas 8.5 m apart in height, and
    # Shannon's rate in 10 MHz with 0.2 W and noise of -174 dBm/Hz.
    distance_m = math.hypot(math.sqrt(0.5 * (300.0**2 + 500.0**2)), 8.5)
    loss_db = 32.4 + 40.0 * math.log10(distance_m) + 20.0 * math.log10(2.4) - 9.5 * math.log10(144.0**2 + 8.5**2)
    needed_bps = (2 * 246_590 + 32) / (0.02 - 2 * 1000 * 1200 / 1e9)
    needed_db = 10.0 * math.log10(2.0 ** (needed_bps / 1e7) - 1.0)
    received_db = 10.0 * math.log10(200.0) - loss_db - (-174.0 + 70.0)
    assert f", radio.gain_db = {math.ceil(needed_db - received_db)}, " in str(refused.value)
    with pytest.raises(InfeasibleError) as weaker:
        build_world(scenario.replaced(radio={"fading_mean_power": 0.01}), 0)
    wanted_db = math.ceil(10.0 * (needed_db - received_db + 20.0)) / 10.0
    assert str(weaker.value).endswith(f", radio.gain_db = {wanted_db:g}."), "20 dB less"


@pytest.mark.parametrize(("power", "slow"), [(1e-2, True), (1e-320, False)])
def test_a_deadline_is_a_remedy_for_any_link_that_carries_something(power: float, slow: bool) -> None:
    """The smallest upload of 88 bits takes hours below one bit per second; without a link no deadline helps."""
    scenario = load_scenario("femnist", {"radio.gain_db": -100.0, "radio.fading_mean_power": power})
    with pytest.raises(InfeasibleError) as refused:
        build_world(scenario, 0)
    assert ("one of these is enough: device.deadline_s = " in str(refused.value)) == slow
    assert ("no single setting changes that" in str(refused.value)) == (not slow)


def test_codecs_that_fit_are_those_whose_largest_recorded_upload_of_one_bit_fits() -> None:
    scenario = load_scenario("femnist", {"codec.safety_margin": 0.1})
    per_parameter = bundled_recording("femnist").codecs["update+entropy"].bits_per_parameter
    room_bits = 1.1 * 246_590 * per_parameter[:, :, 0].max()
    assert fitting_codecs(scenario, room_bits + 1.0) == ["sparse", "update+entropy", "model+entropy"]
    assert fitting_codecs(scenario, room_bits - 1.0) == ["sparse", "model+entropy"]
    buffered, room_bits = scenario.replaced(learning={"num_buffers": 100}), room_bits + 1.1 * 32 * 100
    assert "update+entropy" in fitting_codecs(buffered, room_bits + 1.0)
    assert "update+entropy" not in fitting_codecs(buffered, room_bits - 1.0), "buffers are sent as 32-bit floats"
    found = fitting_codecs(scenario, np.inf)
    assert [build_codec(name, 100, [100]).relative for name in found] == sorted(
        (build_codec(name, 100, [100]).relative for name in CODECS), reverse=True
    ), "codecs of updates come first"
    assert "model" in fitting_codecs(scenario, 2 * 246_590 + 32), "exactly its size"
    assert "model" not in fitting_codecs(scenario, 2 * 246_590 + 31)


def test_a_bandwidth_of_resource_blocks_is_a_number_of_blocks() -> None:
    """One block of numerology 1 has 12 subcarriers of 30 kHz: 360 kHz. There are at most 275."""
    scenario = load_scenario("femnist", {"radio.resource_blocks": 4, "radio.numerology": 1})
    assert _bandwidth_remedy(scenario, 1.5e6) == ["radio.resource_blocks = 5"]
    assert _bandwidth_remedy(scenario, 275 * 360e3) == ["radio.resource_blocks = 275"]
    assert _bandwidth_remedy(scenario, 275 * 360e3 + 1.0) == []


@pytest.mark.parametrize(
    ("positions", "sentence"),
    [
        ([[100.0, 2.0]], "cell.positions_m has 1 positions, but federation.num_clients = 3"),
        ([[50.0, 0.0], [0.0, 3001.0], [100.0, 0.0]], r"positions_m\[1\] is 3001 m from the base station"),
        ([[50.0, 0.0], [0.0, 1.0], [100.0, 0.0]], "move the client"),
        ([[50.0], [0.0, 100.0], [100.0, 0.0]], r"positions_m\[0\] has 1 numbers: give \[x, y\]"),
        ([[50.0, float("nan")], [0.0, 100.0], [100.0, 0.0]], r"cell.positions_m.0.1 = nan is not a finite number"),
    ],
)
def test_positions_must_fit_the_cell(positions: list[list[float]], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_scenario("femnist", FAR | {"cell.positions_m": positions})


def test_positions_on_the_command_line_and_in_a_file(tmp_path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('preset = "quick"\n[federation]\nnum_clients = 2\n[cell]\npositions_m = [[10, 5.5], [100, 0]]\n')
    placed = load_scenario(file)
    again = load_scenario("quick", ["federation.num_clients=2", "cell.positions_m=[[10, 5.5], [100, 0]]"])
    assert placed == again
    np.testing.assert_array_equal(build_world(placed, 0).cell.positions_m, build_world(placed, 5).cell.positions_m)
