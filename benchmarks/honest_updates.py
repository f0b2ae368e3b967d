"""How long are the updates of honest clients, as a multiple of the usual length that clipping compares them with?

The default of `aggregation.mean.most_norm` must lie above the longest, and half of it above the longest three in a row
of one client, so that clipping changes nothing in honest runs.
Federations without attackers are trained with each codec and with few, many and adaptive bits; clipping is off.

Run: python -m benchmarks.honest_updates [--rounds 12] [--seeds 0,1] [--codecs A,B] [--only TEXT] [--data-dir DIR]
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.learning.aggregation.mean import LASTING, Mean, MeanOptions
from qccf.learning.aggregation.protocol import AggregationState, Combined, Updates
from qccf.learning.datasets import data_folder
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario

Changes = Mapping[str, Any]

SMALL: Changes = {"learning.model": "small-cnn", "learning.learning_rate": 0.2, "data.dataset_size_min": 10}
PRESET = "preset quick"
"""Its network takes long, so it is trained only with adaptive bits."""
FEDERATIONS: Mapping[str, tuple[str, Changes]] = {
    PRESET: ("quick", {}),
    "quick with the small network": ("quick", SMALL),
    "the same, very different data (α = 0.1)": ("quick", {**SMALL, "data.dirichlet_alpha": 0.1}),
    "EMNIST, 120 ± 30 samples in batches of 20": (
        "femnist",
        {**SMALL, "data.dataset": "emnist", "data.dataset_size_mean": 120.0, "data.dataset_size_std": 30.0}
        | {"learning.batch_size": 20, "learning.local_epochs": 1},
    ),
    "EMNIST, 120 ± 60 samples in batches of 10": (
        "femnist",
        {**SMALL, "data.dataset": "emnist", "data.dataset_size_mean": 120.0, "data.dataset_size_std": 60.0}
        | {"learning.batch_size": 10, "learning.local_epochs": 1},
    ),
    "MNIST by writer, 120 ± 30 samples, six steps": (
        "femnist",
        {**SMALL, "data.dataset": "mnist", "data.partition": "writer", "data.dataset_size_mean": 120.0}
        | {"data.dataset_size_std": 30.0},
    ),
}
ADAPTIVE = "adaptive"
BITS: Mapping[str, Changes] = {
    ADAPTIVE: {},
    **{f"{bits}": {"policy.name": "fixed-bits", "fixed_bits.bits": bits} for bits in (1, 2, 8)},
}

seen: list[tuple[list[int], FloatArray]] = []
"""Clients and lengths, in usual lengths, of each round of the run that is going on."""


class Watched(Mean):
    """The mean without clipping. It notes how long each update is, compared with its usual length."""

    Options = MeanOptions
    section = "options"

    def combine(self, state: AggregationState, updates: Updates) -> tuple[Combined, AggregationState]:
        made, after = super().combine(state, updates)
        if (made.kept < 1.0).all():  # the limit is tiny, so what remains is limit · usual length / length
            seen.append((list(updates.clients), self.options.most_norm / made.kept))
        ones = np.ones(len(updates.clients))
        return self._combined(updates, ones, ones), after


def longest() -> tuple[float, float]:
    """The longest update, and the longest of which a client made three in a row."""
    by_client: dict[int, list[float]] = {}
    for clients, lengths in seen:
        for client, length in zip(clients, lengths, strict=True):
            by_client.setdefault(client, []).append(float(length))
    single = max(max(mine) for mine in by_client.values())
    lasting = [min(mine[k : k + LASTING]) for mine in by_client.values() for k in range(len(mine) - LASTING + 1)]
    return single, max(lasting)


def measured(preset: str, changes: Changes, *, rounds: int, data_dir: Path) -> tuple[float, float]:
    seen.clear()
    common = {
        "aggregation.rule": "benchmarks.honest_updates:Watched",
        "aggregation.options": {"most_norm": 1e-9},
        "federation.rounds": rounds,
        "evaluation.every": rounds,
        "execution.workers": 1,
    }
    simulate(load_scenario(preset, {**changes, **common}), data_dir=data_dir)
    return longest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seeds", default="0,1", metavar="0,1,…")
    parser.add_argument("--codecs", default="model,update,update+entropy,sparse", metavar="A,B")
    parser.add_argument("--only", default="", metavar="TEXT", help="federations whose name contains this")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    seeds, data_dir = [int(seed) for seed in options.seeds.split(",")], data_folder(options.data_dir)
    print(f"longest update / longest three in a row, in usual lengths: {options.rounds} rounds, seeds {options.seeds}")
    print(f"| federation | codec | {' | '.join(f'bits: {bits}' for bits in BITS)} |\n|---|---{'|---' * len(BITS)}|")
    for name, (preset, changes) in FEDERATIONS.items():
        if options.only not in name:
            continue
        for codec in options.codecs.split(","):
            cells = []
            for bits, policy in BITS.items():
                if name == PRESET and bits != ADAPTIVE:
                    cells.append("–")
                    continue
                values = [
                    measured(
                        preset,
                        {**changes, **policy, "codec.name": codec, "federation.seed": seed},
                        rounds=options.rounds,
                        data_dir=data_dir,
                    )
                    for seed in seeds
                ]
                cells.append(" / ".join(f"{max(one):.2f}" for one in zip(*values, strict=True)))
            print(f"| {name} | `{codec}` | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    from benchmarks.honest_updates import main  # the settings name the rule in this module, not in `__main__`

    raise SystemExit(main())
