"""The training step of a scenario as work for `qccf.devices.measuring`, and the profile of this machine."""

import itertools
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from qccf.core.errors import ConfigError
from qccf.core.steps import steps_per_epoch
from qccf.core.streams import stream
from qccf.devices.measured_profile import profile_of
from qccf.devices.measuring import Measurement, Progress, Work, measure, this_machine
from qccf.devices.meters.battery import capacity_j
from qccf.devices.meters.registry import SYSTEM, first_meter, open_meter
from qccf.devices.profile import Profile
from qccf.learning.datasets import available_dataset, data_folder, load_dataset
from qccf.learning.losses import build_loss
from qccf.learning.models.flops import counted_flops
from qccf.learning.models.registry import build_model
from qccf.learning.optimizers import optimizer_maker
from qccf.learning.training import FlatModel, batches, model_inputs
from qccf.learning.transforms import build_transforms
from qccf.settings.loading import Scenario

MOST_SECONDS = 600.0
LEAST_SECONDS = 0.1


@dataclass(frozen=True)
class MeasuredDevice:
    """The profile of this machine, what was measured, and one sentence for each figure that is assumed."""

    profile: Profile
    measurement: Measurement
    flops_per_sample: float
    notes: list[str]


@dataclass(frozen=True)
class TrainingStep:
    """A training step that can be repeated, its operations per sample, and what it is in words."""

    work: Work
    flops_per_sample: float
    words: str


def measure_device(
    scenario: Scenario,
    *,
    name: str,
    seconds: float,
    show: Progress,
    meter: str = "auto",
    frequency_hz: float | None = None,
    data_dir: Path | None = None,
    root: Path = SYSTEM,
) -> MeasuredDevice:
    """Train the scenario's model on this machine for `seconds` at each frequency, and make a profile of it.

    `meter` is "auto", "none", a name, or a user's own as module:Class. `root` stands for `/sys`.
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ConfigError(f"--seconds {seconds:g} is out of range: give {LEAST_SECONDS:g} to {MOST_SECONDS:g}.")
    if frequency_hz is not None and not 1e6 <= frequency_hz <= 1e11:
        raise ConfigError(f"--frequency {frequency_hz:g} is out of range: give 1e6 to 1e11, in hertz.")
    step = training_step(scenario, data_dir)
    found, reasons = (
        (None, []) if meter == "none" else first_meter(root) if meter == "auto" else (open_meter(meter, root), [])
    )
    machine = this_machine(root, found, frequency_hz)
    if found is None:
        machine.notes += [f"the energy was not measured: {reason}" for reason in reasons]
    measured = measure(step.work, machine, seconds=seconds, show=show)
    profile, notes = profile_of(
        measured,
        name=name,
        title=f"{name}, measured ({platform.machine() or 'unknown processor'})",
        work=step.words,
        flops_per_sample=step.flops_per_sample,
        battery_j=capacity_j(root),
    )
    return MeasuredDevice(profile, measured, step.flops_per_sample, notes)


def training_step(scenario: Scenario, data_dir: Path | None = None) -> TrainingStep:
    """Steps of local training on the samples of one client of mean size, as a run makes them."""
    learning, data = scenario.learning, scenario.data
    folder = data_folder(data_dir)
    chosen, _ = available_dataset([data.dataset, *data.fallbacks], folder)
    dataset = load_dataset(chosen, folder, seed=scenario.federation.seed, options=data.options)
    count = min(round(data.dataset_size_mean), len(dataset.train_labels))
    images, labels = torch.from_numpy(dataset.train_images[:count]), torch.from_numpy(dataset.train_labels[:count])
    model = FlatModel(
        build_model(learning.model, scenario.federation.seed, **learning.model_options),
        device="cpu",
        precision="fp32",
        loss=build_loss(learning.loss, learning.loss_options),
        transforms=build_transforms(data.transform, dataset.train_images),
    )
    model.model.train()
    maker = optimizer_maker(
        learning.optimizer,
        learning_rate=learning.learning_rate,
        momentum=learning.momentum,
        weight_decay=learning.weight_decay,
    )
    optimizer = None if maker is None else maker([one for one in model.model.parameters() if one.requires_grad])
    rng = stream(scenario.federation.seed, "measure")
    steps = steps_per_epoch(
        count, local_updates=learning.local_updates, local_epochs=learning.local_epochs, batch_size=learning.batch_size
    )[0]
    parts = itertools.cycle(batches(count, steps, rng, learning.batch_size))

    def work() -> int:
        part = next(parts)
        with model.randomness(0):
            model.gradient_at(images[part], labels[part], rng)
        float(model.gradients.dot(model.gradients))
        if optimizer is None:
            model.weights.add_(model.gradients, alpha=-learning.learning_rate)
        else:
            optimizer.step()
        return len(part)

    shape = tuple(model_inputs(images[:1]).shape[1:])
    flops = learning.flops_per_sample or counted_flops(learning.model, learning.model_options, shape)
    words = f"training {learning.model} on {dataset.name} in batches of {int(np.ceil(count / steps))}"
    return TrainingStep(work, flops, words)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """PyTorch computes with this many threads inside; None leaves their number."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
