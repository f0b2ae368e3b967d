"""Does the order of policies and codecs survive real devices and radios? Decisions alone, beside the paper's model.

Run: python -m benchmarks.rankings [--seeds 5] [--rounds 30] [--show] [--figure FILE]
Results are kept seed by seed in --record (committed); the same command computes only what is missing.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qccf.core.correlation import relation
from qccf.core.files import write_text_whole
from qccf.core.intervals import Estimate, estimate
from qccf.reports.figures.builders import INTERVALS, estimated
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import MARKERS, PALETTE, Style
from qccf.rounds.run import Run
from qccf.runtimes.planner import plan
from qccf.settings.loading import load_scenario

RECORD = Path("docs/results/rankings.json")
DIGITS = 5
BESIDE = 0.12
"""Distance of the points of one cell from each other in the figure."""

CELLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "the paper's model": ("femnist", {}),
    "phones": ("3gpp", {"devices.mix": {"pixel-2": 1.0, "galaxy-s6": 1.0}}),
    "boards": ("3gpp", {"devices.mix": {"raspberry-pi-4": 1.0, "raspberry-pi-5": 1.0}}),
    "GPUs and laptops": ("3gpp", {"devices.mix": {"jetson-orin-nano": 1.0, "laptop": 1.0}}),
    "slow and fast": ("3gpp", {"devices.mix": {"raspberry-pi-4": 1.0, "jetson-orin-nano": 1.0}}),
    "preset 3gpp": ("3gpp", {}),
    "3gpp, all take part": ("3gpp", {"radio.num_channels": 20, "radio.resource_blocks": 13}),
    "preset iot": ("iot", {}),
}
"""Preset and changes. The four mixes are in the cell of `3gpp`, which has 13 channels for 20 clients; with 20 narrower
channels no policy chooses who takes part."""

PAPER = "the paper's model"
POLICIES = ("qccf", "fixed-bits", "principle", "same-size", "channel-allocate", "no-quantization")
CODECS = ("update+entropy", "sparse", "model+entropy", "update", "model")
"""The first of each is what the others are compared with; codecs are those of qccf."""

Figures = dict[str, float]
Record = dict[str, dict[str, dict[str, Figures]]]
"""Cell, policy and codec, seed."""


def entries() -> list[tuple[str, str]]:
    """Every policy with the default codec, and qccf with the other codecs."""
    return [*((policy, CODECS[0]) for policy in POLICIES), *((POLICIES[0], codec) for codec in CODECS[1:])]


def measures(run: Run) -> Figures:
    turns = run.by_round("participated").sum(axis=0).astype(float)
    arrived = float(run.by_round("arrived").sum())
    return {
        "energy_j": float(run.energy_j[-1]) / arrived if arrived else float("nan"),
        "computing": run.computing_share(),
        "bits": run.mean_upload_bits(),
        "jain": float(turns.sum() ** 2 / (len(turns) * np.square(turns).sum())) if turns.any() else 0.0,
        "late": run.missed_share(),
    }


def compute(record: Record, file: Path, seeds: int, rounds: int, cells: Sequence[str]) -> None:
    """Add what is missing, one cell and seed at a time."""
    for seed in range(seeds):
        for cell in cells:
            preset, changes = CELLS[cell]
            known = record.setdefault(cell, {})
            for policy, codec in entries():
                mine = known.setdefault(f"{policy}, {codec}", {})
                if str(seed) in mine:
                    continue
                common = {"federation.rounds": rounds, "federation.seed": seed, "codec.name": codec}
                run = plan(load_scenario(preset, {**changes, **common}), [policy], 1)[0]
                mine[str(seed)] = {name: float(f"{value:.{DIGITS}g}") for name, value in measures(run).items()}
            write_text_whole(file, json.dumps(record, indent=1, sort_keys=True) + "\n")
            print(f"{cell}, seed {seed}", flush=True)


def ratios(record: Record, cell: str, entry: str, first: str) -> Estimate:
    """Energy per upload that arrived, as a share of the first entry's, paired by seed."""
    mine, base = record[cell].get(entry, {}), record[cell].get(first, {})
    pairs = [(mine[seed]["energy_j"], base[seed]["energy_j"]) for seed in mine if seed in base]
    return estimate(a / b for a, b in pairs if np.isfinite(a) and np.isfinite(b))


def order(record: Record, cell: str, names: Sequence[str]) -> list[float]:
    """Mean energy of each entry, for its rank."""
    return [float(np.mean([one["energy_j"] for one in record[cell][name].values()])) for name in names]


def table(record: Record, names: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Energy of each entry against the first, and how the order agrees with that of the paper's model."""
    lines = [
        "| cell | computing | " + " | ".join(labels[1:]) + " | order as in the paper's |",
        "|---" * (len(labels) + 2) + "|",
    ]
    for cell in (cell for cell in CELLS if cell in record):
        share = estimate(one["computing"] for one in record[cell][names[0]].values())
        found = [ratios(record, cell, name, names[0]).shown(".3g") for name in names[1:]]
        same = relation(np.array(order(record, PAPER, names)), np.array(order(record, cell, names)))
        lines.append(f"| {cell} | {share.mean:.0%} | " + " | ".join(found) + f" | {same:+.2f} |")
    return lines


def fairness(record: Record) -> list[str]:
    """Jain's index of participation: 1 where all clients take part equally often."""
    lines = ["| cell | " + " | ".join(POLICIES) + " |", "|---" * (len(POLICIES) + 1) + "|"]
    for cell in (cell for cell in CELLS if cell in record):
        mine = [record[cell][f"{policy}, {CODECS[0]}"].values() for policy in POLICIES]
        cells = [f"{np.mean([one['jain'] for one in found]):.2f}" for found in mine]
        lines.append(f"| {cell} | " + " | ".join(cells) + " |")
    return lines


def figure(record: Record) -> Chart:
    """Energy per upload against the default, by cell: policies above, codecs below."""
    cells = [cell for cell in CELLS if cell in record]
    panels = []
    for group, (title, names, labels) in enumerate(groups()):
        series = []
        for place, (name, label) in enumerate(zip(names[1:], labels[1:], strict=True)):
            found = [ratios(record, cell, name, names[0]) for cell in cells]
            known = [(k, one) for k, one in enumerate(found) if one.count]
            aside = BESIDE * (place - 0.5 * (len(names) - 2))
            points = [k + aside for k, _ in known], [one for _, one in known]
            colour = (place + group * (len(POLICIES) - 1)) % len(PALETTE)
            style = Style(PALETTE[colour], MARKERS[colour % len(MARKERS)])
            series.append(estimated(label, *points, style, "points", limits=(1e-3, float("inf"))))
        panels.append(
            Panel(title, "", f"energy per upload / {labels[0]}", tuple(series), y_log=True, categories=tuple(cells))
        )
    caption = f"Decisions alone. {INTERVALS}."
    return Chart("rankings", "Who spends how much, by devices and radio", caption, tuple(panels), 1, (8.5, 3.2))


def groups() -> list[tuple[str, list[str], list[str]]]:
    """Title, entries of the record, and labels."""
    return [
        ("policies, codec update+entropy", [f"{policy}, {CODECS[0]}" for policy in POLICIES], list(POLICIES)),
        ("codecs, policy qccf", [f"{POLICIES[0]}, {codec}" for codec in CODECS], list(CODECS)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cells", help=f"default all: {'; '.join(CELLS)}")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write the figure here")
    parser.add_argument("--show", action="store_true", help="print the tables of what is recorded and stop")
    options = parser.parse_args()
    cells = options.cells.split("; ") if options.cells else list(CELLS)
    unknown = [cell for cell in cells if cell not in CELLS]
    if unknown:
        parser.error(f"--cells {unknown[0]} is not one of {'; '.join(CELLS)}")
    record: Record = json.loads(options.record.read_text(encoding="utf-8")) if options.record.exists() else {}
    if not options.show:
        compute(record, options.record, options.seeds, options.rounds, cells)
    for title, names, labels in groups():
        print(f"\n{title}, energy per upload as a share of {labels[0]}'s\n")
        print("\n".join(table(record, names, labels)))
    print("\nJain's index of participation\n")
    print("\n".join(fairness(record)))
    if options.figure is not None:
        save_chart(figure(record), options.figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
