"""One file and one line: a user's own entries get everything that ours get."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = '''
import numpy as np
from torch import nn

from qccf.learning.datasets import Dataset
from qccf.policies.channel_allocate import ChannelAllocate
from qccf.quantization.uniform import UniformCodec
from qccf.wireless.path_loss.log_distance import LogDistance
from qccf.wireless.rates.shannon import Shannon


class OwnPolicy(ChannelAllocate):
    """As many bits as the channels can carry."""


class OwnCodec(UniformCodec):
    def __init__(self, num_parameters, layer_sizes):
        super().__init__(num_parameters, layer_sizes, codec_id=77, relative=True)


class OwnModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, images):
        return self.layer(images.flatten(1))


class OwnPathLoss(LogDistance):
    def loss_db(self, distances_m, line_of_sight):
        return super().loss_db(distances_m, line_of_sight) - 10.0


class OwnRate(Shannon):
    def rates_bps(self, signal_to_noise, *, bandwidth_hz):
        return 0.9 * super().rates_bps(signal_to_noise, bandwidth_hz=bandwidth_hz)


class OwnServer:
    """Half of the way to the average."""

    def init(self, num_parameters):
        return {"steps": np.zeros(1)}

    def step(self, state, aggregate):
        return aggregate.previous + 0.5 * aggregate.change, {"steps": state["steps"] + 1.0}


class OwnDataset:
    name = "own"
    description = "random dots"

    def load(self, folder, *, seed):
        rng = np.random.default_rng(seed)
        images = rng.integers(0, 256, (1500, 8, 8), dtype=np.uint8)
        labels = rng.integers(0, 10, 1500)
        names = tuple("0123456789")
        return Dataset("own", images[:1200], labels[:1200], None, images[1200:], labels[1200:], names, True, "dots")

    def fetch(self, folder, progress):
        return []

    def check(self, folder):
        return ["always here"]
'''
PATHS = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
KINDS = {
    "policy": "OwnPolicy",
    "codec": "OwnCodec",
    "model": "OwnModel",
    "path-loss": "OwnPathLoss",
    "rate-model": "OwnRate",
    "dataset": "OwnDataset",
    "server-optimizer": "OwnServer",
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own_entries.py").write_text(MODULE)
    return tmp_path


def run(own: Path, *command: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=own,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": PATHS, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_they_are_compared_and_reported(own: Path) -> None:
    (own / "own.toml").write_text(
        f"""
        [federation]
        num_clients = 5
        rounds = 2
        [data]
        dataset = "own_entries:{KINDS["dataset"]}"
        dataset_size_mean = 60
        dataset_size_std = 12
        dataset_size_min = 20
        [cell]
        path_loss = "own_entries:{KINDS["path-loss"]}"
        [radio]
        rate = "own_entries:{KINDS["rate-model"]}"
        [device]
        cycles_per_sample = 2e4
        [learning]
        model = "own_entries:{KINDS["model"]}"
        [server]
        optimizer = "own_entries:{KINDS["server-optimizer"]}"
        """
    )
    policies, codecs = f"qccf,own_entries:{KINDS['policy']}", f"model,own_entries:{KINDS['codec']}"
    shown = run(own, "qccf", "compare", "own.toml", "--policy", policies, "--codec", codecs, "--out", "out")
    assert "own_entries:OwnPolicy, own_entries:OwnCodec" in shown
    summaries = json.loads((own / "out" / "summary.json").read_text())
    assert {(s["policy"], s["codec"]) for s in summaries} == {
        (policy, codec) for policy in policies.split(",") for codec in codecs.split(",")
    }
    assert {s["dataset"] for s in summaries} == {"own"}
    assert all(s["participation"] > 0.0 for s in summaries)
    run(own, "qccf", "report", "out")
    page = (own / "out" / "report.html").read_text()
    for kind in ("OwnPolicy", "OwnCodec", "OwnModel", "OwnPathLoss", "OwnRate", "OwnDataset", "OwnServer"):
        assert f"own_entries:{kind}" in page


@pytest.mark.slow
def test_they_are_enrolled_in_the_conformance_tests(own: Path) -> None:
    named = " ".join(f"{kind}=own_entries:{name}" for kind, name in KINDS.items())
    options = ["-vv", "-p", "no:cacheprovider", "-k", "own_entries", "--rootdir", ROOT, "-c", ROOT / "pyproject.toml"]
    out = run(own, "pytest", ROOT / "tests" / "conformance", *options, QCCF_CONFORMANCE=named)
    for kind, name in KINDS.items():
        assert f"own_entries:{name}" in out, f"no conformance test has tried the {kind}"
