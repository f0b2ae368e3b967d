"""Devices in the settings: profiles, mixes and tables of clients, and what is refused."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from qccf.core.errors import ConfigError, InfeasibleError
from qccf.devices import clients_table
from qccf.devices.clients_table import files_digest, read_clients
from qccf.devices.fleet import mixed, shares_to_counts
from qccf.devices.profiles.registry import PROFILES, find_profile
from qccf.learning.models.flops import IMAGES, STORED, counted_flops
from qccf.learning.models.registry import count_values
from qccf.rounds.world import build_world, draw_dataset_sizes, scenario_cell
from qccf.runtimes.planner import plan
from qccf.settings.loading import load_scenario, run_digest, scenario_to_toml

SLOW = {"device.deadline_s": 60.0, "radio.bandwidth_hz": 1e6, "federation.rounds": 3}


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def with_table(path: Path, text: str, **more):
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    given = {"devices.table": written(path, text), "federation.num_clients": len(rows) - 1, **SLOW, **more}
    return load_scenario("femnist", given)


def test_paper_is_the_default():
    scenario = load_scenario("femnist")
    constants = scenario.constants()
    assert not constants.differ
    assert constants.cycles_per_sample == 1000.0
    assert constants.step_frequencies_hz is None
    assert scenario.devices.is_papers
    assert set(scenario.fleet().names) == {"paper"}
    assert scenario.fleet().batteries_j is None


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "paper"])
def test_every_profile_plans(name):
    """By hand: cycles are 63,886,592 operations over those per cycle, and a round's computing follows from them."""
    scenario = load_scenario("femnist", {"devices.profile": name, **SLOW})
    constants, profile = scenario.constants(), find_profile(name)
    assert constants.cycles_per_sample == pytest.approx(63_886_592 / profile.flops_per_cycle)
    assert not constants.differ
    (run,) = plan(scenario, ["qccf"], 1)
    on = run.client_columns["participated"]
    assert on.all()
    sizes, hertz = run.client_columns["dataset_size"][on], run.client_columns["frequency_hz"][on]
    cycles = 2 * constants.cycles_per_sample * sizes
    cheapest_hz = min(profile.steps, key=lambda step: step[1] / step[0])[0] if profile.steps else None
    assert (hertz == (cheapest_hz or profile.frequency_min_hz)).all(), "a minute leaves time for the cheapest"
    if profile.steps:
        powers_w = np.array([dict(profile.steps)[float(one)] for one in hertz])
        expected_j = powers_w * cycles / hertz
    else:
        expected_j = profile.energy_coefficient * cycles * hertz**2
    np.testing.assert_allclose(run.client_columns["compute_energy_j"][on], expected_j)
    sent_s = run.client_columns["payload_bits"][on] / run.client_columns["rate_bps"][on]
    np.testing.assert_allclose(
        run.client_columns["upload_energy_j"][on], (profile.transmit_power_w + profile.circuit_power_w) * sent_s
    )


def test_cycles_follow_from_the_model():
    scenario = load_scenario("femnist", {"device.cycles_per_sample": "auto", "device.flops_per_cycle": 32.0})
    assert scenario.constants().cycles_per_sample == pytest.approx(63_886_592 / 32.0)
    stated = load_scenario(scenario, {"learning.flops_per_sample": 64e6})
    assert stated.constants().cycles_per_sample == 2e6
    other = load_scenario(stated, {"learning.model": "small-cnn"})
    assert other.constants().cycles_per_sample == pytest.approx(1_151_168 / 32.0)


def test_stored_operations_are_what_torch_counts():
    for model, stored in STORED.items():
        assert counted_flops(model, {}, IMAGES["cifar10" if model.startswith("cifar") else "femnist"]) == stored.flops
        assert count_values(model).parameters == stored.num_parameters
    forward = 2 * (28**2 * 32 * 25 + 14**2 * 64 * 32 * 25 + 3136 * 62)
    first_layer = 2 * 28**2 * 32 * 25  # has no gradient with respect to its input
    assert STORED["femnist-cnn"].flops == 3 * forward - first_layer


def test_operations_of_an_unknown_sample_are_asked_for():
    given = {"devices.profile": "laptop", "learning.model": "own:Model", "data.dataset": "own:data"}
    scenario = load_scenario("femnist", given)
    with pytest.raises(ConfigError, match=r"set learning\.flops_per_sample"):
        scenario.constants()


@pytest.mark.parametrize("preset", ["3gpp", "femnist"])
def test_operations_of_another_model_are_asked_for(preset):
    """A size that is not the model's own is another model."""
    given = {"learning.num_parameters": 25_000_000, "device.deadline_s": 60.0}
    given |= {} if preset == "3gpp" else {"devices.profile": "raspberry-pi-4"}
    with pytest.raises(
        ConfigError, match=r"25,000,000 parameters and is not .*246,590: set learning\.flops_per_sample"
    ):
        load_scenario(preset, given).constants()
    stated = load_scenario(preset, given | {"learning.flops_per_sample": 4e9}).constants()
    assert np.all(stated.cycles_per_sample > 1e7)


def test_operations_of_a_model_of_ones_own_are_counted():
    given = {"devices.profile": "laptop", "learning.model": "qccf.learning.models.small_cnn:SmallCnn", **SLOW}
    counted = load_scenario("femnist", given)
    right = load_scenario(
        "femnist", given | {"learning.num_parameters": count_values(given["learning.model"]).parameters}
    )
    assert right.constants().cycles_per_sample == counted.constants().cycles_per_sample
    with pytest.raises(ConfigError, match="set learning"):
        load_scenario("femnist", given | {"learning.num_parameters": 77}).constants()


def test_shares_are_exact():
    assert shares_to_counts({"a": 0.5, "b": 0.5}, 10) == {"a": 5, "b": 5}
    assert shares_to_counts({"a": 1.0, "b": 1.0, "c": 1.0}, 10) == {"a": 4, "b": 3, "c": 3}
    assert shares_to_counts({"a": 0.14, "b": 0.86}, 10) == {"a": 1, "b": 9}
    assert shares_to_counts({"a": 0.1, "b": 0.2, "c": 0.7}, 10) == {"a": 1, "b": 2, "c": 7}
    rng = np.random.default_rng(0)
    for _ in range(200):
        shares = {str(i): float(rng.uniform(0.01, 5.0)) for i in range(int(rng.integers(1, 8)))}
        count = int(rng.integers(1, 200))
        counts = shares_to_counts(shares, count)
        assert sum(counts.values()) == count
        total = math.fsum(shares.values())
        assert all(abs(counts[name] - share / total * count) < 1.0 + 1e-6 for name, share in shares.items())


def test_mix_is_drawn_for_the_seed():
    shares = {"a": 0.5, "b": 0.5}
    assert mixed(shares, 20, 3) == mixed(shares, 20, 3)
    assert mixed(shares, 20, 3) != mixed(shares, 20, 4)
    assert mixed(shares, 20, 3).count("a") == 10


def test_a_mix_takes_the_place_of_the_presets(tmp_path):
    """As a whole: shares of two mixes make no sense together."""
    mix = {"laptop": 1.0, "pixel-2": 3.0}
    assert load_scenario("3gpp", {"devices.mix": mix}).devices.mix == mix
    assert load_scenario("3gpp", ["devices.mix={laptop = 1, pixel-2 = 3}"]).devices.mix == mix
    text = 'preset = "3gpp"\n[devices.mix]\nlaptop = 1\npixel-2 = 3\n'
    assert load_scenario(written(tmp_path / "own.toml", text)).devices.mix == mix
    assert not load_scenario("3gpp", {"devices.profile": "paper"}).devices.mix


def test_mix_reaches_the_decision_core():
    mix = {"raspberry-pi-4": 0.5, "pixel-2": 0.3, "laptop": 0.2}
    scenario = load_scenario("femnist", {"devices.mix": mix, **SLOW})
    for seed in (0, 1):
        fleet, constants = scenario.fleet(seed), scenario.constants(seed)
        assert [fleet.names.count(name) for name in mix] == [5, 3, 2]
        for client, name in enumerate(fleet.names):
            profile = find_profile(name)
            own = constants.of(client)
            assert own.frequency_max_hz == profile.frequency_max_hz
            assert own.energy_coefficient == profile.energy_coefficient
            assert own.cycles_per_sample == pytest.approx(63_886_592 / profile.flops_per_cycle)
            assert np.isfinite(own.step_frequencies_hz).any() == bool(profile.steps)
    assert scenario.fleet(0).names != scenario.fleet(1).names
    assert run_digest(scenario) != run_digest(load_scenario("femnist", SLOW))


def test_every_policy_plans_with_a_mix():
    """Frequencies are those that each device offers, energies those of its own constants; also with few channels."""
    mix = {"raspberry-pi-4": 0.4, "pixel-2": 0.3, "jetson-nano": 0.2, "paper": 0.1}
    overrides = {"devices.mix": mix, **SLOW, "federation.num_clients": 10, "radio.num_channels": 4}
    scenario = load_scenario("femnist", overrides)
    constants = scenario.constants(0)
    policies = ["qccf", "no-quantization", "channel-allocate", "principle", "same-size", "fixed-bits"]
    for run in plan(scenario, policies, 1):
        on = run.client_columns["arrived"]
        assert on.any()
        own = constants.of(run.client_columns["client"][on])
        hertz, sizes = run.client_columns["frequency_hz"][on], run.client_columns["dataset_size"][on]
        cycles = 2 * own.cycles_per_sample * sizes
        matches = own.step_frequencies_hz == hertz[:, None]
        has_steps = np.isfinite(own.step_frequencies_hz).any(axis=1)
        assert (matches.any(axis=1) == has_steps).all()
        with np.errstate(invalid="ignore"):
            stepped_j = np.where(matches, own.step_energies_j, 0.0).sum(axis=1)
        expected_j = cycles * np.where(has_steps, stepped_j, own.energy_coefficient * hertz**2)
        np.testing.assert_allclose(run.client_columns["compute_energy_j"][on], expected_j, err_msg=run.policy)
        took = run.client_columns["participated"]
        own = constants.of(run.client_columns["client"][took])
        lowest_j = np.where(
            np.isfinite(own.step_energies_j[:, 0]),
            own.step_energies_j[:, 0],
            own.energy_coefficient * own.frequency_min_hz**2,
        )
        sizes = run.client_columns["dataset_size"][took]
        assert run.summary["floor_j"] == pytest.approx(float((2 * own.cycles_per_sample * sizes * lowest_j).sum()))


def test_table_of_clients(tmp_path):
    text = (
        "# our first cell\n"
        "profile,cycles_per_sample,frequency_max_hz,dataset_size,x_m,y_m,battery_j\n"
        "raspberry-pi-4,auto,,700,30,40,\n"
        "paper,2000,0.8e9,800,-100,0,500\n"
        "galaxy-s6,1e6,1.8e9,900,0,200,inf\n"
    )
    scenario = with_table(tmp_path / "clients.csv", text)
    fleet, constants = scenario.fleet(), scenario.constants()
    assert fleet.names == ("raspberry-pi-4", "paper", "galaxy-s6")
    assert constants.frequency_max_hz.tolist() == [1.5e9, 0.8e9, 1.8e9]
    assert constants.cycles_per_sample[0] == pytest.approx(63_886_592 / find_profile("raspberry-pi-4").flops_per_cycle)
    assert constants.cycles_per_sample[1:].tolist() == [2000.0, 1e6]
    assert fleet.batteries_j.tolist() == [math.inf, 500.0, math.inf]
    assert draw_dataset_sizes(scenario, 0).tolist() == [700.0, 800.0, 900.0]
    np.testing.assert_allclose(scenario_cell(scenario, 0).distances_m, [50.0, 100.0, 200.0])
    again = load_scenario(written(tmp_path / "run.toml", scenario_to_toml(scenario)))
    assert again == scenario
    world = build_world(scenario, 0)
    assert world.dataset_sizes.tolist() == [700.0, 800.0, 900.0]


def test_parquet_is_read_like_csv(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = {"profile": ["raspberry-pi-4", None], "dataset_size": [700, 800], "transmit_power_w": [0.1, math.nan]}
    pandas.DataFrame(table).to_parquet(tmp_path / "clients.parquet")
    given = {"devices.table": str(tmp_path / "clients.parquet"), "federation.num_clients": 2, **SLOW}
    scenario = load_scenario("femnist", given)
    assert scenario.fleet().names == ("raspberry-pi-4", "paper")
    assert scenario.constants().transmit_power_w.tolist() == [0.1, 0.2]
    np.testing.assert_array_equal(scenario.radio_link().transmit_power_w, [0.1, 0.2])


def test_steps_in_a_table(tmp_path):
    """Instead of the cubic law or of a profile's own steps; by hand 0.9 W at 600 MHz are 1.5 nJ per cycle."""
    text = "profile,steps\npaper,6e8:0.9 1e9:1.6 1.4e9:3.1\npixel-2,  1e9:2   2e9:5  \nraspberry-pi-4,\npixel-2,\n"
    constants = with_table(tmp_path / "clients.csv", text).constants()
    steps_hz = constants.step_frequencies_hz
    assert steps_hz[0, :3].tolist() == [6e8, 1e9, 1.4e9]
    np.testing.assert_allclose(constants.step_energies_j[0, :3], [1.5e-9, 1.6e-9, 3.1 / 1.4e9])
    assert steps_hz[1, :2].tolist() == [1e9, 2e9]
    assert np.isinf(steps_hz[1, 2:]).all()
    assert np.isinf(steps_hz[2]).all()
    assert np.isfinite(steps_hz[3]).sum() > 3
    assert constants.frequency_max_hz.tolist() == [1.4e9, 2e9, 1.5e9, 2.4576e9]
    assert constants.frequency_min_hz[:3].tolist() == [6e8, 1e9, 6e8]
    assert constants.energy_coefficient.tolist() == [0.0, 0.0, 1.10e-27, 0.0]


def test_the_cubic_law_in_a_table_takes_the_place_of_steps(tmp_path):
    text = "profile,energy_coefficient,frequency_min_hz,frequency_max_hz\npixel-2,2e-27,5e8,1e9\n"
    constants = with_table(tmp_path / "clients.csv", text).constants()
    assert constants.step_frequencies_hz is None
    assert constants.energy_coefficient == 2e-27
    assert (constants.frequency_min_hz, constants.frequency_max_hz) == (5e8, 1e9)


def test_a_step_that_is_never_the_best_is_not_the_lowest_frequency(tmp_path):
    """1 GHz takes 2 nJ per cycle, and 1.5 GHz takes 1.8."""
    constants = with_table(tmp_path / "clients.csv", "steps\n1e9:2 1.5e9:2.7 2e9:5\n").constants()
    assert (constants.frequency_min_hz, constants.frequency_max_hz) == (1.5e9, 2e9)
    assert constants.step_frequencies_hz.tolist() == [1.5e9, 2e9]


def test_steps_in_parquet_are_text_or_lists(tmp_path):
    pandas = pytest.importorskip("pandas")
    for cell in ("6e8:0.9 1e9:1.6", [[6e8, 0.9], [1e9, 1.6]]):
        pandas.DataFrame({"steps": [cell, None]}).to_parquet(tmp_path / "clients.parquet")
        given = {"devices.table": str(tmp_path / "clients.parquet"), "federation.num_clients": 2, **SLOW}
        constants = load_scenario("femnist", given).constants()
        assert constants.frequency_max_hz == 1e9
        assert constants.step_frequencies_hz[0].tolist() == [6e8, 1e9]
        assert np.isinf(constants.step_frequencies_hz[1]).all()


def test_booleans_in_parquet_are_no_numbers(tmp_path):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"dataset_size": [True, False]}).to_parquet(tmp_path / "clients.parquet")
    with pytest.raises(ConfigError, match="row 1: dataset_size = True is not a number"):
        load_scenario("femnist", {"devices.table": str(tmp_path / "clients.parquet"), "federation.num_clients": 2})


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("[radio]\ntransmit_power_w = 1e-4\n", "radio.transmit_power_w has no effect with the mix"),
        ("[device]\nbattery_j = 1.0\n", "device.battery_j has no effect with the mix"),
        (
            '[radio]\npower = "radiated"\n[radio.ue]\nwatts_per_unit = 0.5\n',
            'with radio.power = "radiated": set radio.p',
        ),
    ],
)
def test_a_file_beside_a_preset_states_nothing_in_vain(lines, words, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_scenario(written(tmp_path / "own.toml", f'preset = "3gpp"\n{lines}'))
    assert words in str(caught.value)


def test_a_saved_scenario_may_state_what_has_no_effect(tmp_path):
    scenario = load_scenario("3gpp")
    assert load_scenario(written(tmp_path / "run.toml", scenario_to_toml(scenario))) == scenario


def test_figures_of_the_papers_device_need_a_client_that_has_it(tmp_path):
    change = {"device.battery_j": 1.0}
    assert with_table(tmp_path / "clients.csv", "profile\npaper\npixel-2\n", **change)
    with pytest.raises(ConfigError, match=r"device\.battery_j has no effect with the devices in"):
        with_table(tmp_path / "clients.csv", "profile\nlaptop\npixel-2\n", **change)


def test_the_papers_device_is_plausible():
    with pytest.raises(ConfigError, match="is a power of 1e\\+09 W, above 1000 W"):
        load_scenario("femnist", {"device.energy_coefficient": 1e-18})


def test_changed_table_is_refused(tmp_path):
    scenario = with_table(tmp_path / "clients.csv", "dataset_size\n700\n800\n")
    assert len(scenario.devices.digest) == 64
    written(tmp_path / "clients.csv", "dataset_size\n700\n801\n")
    with pytest.raises(ConfigError, match="content has changed"):
        scenario.constants()
    other = with_table(tmp_path / "clients.csv", "dataset_size\n700\n801\n")
    assert run_digest(other) != run_digest(scenario)


def test_own_profile_is_part_of_the_identity(tmp_path):
    text = Path(find_profile.__code__.co_filename).with_name("raspberry-pi-4.toml").read_text(encoding="utf-8")
    path = written(tmp_path / "board.toml", text)
    one = load_scenario("femnist", {"devices.profile": path, **SLOW})
    assert one.fleet().names[0] == "board"
    written(tmp_path / "board.toml", text.replace("1.5e9", "1.8e9"))
    with pytest.raises(ConfigError, match="content has changed"):
        one.constants()
    two = load_scenario("femnist", {"devices.profile": path, **SLOW})
    assert two.constants().frequency_max_hz == 1.8e9
    assert run_digest(one) != run_digest(two)


def test_table_sets_the_number_of_clients_if_nothing_else_does(tmp_path):
    table = written(tmp_path / "clients.csv", "dataset_size\n700\n800\n900\n")
    settings = f'[devices]\ntable = "{table}"\n[learning]\nnum_parameters = 1000\n'
    assert load_scenario(written(tmp_path / "own.toml", settings)).federation.num_clients == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cycles_per_sampel\n1000\n", "did you mean cycles_per_sample"),
        ("frequency_max_hz\n1500\n", "row 1: frequency_max_hz = 1500 is out of range"),
        ("transmit_power_w\n23\n", "row 1: transmit_power_w = 23 is out of range"),
        ("dataset_size\n700.5\n", "a whole number"),
        ("dataset_size\n-1\n", "out of range"),
        ("dataset_size\nmany\n", "is not a number"),
        ("battery_j\nnan\n", "is not a number"),
        ("x_m\n10\n", "give both columns"),
        ("x_m,y_m\n5000,0\n", "outside cell.distance_min_m"),
        ("profile\nrasberry-pi-4\n", "did you mean 'raspberry-pi-4'"),
        ("profile,frequency_max_hz\npixel-2,2e9\n", "but energy_coefficient, frequency_min_hz is missing: state all"),
        ("energy_coefficient\n1e-20\n", "above 1000 W"),
        ("frequency_min_hz\n2e9\n", "swap them"),
        ("dataset_size,dataset_size\n1,2\n", "column twice"),
        ("dataset_size,profile\n1\n", "row 1 has 1 cells"),
        ("dataset_size,profile\n700,paper\n,paper\n", "dataset_size is missing in row 2"),
        ("steps\n6e8 0.9\n", "is no list of hertz:watts"),
        ("steps\n6e8:\n", "is no list of hertz:watts"),
        ("steps\n6e8:0.9:1\n", "is no list of hertz:watts"),
        ("steps\n6e8:0.9;1e9:1.6\n", "is no list of hertz:watts"),
        ('steps\n"6e8:0.9,1e9:1.6"\n', "is no list of hertz:watts"),
        ("steps\n6e8:0.9 1e9\n", "is no list of hertz:watts"),
        ("steps\n600:0.9\n", r"row 1: steps\[0\] has 600.0 as the frequency of a step"),
        ("steps\n6e8:0.9 1e9:1600\n", r"steps\[1\] has 1600.0 as the power of a step"),
        ("steps\n6e8:nan\n", r"steps\[0\] has nan"),
        ("steps\n1e9:1.6 6e8:0.9\n", "sort the frequencies"),
        ("steps,frequency_max_hz\n6e8:0.9,1e9\n", "row 1.*frequency_max_hz contradicts steps"),
        ("profile,flops_per_cycle\npaper,9\n", "row 1: flops_per_cycle has no effect with cycles_per_sample = 1000"),
        ("", "it is empty"),
        ("dataset_size\n", "it has 0 rows"),
    ],
)
def test_wrong_table_is_refused(text, words, tmp_path):
    with pytest.raises(ConfigError, match=words) as caught:
        with_table(tmp_path / "clients.csv", text, **{"federation.num_clients": max(1, text.count("\n") - 1)})
    assert "clients.csv" in str(caught.value)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"devices.profile": "phone-99"}, "profile 'phone-99' is not one of"),
        ({"devices.mix": {"paper": 0.0}}, "must be more than 0"),
        ({"devices.mix": {"paper": 1.0}, "devices.table": "x.csv"}, "mix contradicts table"),
        ({"devices.table": "none.csv"}, "cannot be read"),
        ({"devices.table": "none.txt"}, "cannot be read|does not end in"),
        ({"devices.table": "/dev/null"}, "it is not a regular file"),
        ({"devices.profile": "laptop", "device.cycles_per_sample": 5.0}, "has no effect with profile laptop"),
        ({"device.cycles_per_sample": "many"}, 'neither "auto" nor a number'),
        ({"device.cycles_per_sample": 0.0}, "must be at least 1"),
        ({"accounts.idle_power_w": 1e4}, "must be at most 100"),
        ({"accounts.idle_power_w": "board"}, 'neither "device" nor a number'),
        ({"devices.profil": "laptop"}, "did you mean devices.profile"),
    ],
)
def test_wrong_devices_are_refused(overrides, words):
    with pytest.raises(ConfigError, match=words):
        load_scenario("femnist", overrides)


def test_number_of_rows_must_fit(tmp_path):
    with pytest.raises(ConfigError, match=r"has 2 rows, but federation.num_clients = 10: set it to 2"):
        with_table(tmp_path / "clients.csv", "dataset_size\n700\n800\n", **{"federation.num_clients": 10})


def test_a_slow_device_is_refused_with_a_remedy():
    scenario = load_scenario("femnist", {"devices.profile": "raspberry-pi-4"})
    with pytest.raises(InfeasibleError, match=r"no client can ever finish.*raise the deadline to more than"):
        build_world(scenario, 0)


def test_resting_can_be_charged_from_the_profile():
    scenario = load_scenario("femnist", {"devices.profile": "laptop", "accounts.idle_power_w": "device", **SLOW})
    assert scenario.constants().idle_power_w == find_profile("laptop").idle_power_w
    assert "resting" in scenario.accounts.charged
    (run,) = plan(scenario, ["qccf"], 1)
    spent_j = run.by_round("idle_energy_j")
    np.testing.assert_allclose(spent_j, 4.0 * run.round_columns["latency_s"][:, None] * run.by_round("participated"))


def test_the_papers_device_rests_without_power():
    assert load_scenario("femnist", {"accounts.idle_power_w": "device"}).constants().idle_power_w == 0.0


def test_the_example_plans(monkeypatch):
    """The table of `docs/devices.md`, from the folder in which its command runs."""
    monkeypatch.chdir(Path(__file__).parents[2])
    scenario = load_scenario("examples/own_devices.toml", {"federation.rounds": 4})
    runs = plan(scenario, ["qccf", "fixed-bits"], 1)
    names = ["raspberry-pi-4", "raspberry-pi-5", "pixel-2", "galaxy-s6", "jetson-nano", "laptop"]
    for run in runs:
        assert run.by_round("device")[0].tolist() == names
        assert run.summary["devices"] == "the devices in examples/clients.csv"
        assert (run.by_round("participated").sum(axis=1) == 4).all()
        left_j = run.by_round("battery_j")
        assert np.isinf(left_j[:, [0, 1, 4]]).all()
        assert (left_j[-1, [2, 3]] <= [20000.0, 9000.0]).all()
        assert 10.0 < run.energy_j[-1] < 10_000.0


def test_rates_follow_each_clients_transmit_power(tmp_path):
    scenario = with_table(tmp_path / "clients.csv", "transmit_power_w\n0.05\n0.2\n0.4\n")
    cell = scenario_cell(scenario, 0)
    rates_bps = cell.round_rates_bps(0)
    for client, power_w in enumerate((0.05, 0.2, 0.4)):
        alone = load_scenario("femnist", {**SLOW, "federation.num_clients": 3, "radio.transmit_power_w": power_w})
        np.testing.assert_allclose(rates_bps[client], scenario_cell(alone, 0).round_rates_bps(0)[client])
        best = scenario_cell(alone, 0).best_rates_bps(1.0)[client]
        assert cell.best_rates_bps(1.0)[client] == pytest.approx(best)


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for key, name in (("table", "pipe.csv"), ("table", "zero.csv"), ("profile", "pipe.toml")):
        with pytest.raises(ConfigError, match=rf"{name}' cannot be read: it is not a regular file\."):
            load_scenario("femnist", {f"devices.{key}": str(tmp_path / name)})
    assert files_digest([str(tmp_path / "pipe.csv")]) == ""


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("dataset_size", [1, 100_000_000], [0, 100_000_001]),
        ("x_m", [-50_000, -0.5, 50_000], [-50_001, 50_001]),
        ("y_m", [-50_000, -0.5, 50_000], [-50_001, 50_001]),
    ],
)
def test_the_limits_of_sizes_and_places(name, allowed, refused, tmp_path):
    """Of a column that a table of clients has besides the figures of profiles; all limits are allowed themselves."""
    others = {"dataset_size": "dataset_size", "x_m": "x_m,y_m", "y_m": "y_m,x_m"}[name]
    rest = ",0" * others.count(",")
    rows = "".join(f"{number}{rest}\n" for number in allowed)
    table = read_clients(written(tmp_path / "clients.csv", f"{others}\n{rows}"))
    assert table.column(name) == allowed
    for number in refused:
        with pytest.raises(ConfigError, match=f"row 1: {name} = .* is out of range"):
            read_clients(written(tmp_path / f"{number}.csv", f"{others}\n{number}{rest}\n"))


def test_a_table_has_at_most_100_000_rows(tmp_path):
    with pytest.raises(ConfigError, match="it has 100,001 rows"):
        read_clients(written(tmp_path / "clients.csv", "dataset_size\n" + 100_001 * "1\n"))


def test_a_table_has_at_most_64_mib(tmp_path):
    with (tmp_path / "clients.csv").open("wb") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(ConfigError, match="has 67,108,865 bytes, more than 67,108,864"):
        read_clients(str(tmp_path / "clients.csv"))


def test_as_many_rows_and_bytes_as_allowed_are_read(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(clients_table, "MAX_CLIENTS", 2)
    for count in (2, 3):
        pandas.DataFrame({"dataset_size": [700] * count}).to_parquet(tmp_path / f"{count}.parquet")
        written(tmp_path / f"{count}.csv", "dataset_size\n" + count * "700\n")
    for ending in ("csv", "parquet"):
        assert len(read_clients(str(tmp_path / f"2.{ending}")).rows) == 2
        with pytest.raises(ConfigError, match="it has 3 rows"):
            read_clients(str(tmp_path / f"3.{ending}"))
    monkeypatch.setattr(clients_table, "MAX_BYTES", (tmp_path / "2.csv").stat().st_size)
    assert len(read_clients(str(tmp_path / "2.csv")).rows) == 2
    assert len(files_digest([str(tmp_path / "2.csv")])) == 64
    with pytest.raises(ConfigError, match="bytes, more than"):
        read_clients(str(tmp_path / "3.csv"))
    assert files_digest([str(tmp_path / "3.csv")]) == ""


def test_a_damaged_parquet_file_is_a_sentence(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(ConfigError, match=r"it is not a whole Parquet file \(.+\)\.$"):
        read_clients(written(tmp_path / "clients.parquet", "PAR1"))
