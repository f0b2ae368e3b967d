"""Training steps as work for a measurement."""

import pytest
import torch

from qccf.core.errors import ConfigError
from qccf.runtimes.device import measure_device, threads, training_step
from qccf.settings.loading import load_scenario
from tests.helpers.made_sysfs import add_package, write
from tests.helpers.tiny import SETTINGS

pytestmark = pytest.mark.usefixtures("tiny_source")


def quiet(*_: object) -> None:
    pass


@pytest.fixture
def scenario():
    return load_scenario("quick", [*SETTINGS, "data.dataset=tiny"])


def test_a_step_trains(scenario) -> None:
    step = training_step(scenario)
    assert step.work() == 20  # 60 samples in three steps per epoch
    assert step.flops_per_sample == 2560
    assert "tiny" in step.words


def test_a_machine_is_measured_with_its_counter(scenario, tmp_path) -> None:
    zone = add_package(tmp_path, 0, energy_uj=0)
    counted = [0]

    def show(what: str, *_: object) -> None:
        counted[0] += 400_000 if what.startswith("training") else 1000
        write(zone / "energy_uj", counted[0])

    found = measure_device(scenario, name="mine", seconds=0.3, show=show, frequency_hz=1e9, root=tmp_path)
    assert found.measurement.meter == "powercap"
    assert found.profile.sources["energy_coefficient"].startswith("measured with powercap")
    trial = found.measurement.trials[0]
    assert found.profile.flops_per_cycle == pytest.approx(2560 / trial.cycles_per_sample)
    assert found.profile.idle_power_w > 0.0


@pytest.mark.parametrize(
    ("options", "says"), [({"seconds": 0.0}, "--seconds 0"), ({"frequency_hz": 2.4}, "--frequency 2.4")]
)
def test_absurd_options_are_refused(scenario, tmp_path, options, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        measure_device(scenario, **({"name": "x", "seconds": 1.0, "show": quiet, "root": tmp_path} | options))


def test_the_number_of_threads_is_set_back() -> None:
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
