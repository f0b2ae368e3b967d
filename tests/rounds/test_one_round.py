"""Simulator, planner, studies and Flower run the same round: given the same statistics they decide the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.rounds.run import Run
from qccf.rounds.run_folder import read_run
from qccf.rounds.setup import build_rules, scenario_codec
from qccf.rounds.sources import RecordedStatistics
from qccf.runtimes.planner import plan, plan_run, planned_world, run_rounds
from qccf.runtimes.simulator import simulate
from tests.helpers.tiny import tiny_dataset, tiny_scenario

FORMS = [("scale-free", "assignment"), ("paper", "assignment"), ("paper", "genetic"), ("paper", "exhaustive")]
DECIDED = ["participated", "arrived", "channel", "num_bits", "frequency_hz", "compute_energy_j"]


def assert_same_decisions(first: Run, second: Run) -> None:
    for column in DECIDED:
        np.testing.assert_array_equal(first.client_columns[column], second.client_columns[column], err_msg=column)
    for column in ("participation_queue", "quantization_queue", "objective"):
        np.testing.assert_array_equal(first.round_columns[column], second.round_columns[column], err_msg=column)


@pytest.mark.parametrize(("form", "solver"), FORMS)
@pytest.mark.parametrize("codec", ["model", "update+entropy"])
def test_a_plan_from_a_recorded_run_decides_as_training_did(form: str, solver: str, codec: str, tmp_path: Path) -> None:
    settings = [f"control.form={form}", f"control.solver={solver}", f"codec.name={codec}"]
    settings += ["radio.num_channels=4", "federation.seed=2"]
    settings += ["control.genetic.generations=5"] * (solver == "genetic")
    scenario = tiny_scenario(*settings)
    trained = simulate(scenario, dataset=tiny_dataset(), out=tmp_path)
    recorded = read_run(tmp_path)
    (planned,) = plan(scenario, ["qccf"], 1, statistics_from=recorded)
    assert len(set(trained.by_round("num_bits").ravel())) > 1, "the decisions must have something to differ in"
    assert_same_decisions(planned, trained)
    errors = trained.statistics_columns["upload_errors"]
    assert errors.shape == (8 * 5, 32)
    assert (errors[:, 0] > errors[:, 7]).all(), "also before the first round, from the probe"
    np.testing.assert_array_equal(planned.statistics_columns["upload_errors"], errors)


@pytest.mark.parametrize(("form", "solver"), FORMS)
def test_the_rounds_of_the_studies_are_the_planners(form: str, solver: str, tmp_path: Path) -> None:
    settings = [f"control.form={form}", f"control.solver={solver}"]
    settings += ["control.genetic.generations=5"] * (solver == "genetic")
    scenario = tiny_scenario(*settings, "federation.rounds=4")
    recorded = simulate(scenario, dataset=tiny_dataset(), out=tmp_path)
    world = planned_world(scenario, 0, recorded)
    rules = replace(build_rules(scenario, scenario_codec(scenario)), safety_margin=0.0)
    study = run_rounds(world, rules, RecordedStatistics(recorded), scenario)
    assert_same_decisions(study, plan_run(world, "qccf", recorded))


def test_beyond_its_last_round_a_recording_is_held(tmp_path: Path) -> None:
    recorded = simulate(tiny_scenario("federation.rounds=3"), dataset=tiny_dataset(), out=tmp_path)
    source = RecordedStatistics(recorded)
    np.testing.assert_array_equal(source.known(2).weight_ranges, source.known(50).weight_ranges)
    (planned,) = plan(tiny_scenario("federation.rounds=6"), ["qccf"], 1, statistics_from=recorded)
    assert planned.num_rounds == 6


def test_a_recorded_run_tells_what_was_known_in_each_round() -> None:
    """Three rounds of two clients, the numbers of which are counted through. A loss that rises is held at the end."""
    count = np.arange(6.0)
    names = ("dataset_size", "gradient_norm_sq", "gradient_variance", "weight_range")
    known = {"upload_errors": np.stack([count, count + 0.5], axis=1), **dict.fromkeys(names, count)}
    source = RecordedStatistics(Run(tiny_scenario(), {}, {"round": np.arange(3)}, {"loss": 10.0 * count}, known))
    for index, first in ((0, 0.0), (1, 2.0), (2, 4.0), (3, 4.0), (50, 4.0)):
        assert source.known(index).weight_ranges.tolist() == [first, first + 1.0]
        assert source.known(index).upload_errors.tolist() == [[first, first + 0.5], [first + 1.0, first + 1.5]]
        assert source.losses(index).tolist() == [10.0 * first, 10.0 * (first + 1.0)]


@pytest.mark.parametrize(("codec", "ratio"), [("update", 16.0), ("model", 1.0)])
def test_beyond_its_last_round_a_decaying_learning_rate_goes_on_decaying(codec: str, ratio: float) -> None:
    run = simulate(
        tiny_scenario("federation.rounds=3", "learning.decay=0.5", f"codec.name={codec}"), dataset=tiny_dataset()
    )
    source = RecordedStatistics(run)
    last, later = source.known(2), source.known(4)
    assert later.gradient_norms_sq == pytest.approx(last.gradient_norms_sq / 16.0)
    assert later.gradient_variances == pytest.approx(last.gradient_variances / 16.0)
    assert later.upload_errors == pytest.approx(last.upload_errors / ratio)
    assert later.weight_ranges.tolist() == last.weight_ranges.tolist()


def test_a_recording_that_does_not_fit_is_refused() -> None:
    recorded = simulate(tiny_scenario("federation.rounds=1"), dataset=tiny_dataset())
    with pytest.raises(ConfigError, match=r"num_clients = 6, but the run .* was recorded with 5"):
        plan(tiny_scenario("federation.num_clients=6"), ["qccf"], 1, statistics_from=recorded)
    with pytest.raises(ConfigError, match="holds no recorded statistics"):
        RecordedStatistics(replace(recorded, statistics_columns={}))
