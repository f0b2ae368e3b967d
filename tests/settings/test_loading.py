"""Settings: what is accepted, and the sentence for what is not."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pydantic
import pytest

from qccf.core.contracts import Constants
from qccf.core.errors import ConfigError, InfeasibleError
from qccf.quantization.registry import CODECS
from qccf.rounds.world import build_world
from qccf.settings.loading import PRESETS, load_scenario, scenario_from_dict, scenario_to_toml, with_layer


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_load_and_are_frozen(preset: str) -> None:
    scenario = load_scenario(preset)
    assert isinstance(scenario.constants(), Constants)
    with pytest.raises(pydantic.ValidationError):
        scenario.radio.bandwidth_hz = 1.0


def test_femnist_is_the_papers_setting_but_for_the_bandwidth() -> None:
    s, table = load_scenario("femnist"), load_scenario("paper-table")
    assert (s.radio.bandwidth_hz, table.radio.bandwidth_hz) == (10e6, 1e6)
    c, t = s.constants(), table.constants()
    assert c == replace(t, bandwidth_hz=c.bandwidth_hz)
    expected = (246_590, 0.02, 1000.0, 1e-26, 0.2, 2e8, 1e9, 6, 2)
    names = ("num_parameters", "deadline_s", "cycles_per_sample", "energy_coefficient", "transmit_power_w")
    names += ("frequency_min_hz", "frequency_max_hz", "local_updates", "local_epochs")
    assert tuple(getattr(t, name) for name in names) == expected
    assert (table.radio.rician_k, table.radio.fading_mean_power, table.radio.noise_dbm_per_hz) == (4, 1, -174)
    assert table.cell.radius_m == 500
    cifar = load_scenario("cifar10").constants()
    assert (cifar.num_parameters, cifar.deadline_s, cifar.cycles_per_sample, cifar.energy_weight) == (
        576_778,
        0.05,
        2000,
        10,
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("radio.bandwith_hz=1e7", ["radio.bandwith_hz", "did you mean radio.bandwidth_hz?"]),
        ("cell.foo=1", ["cell.foo is not a setting", "known here: radius_m"]),
        ("radio.bandwidth_hz=10", ["radio.bandwidth_hz = 10", "at least 1000", "hertz"]),
        ("radio.bandwidth_hz=10 MHz", ["radio.bandwidth_hz = '10 MHz'", "not a number", "hertz"]),
        ("radio.transmit_power_w=23", ["radio.transmit_power_w = 23", "at most 10", "watts"]),
        ("device.deadline_s=1e-6", ["device.deadline_s = 1e-06", "at least 1e-05", "seconds"]),
        ("radio.noise_dbm_per_hz=4e-21", ["noise_dbm_per_hz", "at most -90", "dBm/Hz"]),
        ("cell.carrier_hz=2.4", ["cell.carrier_hz = 2.4", "at least 5e+08"]),
        ("federation.num_clients=0", ["federation.num_clients = 0", "at least 1"]),
        ("federation.num_clients=2.5", ["federation.num_clients = 2.5", "whole number"]),
        ("federation.rounds=true", ["federation.rounds = True", "whole number"]),
        ("device.frequency_min_hz=2e9", ["frequency_min_hz = 2e+09 is above frequency_max_hz = 1e+09"]),
        ("learning.local_updates=1", ["local_updates = 1 is below local_epochs = 2"]),
        ("learning.local_updates=0", ["local_updates = 0 and batch_size = 0", "exactly one"]),
        ("control.solver=magic", ["control.solver = 'magic'", "'assignment', 'genetic' or 'exhaustive'"]),
        ("control.paper.data_budget=-1.0", ["control.paper.data_budget = -1.0", '"auto"', "from 0"]),
        ("control.paper.data_budget=abc", ["control.paper.data_budget = 'abc'", '"auto"', "from 0"]),
        ("control.genetic.elitism=50", ["elitism = 50", "population = 50"]),
        ("principle.patience=1", ["patience = 1", "2 or more"]),
        ("statistics.trace=some.csv", ['trace = "some.csv"', 'model = "trace"']),
        ("radio.num_channels=nan", ["radio.num_channels", "whole number"]),
        ("cell.path_loss=3", ["cell.path_loss = 3", "a text"]),
        ("cell.scenario=umi", ["cell.scenario is not a setting", "cell.path_loss"]),
        ("data.dataset=3", ["data.dataset = 3", "a text"]),
        ("control.paper.energy_weight=nan", ["control.paper.energy_weight = nan", "finite number"]),
        ("cell.distance_min_m=600", ["distance_min_m = 600", "radius_m = 500"]),
        ("data.dataset_size_min=5000", ["dataset_size_mean = 1200", "dataset_size_min = 5000"]),
        ("statistics.model=trace", ["trace", "needs one"]),
        ("bandwidth=3", ["--set 'bandwidth=3'", "section.key=value"]),
        ("radio.bandwidth_hz", ["section.key=value"]),
        ("radio.bandwidth_hz.x=1", ["'bandwidth_hz' is a value"]),
    ],
)
def test_mistakes_get_key_value_and_limit(override: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scenario("femnist", [override])
    sentence = str(caught.value)
    for word in words:
        assert word in sentence
    assert "\n" not in sentence


def test_only_the_papers_form_needs_a_smooth_loss() -> None:
    """The default form does not depend on L."""
    assert load_scenario("femnist", ["learning.smoothness=1.2"]).learning.smoothness == 1.2
    with pytest.raises(ConfigError) as caught:
        load_scenario("femnist", ["control.form=paper", "learning.smoothness=1.2"])
    for word in ("learning.smoothness = 1.2", "below 1", "1.179"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["control.paper.energy_weight=10.0"],
        ["control.genetic.population=8"],
        ["control.form=paper", "control.slack=2.0"],
        ["control.form=paper", "control.energy_weight=2.0"],
        ["control.form=paper", "control.power=fixed"],
    ],
)
def test_a_setting_of_the_form_that_does_not_run_is_refused(overrides: list[str]) -> None:
    key = overrides[-1].partition("=")[0]
    with pytest.raises(ConfigError, match=f"^{key} has no effect with control.form = "):
        load_scenario("femnist", overrides)


def test_the_papers_form_has_one_learning_rate() -> None:
    """Its bound has one, and clients whose gradients shrink would not be worth their energy."""
    with pytest.raises(ConfigError, match=r'learning.decay = 0.9 contradicts control.form = "paper"'):
        load_scenario("femnist", ["control.form=paper", "codec.name=model", "learning.decay=0.9"])
    assert load_scenario("femnist", ["learning.decay=0.9"]).learning.decay == 0.9


def test_class_shares_are_not_told_where_updates_are_private() -> None:
    adjusted, private = "learning.logit_adjustment=true", ("privacy.clip_norm=1", "privacy.noise_multiplier=0.5")
    with pytest.raises(ConfigError, match=r"contradicts privacy.noise_multiplier = 0.5"):
        load_scenario("femnist", [adjusted, *private])
    assert load_scenario("femnist", [adjusted, private[0]]).learning.logit_adjustment is True
    with pytest.raises(ConfigError, match=r'logit_adjustment = "dataset" contradicts privacy.noise_multiplier'):
        load_scenario("femnist", ["learning.logit_adjustment=dataset", *private])
    with pytest.raises(ConfigError, match=r"'maybe' is not one of false, true or 'dataset'\."):
        load_scenario("femnist", ["learning.logit_adjustment=maybe"])
    with pytest.raises(
        ConfigError, match=r"adjustment_strength = 0\.5 has no effect without learning\.logit_adjustment"
    ):
        load_scenario("femnist", ["learning.adjustment_strength=0.5"])
    with pytest.raises(ConfigError, match=r"adjustment_strength = 0 corrects nothing"):
        load_scenario("lean", ["learning.adjustment_strength=0"])
    load_scenario("lean", ["learning.adjustment_strength=0", "learning.logit_adjustment=dataset"])


def test_smoothed_labels_do_not_go_with_the_whole_logit_adjustment() -> None:
    """The share that smoothing gives to a class that a client does not have would raise the score of the class."""
    smoothed = "learning.loss_options.label_smoothing=0.1"
    for adjusted in ("true", '"dataset"'):
        words = rf"smoothing = 0\.1 contradicts learning\.logit_adjustment = {adjusted}, .*: set label_smoothing = 0,"
        with pytest.raises(ConfigError, match=words):
            load_scenario("femnist", [smoothed, f"learning.logit_adjustment={adjusted}"])
    for allowed in (["learning.adjustment_strength=0.5"], ["learning.loss_options.label_smoothing=0"]):
        load_scenario("femnist", [smoothed, "learning.logit_adjustment=true", *allowed])
    load_scenario("femnist", [smoothed])
    load_scenario("femnist", [smoothed, "learning.logit_adjustment=true", "learning.loss=my_module:loss"])


def test_the_error_of_a_coded_downlink_needs_one() -> None:
    with pytest.raises(ConfigError, match=r"downlink_error = 0\.5 has no effect with downlink = 'model'"):
        load_scenario("femnist", ["server.downlink_error=0.5"])
    assert load_scenario("femnist", ["server.downlink_error=0.1"]).server.downlink_error == 0.1
    coded = load_scenario("femnist", ["server.downlink_error=0.5", "server.downlink=update+entropy"])
    assert coded.server.downlink_error == 0.5


def test_the_papers_form_has_one_power_for_all() -> None:
    with pytest.raises(ConfigError, match='power = "adapted" has no effect in form = "paper"'):
        scenario_from_dict({"control": {"form": "paper", "power": "adapted"}})


def test_charges_are_named_and_become_constants() -> None:
    plain, charged = (
        load_scenario("femnist", settings)
        for settings in (
            [],
            ["accounts.coding_cycles_per_parameter=80.0", "accounts.receive_power_w=0.1", "accounts.idle_power_w=0.01"],
        )
    )
    assert plain.accounts.charged == "computing, uploading"
    assert charged.accounts.charged == "computing, uploading, coding, receiving, resting"
    assert charged.constants().coding_cycles == 80.0 * 246_590
    assert charged.constants().receive_energy_j == pytest.approx(0.1 * 32 * 246_590 / 1e8)
    assert (plain.constants().coding_cycles, plain.constants().receive_energy_j) == (0.0, 0.0)
    with pytest.raises(InfeasibleError, match=r"samples and coding takes .* accounts.coding_cycles_per_parameter"):
        build_world(charged, 0)


def test_overrides_reach_the_scenario() -> None:
    scenario = load_scenario(
        "femnist",
        ["radio.bandwidth_hz=2e7", "cell.path_loss=uma", "control.form=paper", "control.genetic.population=8"],
    )
    assert scenario.radio.bandwidth_hz == 2e7
    assert scenario.cell.path_loss == "uma"
    assert scenario.control.genetic.population == 8
    assert scenario.device.deadline_s == 0.02


def test_a_file_states_what_differs_from_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('preset = "cifar10"\n[radio]\ngain_db = 5\n')
    scenario = load_scenario(path, ["federation.rounds=7"])
    assert scenario.learning.num_parameters == 576_778
    assert (scenario.radio.gain_db, scenario.federation.rounds) == (5, 7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[radio\n", "not valid TOML"),
        ('preset = "mnist"\n', 'preset = "mnist"'),
        ("[radio]\nfoo = 1\n", "radio.foo"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        load_scenario(path)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a preset"):
        load_scenario("nowhere.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a text file"):
        load_scenario(path)


def test_the_papers_table_is_refused_with_rates_and_remedies() -> None:
    scenario = load_scenario("paper-table")
    for seed in range(20):
        with pytest.raises(InfeasibleError) as caught:
            build_world(scenario, seed)
        sentence = str(caught.value)
        assert "needs 28 Mb/s" in sentence
        assert "the best link" in sentence
        assert "radio.bandwidth_hz = 2.7e+06" in sentence
        assert "device.deadline_s = 0.044" in sentence
        assert "radio.gain_db = 49" in sentence
        assert re.search(r"codec.name = sparse or update\+entropy or update\+block\+entropy or", sentence)
        named = sentence.partition("codec.name = ")[2].rstrip(".").split(" or ")
        assert set(named) == {name for name in CODECS if name.endswith(("entropy", "sparse"))}, "the others do not fit"


@pytest.mark.parametrize(
    "remedy",
    [
        "radio.bandwidth_hz=2.7e6",
        "device.deadline_s=0.044",
        "radio.gain_db=49",
        *(f"codec.name={name}" for name in CODECS if name.endswith(("entropy", "sparse"))),
    ],
)
def test_each_remedy_mends_the_papers_table(remedy: str) -> None:
    from qccf.runtimes.planner import plan_run

    scenario = load_scenario("paper-table", [remedy, "federation.rounds=10"])
    runs = [plan_run(build_world(scenario, seed), "channel-allocate") for seed in range(4)]
    share = sum(run.by_round("participated").mean() for run in runs) / len(runs)
    assert 0.3 < share <= 1.0, "about half of the clients are nearer than the median one"


def test_training_that_never_ends_in_time_is_refused() -> None:
    with pytest.raises(InfeasibleError, match=r"training on \d+ samples takes .* beyond device.deadline_s = 0.02"):
        build_world(load_scenario("femnist", ["device.cycles_per_sample=1e5"]), 0)


def test_sizes_are_drawn_as_stated() -> None:
    scenario = load_scenario("femnist", ["federation.num_clients=20000", "data.dataset_size_std=300"])
    sizes = build_world(scenario, 0).dataset_sizes
    assert sizes.mean() == pytest.approx(1200, abs=5 * 300 / 20000**0.5)
    assert sizes.std() == pytest.approx(300, rel=0.03)
    assert sizes.min() >= 100
    assert (sizes == sizes.round()).all()
    low = load_scenario("femnist", ["data.dataset_size_std=3000"])
    assert build_world(low, 0).dataset_sizes.min() == 100


def test_remedies_stay_within_the_limits_of_the_config() -> None:
    with pytest.raises(InfeasibleError) as caught:
        build_world(load_scenario("femnist", ["radio.gain_db=-100", "codec.name=model"]), 0)
    assert "deadline_s = 8" not in str(caught.value), "a remedy that the config refuses is none"
    with pytest.raises(InfeasibleError, match="no single setting changes that"):
        build_world(
            load_scenario(
                "femnist",
                ["radio.gain_db=-100", "radio.transmit_power_w=1e-6", "radio.bandwidth_hz=1e3", "codec.name=model"],
            ),
            0,
        )
    with pytest.raises(InfeasibleError, match=r"of codec 'update\+entropy' \(88 bits\) needs 0\.005 Mb"):
        build_world(load_scenario("femnist", ["radio.gain_db=-100", "radio.bandwidth_hz=1e3"]), 0)


def test_a_value_in_place_of_a_section() -> None:
    with pytest.raises(ConfigError, match="radio = 3 is not a section"):
        scenario_from_dict({"radio": 3})


def test_the_median_client_of_the_default_cell() -> None:
    """The rates that docs/deviations.md states: with the break point of the path loss, and without."""
    import numpy as np

    from qccf.core.units import db_to_linear

    radio = load_scenario("femnist").radio_link()
    median_m = np.array([500.0 / np.sqrt(2.0)])
    loss_db = radio.path_loss_model().loss_db(median_m, np.array([True]))
    assert float(radio.rates_bps(db_to_linear(-loss_db))[0]) == pytest.approx(87e6, rel=0.01)
    near_db = 32.4 + 21.0 * np.log10(np.hypot(median_m, 8.5)) + 20.0 * np.log10(2.4)
    assert float(radio.rates_bps(db_to_linear(-near_db))[0]) == pytest.approx(111e6, rel=0.01)


def test_a_batch_size_takes_the_place_of_the_number_of_steps_and_back() -> None:
    scenario = load_scenario("femnist", ["learning.batch_size=20"])
    assert (scenario.learning.batch_size, scenario.learning.local_updates) == (20, 0)
    assert scenario.learning.steps(1200) == scenario.constants().local_updates == 2 * 60
    assert scenario.learning.steps(1201) == 2 * 61  # the last batch has one sample
    again = load_scenario(scenario, ["learning.local_updates=6"])
    assert (again.learning.batch_size, again.learning.local_updates) == (0, 6)
    assert again == load_scenario("femnist")
    assert scenario_from_dict(tomllib.loads(scenario_to_toml(scenario))) == scenario
    with pytest.raises(ConfigError, match="local_updates = 6 and batch_size = 20: exactly one of them"):
        load_scenario("femnist", ["learning.batch_size=20", "learning.local_updates=6"])
    with pytest.raises(ConfigError, match="local_updates = 0 and batch_size = 0: exactly one of them"):
        load_scenario("femnist", ["learning.local_updates=0"])


def test_a_layer_changes_how_a_federation_learns_and_not_what_it_is(tmp_path: Path) -> None:
    quick, lean = load_scenario("quick"), load_scenario("lean")
    both = with_layer(quick, "lean")
    for section in ("federation", "data", "cell", "radio", "device", "statistics"):
        assert getattr(both, section) == getattr(quick, section)
    assert (both.server, both.control, both.policy) == (lean.server, lean.control, lean.policy)
    assert (both.learning.batch_size, both.learning.local_epochs, both.learning.local_updates) == (20, 1, 0)
    assert both.control.power == "adapted"
    assert with_layer(load_scenario("iot"), "lean").control.power == "fixed", "its rates are not Shannon's"
    (tmp_path / "own.toml").write_text('preset = "femnist"\n[radio]\nnum_channels = 5\n')
    with pytest.raises(ConfigError, match=r"states \[radio\], so it would be another federation"):
        with_layer(quick, str(tmp_path / "own.toml"))
