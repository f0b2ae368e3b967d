"""The grid of a sweep, from its file."""

from pathlib import Path

from qccf.jobs.grid import load_grid

PLAN = """
scenario = "quick"
kind = "plan"
[settings]
federation.rounds = 2
[grid]
policy = ["qccf", "principle"]
"control.energy_weight" = [10, 20]
seed = [3, 4]
"""


def test_the_grid_is_every_combination_in_order(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(PLAN)
    grid = load_grid(file)
    found = [(s.policy.name, s.control.energy_weight, s.federation.seed) for s in grid.scenarios]
    assert found == [(p, v, s) for p in ("qccf", "principle") for v in (10.0, 20.0) for s in (3, 4)]
    assert {(s.federation.rounds, s.codec.name, s.data.dataset_size_mean) for s in grid.scenarios} == {
        (2, "update+entropy", 200)
    }
    assert grid.kind == "plan"


def test_settings_may_change_together_and_a_scenario_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('preset = "quick"\n[radio]\ngain_db = 3.0\n')
    file = tmp_path / "grid.toml"
    file.write_text(
        'scenario = "mine.toml"\n[settings.federation]\nrounds = 5\n'
        "[grid]\nsize = [{federation.num_clients = 4, radio.num_channels = 2}, {policy = 'principle'}]\n"
        "'codec.options.block_size' = [64, 128]\ncodec = ['block']\n"
    )
    grid = load_grid(file)
    assert grid.kind == "train"
    found = [(s.federation.num_clients, s.radio.num_channels, s.policy.name) for s in grid.scenarios]
    assert found == [(4, 2, "qccf")] * 2 + [(10, 10, "principle")] * 2
    assert [s.codec.options["block_size"] for s in grid.scenarios] == [64, 128, 64, 128]
    assert {(s.radio.gain_db, s.federation.rounds, s.codec.name) for s in grid.scenarios} == {(3.0, 5, "block")}


def test_another_model_and_dataset_drop_what_belonged_to_the_presets(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        'kind = "plan"\n[settings]\n"data.dataset" = "cifar10"\n[grid]\n"learning.model" = ["cifar10-cnn"]\n'
    )
    (scenario,) = load_grid(file).scenarios
    assert scenario.learning.num_parameters == 0, "to be counted"
    assert scenario.data.fallbacks == []
