"""Recordings of real training that come with the package: statistics, and sizes and errors of every built-in codec.

`benchmarks/record_statistics.py` makes them. A recording is one .npz file: a header, the numbers of its rounds, four
series [round, client], and for each codec its error scales [round, client] and tables [round, client, q - 1]. Sizes are
in bits per parameter; errors are square roots of the share of their bound, so that half precision is enough.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import FloatArray
from qccf.core.errors import ConfigError
from qccf.core.files import write_whole
from qccf.quantization.costs import error_bound_table
from qccf.settings.loading import load_scenario
from qccf.settings.schema import RECORDINGS, Scenario

SERIES = ("gradient_norm_sq", "gradient_variance", "weight_range", "loss")


@dataclass(frozen=True)
class CodecTables:
    """What one codec does with the recorded models: c [round, client], and sizes and errors [round, client, q - 1].

    `bits_per_parameter` is None for a codec whose size is affine in q.
    """

    error_scales: FloatArray
    errors: FloatArray
    bits_per_parameter: FloatArray | None


@dataclass(frozen=True)
class Recording:
    """Statistics at the start of some rounds of a training run. `about` says on what data and with which settings."""

    about: dict[str, Any]
    rounds: FloatArray
    series: Mapping[str, FloatArray]
    codecs: Mapping[str, CodecTables]

    @property
    def num_parameters(self) -> int:
        return int(self.about["num_parameters"])

    @property
    def num_clients(self) -> int:
        return int(self.series["loss"].shape[1])


def write_recording(path: Path, recording: Recording) -> None:
    """Write a recording; `read_recording` reads it back with the precision of half floats."""
    header = {**recording.about, "codecs": list(recording.codecs)}
    arrays: dict[str, NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "rounds": recording.rounds.astype(np.int32),
        **{name: values.astype(np.float32) for name, values in recording.series.items()},
    }
    for name, tables in recording.codecs.items():
        scales = tables.error_scales.astype(np.float32)
        bounds = error_bound_table(scales.astype(float)[..., None])
        arrays[f"{name}/error_scales"] = scales
        arrays[f"{name}/errors"] = np.sqrt(tables.errors / bounds).astype(np.float16)
        if tables.bits_per_parameter is not None:
            arrays[f"{name}/bits_per_parameter"] = tables.bits_per_parameter.astype(np.float16)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    write_whole(path, write)


@lru_cache(maxsize=4)
def bundled_recording(name: str) -> Recording:
    """The recording of that name."""
    if name not in RECORDINGS:
        raise ConfigError(f"statistics.trace = {name!r} is not a recording: they are {', '.join(RECORDINGS)}.")
    file = resources.files("qccf.settings").joinpath("presets", "recordings", f"{name}.npz")
    return read_recording(file.read_bytes())


def read_recording(data: bytes) -> Recording:
    """The recording that a file holds."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    about = json.loads(arrays["header"].tobytes())
    codecs = {}
    for name in about.pop("codecs"):
        scales = arrays[f"{name}/error_scales"].astype(float)
        shares = np.square(arrays[f"{name}/errors"].astype(float))
        bits = arrays.get(f"{name}/bits_per_parameter")
        errors = np.minimum.accumulate(shares * error_bound_table(scales[..., None]), axis=-1)
        codecs[name] = CodecTables(scales, errors, None if bits is None else bits.astype(float))
    series = {name: arrays[name].astype(float) for name in SERIES}
    return Recording(about, arrays["rounds"].astype(float), series, codecs)


def recording_name(scenario: Scenario) -> str:
    """The recording of a scenario: the one that it names, else cifar10 for its model and femnist for others."""
    return scenario.statistics.trace or ("cifar10" if scenario.learning.model == "cifar10-cnn" else "femnist")


def update_scale(recording: Recording, scenario: Scenario) -> float:
    """Squared updates of the scenario over recorded ones: as the square of the learning rate times the local steps.

    The controller expects the same, so that another learning rate by itself changes no decision.
    """
    recorded, learning = load_scenario(recording.about["preset"]).learning, scenario.learning
    steps = learning.steps(scenario.data.dataset_size_mean), recorded.steps(recording.about["samples_per_client"])
    return float((learning.learning_rate * steps[0] / (recorded.learning_rate * steps[1])) ** 2)


def recording_words(scenario: Scenario) -> str:
    """Where the statistics of a scenario come from, and how they are fitted to it."""
    recording = bundled_recording(recording_name(scenario))
    about = recording.about
    words = [
        f"{about['rounds']} rounds of real training on {about['dataset']} ({about['data']}), "
        f"{recording.num_clients} clients, {about['samples_per_client']:g} samples each, "
        f"recorded for {recording.num_parameters:,} parameters"
    ]
    if scenario.learning.num_parameters != recording.num_parameters:
        words.append("scaled")
    if scenario.federation.rounds > about["rounds"]:
        words.append("after that the last values are held, and the loss goes on falling")
    steps = scenario.learning.steps(scenario.data.dataset_size_mean)
    recorded_steps = load_scenario(about["preset"]).learning.steps(about["samples_per_client"])
    if steps != recorded_steps:
        words.append(f"recorded with {recorded_steps} local steps, not the {steps} of this scenario")
    if update_scale(recording, scenario) != 1.0:
        words.append("errors of updates are scaled with the squares of learning rate and steps")
    if recording_name(scenario) == "cifar10" and about["dataset"] != "cifar10":
        words.append("CIFAR-10 itself was not recorded")
    return "; ".join(words)
