"""The ready app in Flower's own simulation, on Ray, against our simulator."""

from pathlib import Path

import numpy as np
import pytest

from qccf.runtimes.flower.loopback import Loopback
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario
from tests.helpers.checkpoints import checkpoint_arrays

SETTINGS = ["federation.num_clients=3", "federation.rounds=2", "evaluation.samples=50", "data.dataset_size_mean=60"]


@pytest.mark.deployment
def test_flower_on_ray_ends_with_the_same_model(tmp_path: Path) -> None:
    with Loopback(tmp_path / "federation", 3, simulated=True) as federation:
        federation.run({"set": " ".join(SETTINGS), "out": tmp_path / "flower"}).wait(600)
        assert (tmp_path / "flower" / "summary.json").exists(), federation.log_text("run") + federation.log_text("link")
    simulate(load_scenario("quick", SETTINGS), out=tmp_path / "ours")
    ours, theirs = (checkpoint_arrays(tmp_path / name / "checkpoints") for name in ("ours", "flower"))
    np.testing.assert_array_equal(theirs["weights"], ours["weights"])
    for column in ("num_bits", "channel", "frequency_hz", "payload_bits", "arrived"):
        np.testing.assert_array_equal(theirs[f"clients/{column}"], ours[f"clients/{column}"], err_msg=column)
