"""The comparison of the two forms in training: its scenarios and its table."""

import pytest

from benchmarks.training_forms import SHOWN, TASKS, Scale, differences, expected_core_s, table, task_scenario
from qccf.devices.cost import training_cycles
from qccf.settings.loading import load_scenario


@pytest.mark.parametrize("name", TASKS)
def test_computing_takes_the_same_time_as_in_the_preset(name: str) -> None:
    """A client with the mean number of samples needs the same cycles."""
    small = task_scenario(TASKS[name], Scale(50, 240, 2), "model", "paper", 1)
    preset = load_scenario("femnist")
    cycles = [training_cycles(one.data.dataset_size_mean, one.constants()) for one in (small, preset)]
    assert cycles[0] == pytest.approx(cycles[1])
    assert small.data.dataset_size_std / small.data.dataset_size_mean == pytest.approx(150 / 1200)
    assert small.learning.num_parameters == preset.learning.num_parameters
    assert (small.control.form, small.codec.name, small.federation.seed) == ("paper", "model", 1)


def test_the_expected_time_counts_the_images_that_are_trained_and_tested() -> None:
    scenario = task_scenario(TASKS["emnist-3-channels"], Scale(10, 240, 2), "model", "paper", 0)
    passes = 10 * 3 * 240 * 2 + 5 * scenario.evaluation.samples / 3
    assert expected_core_s(scenario) == pytest.approx(0.7e-3 * passes + 10.0)


def test_differences_are_paired_by_seed_and_energy_is_relative() -> None:
    def figures(accuracy: float, energy: float) -> dict[str, float]:
        return dict.fromkeys(SHOWN, 1.0) | {"accuracy": accuracy, "energy": energy}

    results = {
        0: {"paper": figures(70.0, 4.0), "scale-free": figures(71.0, 3.0)},
        1: {"paper": figures(80.0, 2.0), "scale-free": figures(81.5, 1.0)},
        2: {"paper": figures(10.0, 9.0)},  # its partner is not finished
    }
    found = differences(results)
    assert found["accuracy"].count == 2
    assert found["accuracy"].mean == pytest.approx(1.25)
    assert found["accuracy"].half == pytest.approx(12.706 * 0.25, rel=1e-3)
    assert found["energy"].mean == pytest.approx(-37.5)
    assert found["bits"].mean == 0.0
    lines = table("title", results)
    assert lines[-1].startswith("| difference, paired | 2 | +1.25 ± 3.18 | -37.5 ± 158.8 % |")
    assert lines[-3].startswith("| paper | 3 | 53.33 ")
