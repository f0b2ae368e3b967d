"""Record the statistics of a real training, and what codecs would make of its models in each round.

The files in src/qccf/settings/presets/recordings, which `qccf plan` uses instead of training, are made by:

    python -m benchmarks.record_statistics quick --rounds 16
    python -m benchmarks.record_statistics iot --rounds 40
    python -m benchmarks.record_statistics femnist --rounds 20 --samples 400 --dataset emnist
    python -m benchmarks.record_statistics cifar10 --rounds 12 --samples 300 --dataset mnist

Those in benchmarks/trainings, which benchmarks/decisions.py replays, are made by the following command for seeds 0
to 7 (emnist-0.npz, …), and once more for seed 0 with --set policy.name=principle (emnist-0-principle.npz). Sizes
are the paper's β = 300 of 1,200 samples, and a sample costs so many cycles that decisions are those of 1,200.

    python -m benchmarks.record_statistics femnist --rounds 100 --samples 160 --dataset emnist --seed 0 \
      --every 1 --codecs model,update --set control.form=paper --set codec.name=model \
      --set data.dataset_size_std=40 --set data.dataset_size_min=14 --set device.cycles_per_sample=7500 \
      --out benchmarks/trainings/emnist-0.npz

The images of another dataset are padded and repeated where the model needs 32 × 32 pixels in three colours.

`--add` keeps a recording and adds the codecs that it lacks: training is repeated, and the new tables are scaled to the
updates of the recording, so that plans with the other codecs do not change.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from qccf._version import __version__
from qccf.learning.datasets import Dataset, data_folder, load_dataset
from qccf.learning.results import Flat, LocalResult, LocalStatistics
from qccf.quantization.protocol import Codec, Forecast
from qccf.quantization.registry import CODECS, build_codec
from qccf.rounds import uplink
from qccf.rounds.ledger import Ledger
from qccf.rounds.recordings import SERIES, CodecTables, Recording, read_recording, write_recording
from qccf.rounds.round import OpenRound, ServerState, first_state, run_round
from qccf.rounds.setup import build_rules, scenario_codec
from qccf.rounds.world import build_world
from qccf.runtimes.clients import Clients
from qccf.runtimes.simulator import TrainedUploads, about_data, resolved_scenario
from qccf.settings.loading import load_scenario
from qccf.settings.schema import DEFAULT_CODEC

FOLDER = Path(__file__).parents[1] / "src/qccf/settings/presets/recordings"
STORED = 17
"""How many rounds a recording keeps unless it is told otherwise."""

Measured = tuple[LocalStatistics, dict[str, Forecast]]


class RecordingUploads(TrainedUploads):
    """Uploads from training. In the rounds to store, all clients train, so that each has new statistics."""

    def __init__(self, clients: Clients, rules, weights: Flat, codecs: Mapping[str, Codec], stored: set[int]) -> None:
        super().__init__(clients, rules, weights)
        self._codecs = codecs
        self._stored = stored
        self.points: dict[int, dict[int, Measured]] = {
            0: clients.probe(weights, lambda _, result: self._measured(result, weights))
        }

    def _measured(self, result: LocalResult, received: Flat) -> Measured:
        forecasts = {
            name: codec.forecast(uplink.coded_vector(codec, result.weights, received))
            for name, codec in self._codecs.items()
        }
        return result.statistics, forecasts

    def uploads(self, state: ServerState, opened: OpenRound) -> Mapping[int, uplink.Upload]:
        known_at, weights = state.round_index + 1, state.weights
        if known_at not in self._stored:
            return super().uploads(state, opened)

        def report(client: int, result: LocalResult) -> tuple[Measured, uplink.Upload | None]:
            takes_part = bool(opened.to_train[client])
            upload = self.encoded(client, result, weights, state.round_index, opened) if takes_part else None
            return self._measured(result, weights), upload

        reports = self._clients.train(range(len(opened.to_train)), weights, state.round_index, report)
        self.points[known_at] = {client: measured for client, (measured, _) in reports.items()}
        return {client: upload for client, (_, upload) in reports.items() if upload is not None}


def record(
    preset: str,
    rounds: int,
    samples: int | None,
    dataset: str | None,
    *,
    changes: Sequence[str] = (),
    every: int | None = None,
    codec_names: Sequence[str] = tuple(CODECS),
) -> Recording:
    """Train the preset's federation and keep its statistics. `samples` is the mean number per client."""
    overrides = [f"federation.rounds={rounds}", "execution.precision=fp32", "execution.device=cpu"]
    if dataset:
        overrides.append(f"data.dataset={dataset}")
    if samples:
        overrides += [f"data.dataset_size_mean={samples}", f"data.dataset_size_std={samples / 8}"]
    scenario = load_scenario(preset, [*overrides, f"evaluation.every={rounds}", *changes])
    scenario = resolved_scenario(scenario, data_folder(None), print)
    data = load_dataset(scenario.data.dataset, data_folder(None), seed=0)
    if scenario.learning.model == "cifar10-cnn" and data.train_images.ndim == 3:
        data = _as_colour(data)
    seed = scenario.federation.seed
    world = build_world(scenario, seed)
    count = STORED if every is None else rounds // every + 1
    stored = set(np.unique(np.linspace(0, rounds, count).round().astype(int)).tolist())
    with Clients(scenario, data, world.dataset_sizes, seed) as clients:
        sizes = clients.layer_sizes()
        count = scenario.learning.num_parameters
        codecs = {name: build_codec(name, count, sizes) for name in codec_names}
        rules = build_rules(scenario, scenario_codec(scenario, sizes))
        weights = clients.initial_weights()
        source = RecordingUploads(clients, rules, weights, codecs, stored)
        state, ledger = first_state(rules, source, weights), Ledger()
        while state.round_index < rounds:
            state = run_round(state, rules, world, source, ledger)
            print(f"round {state.round_index}/{rounds}: loss {ledger.last['train_loss']:.3f}", flush=True)
    about = {
        "preset": preset,
        **about_data(data),
        "model": scenario.learning.model,
        "num_parameters": count,
        "rounds": rounds,
        "samples_per_client": scenario.data.dataset_size_mean,
        "seed": seed,
        "policy": scenario.policy.name,
        "codec": scenario.codec.name,
        "version": __version__,
    }
    return _recording(about, source.points, {name: codec.affine for name, codec in codecs.items()})


def with_added_codecs(kept: Recording, repeated: Recording) -> Recording:
    """A recording with the codecs that it lacks, from a repetition of its training.

    Two trainings differ a little. Error scales of the default codec, which follow the squared size of updates, say by
    how much.
    """
    ratio = kept.codecs[DEFAULT_CODEC].error_scales / repeated.codecs[DEFAULT_CODEC].error_scales
    added = {
        name: CodecTables(tables.error_scales * ratio, tables.errors * ratio[..., None], tables.bits_per_parameter)
        for name, tables in repeated.codecs.items()
        if name not in kept.codecs
    }
    return replace(kept, codecs={**kept.codecs, **added})


def _as_colour(data: Dataset) -> Dataset:
    """Grey images of 28 × 28 pixels as colour images of 32 × 32."""
    train, test = (
        np.repeat(np.pad(images, ((0, 0), (2, 2), (2, 2)))[..., None], 3, axis=3)
        for images in (data.train_images, data.test_images)
    )
    source = f"{data.source}, padded to 32 × 32 in three equal colours"
    return replace(data, train_images=train, test_images=test, source=source)


def _recording(about: dict, points: dict[int, dict[int, Measured]], affine: Mapping[str, bool]) -> Recording:
    numbers = sorted(points)
    table = [[points[number][client] for client in sorted(points[number])] for number in numbers]
    series = {
        name: np.array([[getattr(statistics, name) for statistics, _ in row] for row in table]) for name in SERIES
    }
    codecs = {}
    for name, is_affine in affine.items():
        forecasts = [[known[name] for _, known in row] for row in table]
        bits = None
        if not is_affine:
            bits = np.array([[one.bits for one in row] for row in forecasts]) / about["num_parameters"]
        codecs[name] = CodecTables(
            np.array([[one.error_scale for one in row] for row in forecasts]),
            np.array([[one.errors for one in row] for row in forecasts]),
            bits,
        )
    return Recording(about, np.array(numbers, dtype=float), series, codecs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=("quick", "iot", "femnist", "cifar10"))
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--dataset", help="default: the preset's, or the first of its fallbacks that is available")
    parser.add_argument("--samples", type=int, help="mean number of samples per client (default: the preset's)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--every", type=int, help=f"rounds between those that are kept (default: {STORED} in all)")
    parser.add_argument("--codecs", default=",".join(CODECS), metavar="A,B,…", help="default: all")
    parser.add_argument("--add", action="store_true", help="only add the codecs that the recording lacks")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="default: the preset's bundled recording")
    options = parser.parse_args()
    path = options.out or FOLDER / f"{options.preset}.npz"
    codec_names = options.codecs.split(",")
    if options.add and DEFAULT_CODEC not in codec_names:
        parser.error(f"--add compares the two trainings by {DEFAULT_CODEC}: add it to --codecs")
    if changed := next((one for one in options.changes if one.startswith("learning.")), None):
        parser.error(
            f"--set {changed}: plans scale updates by the preset's settings of learning, so they cannot change"
        )
    recorded = record(
        options.preset,
        options.rounds,
        options.samples,
        options.dataset,
        changes=[f"federation.seed={options.seed}", *options.changes],
        every=options.every,
        codec_names=codec_names,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_recording(path, with_added_codecs(read_recording(path.read_bytes()), recorded) if options.add else recorded)
    print(f"Written: {path.name}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
