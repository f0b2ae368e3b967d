"""Plans with the paper's devices decide what they decided when every client had the same scalar constants.

`recorded/paper_plans.json` was written by the version before devices could differ. Channels and bits must be equal;
energies, latencies and frequencies may differ in the last digits between processors. A change that is meant to move
decisions records them again: python -m tests.runtimes.test_paper_plans.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from qccf.policies.registry import POLICIES
from qccf.runtimes.planner import plan
from qccf.settings.loading import load_scenario

FILE = Path(__file__).parent / "recorded" / "paper_plans.json"
SHORT = {"federation.rounds": 6}
FEW = {"federation.num_clients": 14, "radio.num_channels": 5}
PAPER = {"control.form": "paper"}
CODECS = ["model", "update+entropy"]
ALL = list(POLICIES)
CASES = {
    "free": (SHORT, ALL, CODECS),
    "paper": (SHORT | PAPER, ALL, CODECS),
    "few": (SHORT | FEW, ALL, CODECS),
    "few-paper": (SHORT | FEW | PAPER, ALL, CODECS),
    "closed": (SHORT | PAPER | {"control.inner": "closed-form"}, ["qccf", "same-size"], ["model"]),
    "printed": (SHORT | PAPER | {"control.inner": "printed"}, ["qccf"], ["model"]),
    "power": (SHORT | {"control.power": "adapted", "radio.circuit_power_w": 0.05}, ["qccf"], CODECS),
}


def figures(run):
    """What identifies a run's decisions, and what they cost."""
    chosen = np.stack([run.client_columns["channel"], run.client_columns["num_bits"]]).astype("<i8")
    return {
        "decisions": hashlib.sha256(chosen.tobytes()).hexdigest(),
        "energy_j": run.round_columns["energy_j"].tolist(),
        "latency_s": run.round_columns["latency_s"].tolist(),
        "frequency_hz": float(run.client_columns["frequency_hz"].sum()),
        "floor_j": run.summary["floor_j"],
    }


def planned(case):
    """The runs of a case by name."""
    overrides, policies, codecs = CASES[case]
    runs = plan(load_scenario("femnist", overrides), policies, 1, codecs=codecs)
    return {f"{case}/{run.policy}/{run.codec}": run for run in runs}


@pytest.mark.parametrize("case", CASES)
def test_paper_devices_decide_as_recorded(case):
    recorded_plans = json.loads(FILE.read_text(encoding="utf-8"))
    for name, run in planned(case).items():
        found, recorded = figures(run), recorded_plans[name]
        assert found.pop("decisions") == recorded["decisions"], name
        for figure, values in found.items():
            np.testing.assert_allclose(values, recorded[figure], rtol=1e-9, err_msg=f"{name} {figure}")


if __name__ == "__main__":
    everything = {name: figures(run) for case in CASES for name, run in planned(case).items()}
    FILE.write_text(json.dumps(everything, indent=1), encoding="utf-8")
