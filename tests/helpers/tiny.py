"""A federation small enough to train in milliseconds: 8×8 images, ten classes, a linear model of 650 parameters."""

from dataclasses import replace

import numpy as np
from torch import nn

from qccf.core.contracts import Decision
from qccf.learning.datasets import Dataset
from qccf.quantization.entropy import EntropyCodec
from qccf.settings.loading import Scenario, load_scenario

SETTINGS = [
    "learning.model=tests.helpers.tiny:Tiny",
    "learning.num_parameters=650",
    "radio.bandwidth_hz=3e4",
    "data.dataset_size_mean=60",
    "data.dataset_size_std=12",
    "data.dataset_size_min=20",
    "device.cycles_per_sample=2e4",
    "evaluation.samples=100",
    "federation.rounds=8",
    "federation.num_clients=5",
    "radio.num_channels=5",
    "learning.smoothness=1.0",
    "codec.name=model",
]


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, images):
        return self.layer(images.flatten(1))


class Optimist(EntropyCodec):
    """A codec whose uploads are four times as large as it says."""

    def __init__(self, num_parameters, layer_sizes):
        super().__init__(num_parameters, layer_sizes, codec_id=99, relative=True)

    def forecast(self, vector):
        known = super().forecast(vector)
        return replace(known, bits=known.bits / 4.0)


class Nobody:
    """A policy that schedules no one."""

    def __init__(self, constants, *, rounds):
        pass

    def init(self, statistics):
        return {}

    def decide(self, state, observation, rng):
        count = observation.num_clients
        return Decision(np.full(count, -1), np.zeros(count, dtype=np.int64), np.zeros(count))

    def update(self, state, decision, outcome):
        return state


def tiny_scenario(*overrides: str) -> Scenario:
    return load_scenario("femnist", [*SETTINGS, *overrides])


def tiny_dataset(samples: int = 1200, seed: int = 0) -> Dataset:
    """Ten blurred blobs that a linear model can tell apart, with thirty writers."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0, 255, (10, 8, 8))
    labels = rng.integers(0, 10, samples + 300)
    images = np.clip(centres[labels] + rng.normal(0, 60, (len(labels), 8, 8)), 0, 255).astype(np.uint8)
    return Dataset(
        name="tiny",
        train_images=images[:samples],
        train_labels=labels[:samples],
        train_writers=rng.integers(0, 30, samples),
        test_images=images[samples:],
        test_labels=labels[samples:],
        class_names=tuple("0123456789"),
        synthetic=True,
        source="blurred blobs made for a test",
    )


class TinySource:
    """The same data as a dataset with a name. The fixture `tiny_source` registers it."""

    name = "tiny"
    description = "blobs for tests"

    def load(self, folder, *, seed):
        return tiny_dataset()

    def fetch(self, folder, progress):
        progress("tiny", 0, 10)
        progress("tiny", 10, 10)
        return [folder / "tiny"]

    def check(self, folder):
        return ["tiny: whole"]


def tiny_arguments(*more: str) -> list[str]:
    """The same on the command line, with the dataset `tiny`, which the fixture `tiny_source` registers."""
    return [part for value in (*SETTINGS, "data.dataset=tiny", *more) for part in ("--set", value)]
