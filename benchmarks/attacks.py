"""Accuracy and joules with 0 to 3 attackers of 10, for each aggregation rule.

Run: python -m benchmarks.attacks [--attacks A,B] [--seeds 0,1,2] [--record FILE] [--figure FILE] [--page FILE] [--show]
Each finished run is written to the record, and runs that are in it are not run again, so that the same command resumes.
The federation is small (a model of 12,414 parameters, 120 samples per client) so that a run takes seconds.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qccf.core.errors import DivergedError
from qccf.core.files import write_text_whole
from qccf.core.intervals import estimate
from qccf.learning.datasets import Dataset, data_folder, load_dataset
from qccf.reports.figures.builders import INTERVALS, estimated
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import MARKERS, PALETTE, Style
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario

Changes = Mapping[str, Any]

FEDERATION: Changes = {
    "data.dataset": "emnist",
    "data.dataset_size_mean": 120.0,
    "data.dataset_size_std": 30.0,
    "data.dataset_size_min": 40,
    "learning.model": "small-cnn",
    "learning.batch_size": 20,
    "learning.learning_rate": 0.2,
    "learning.local_epochs": 1,
    "control.energy_weight": 0.02,
    "federation.rounds": 15,
    "evaluation.every": 15,
    "execution.workers": 1,
}
"""The least energy weight gives uploads more bits, because the median of coarse ones is 0."""

TEST_SAMPLES = 3000

DEFENCES: Mapping[str, Changes] = {
    "plain mean": {"aggregation.mean.most_norm": 0.0},
    "clipped mean (default)": {},
    "trimmed mean": {"aggregation.rule": "trimmed-mean", "aggregation.trimmed_mean.trimmed_share": 0.3},
    "median": {"aggregation.rule": "median"},
    "Krum": {"aggregation.rule": "krum", "aggregation.krum.attacker_share": 0.3},
    "multi-Krum": {"aggregation.rule": "multi-krum", "aggregation.multi_krum.attacker_share": 0.3},
}
"""Rules that need the number of attackers are told 3 of 10."""

ATTACKS: Mapping[str, Changes] = {
    "update × 100": {"attack.kind": "scaled-update", "attack.scaled_update.scale": 100.0},
    "sign flip × 10": {"attack.kind": "sign-flip", "attack.sign_flip.scale": 10.0},
    "sign flip × 3": {"attack.kind": "sign-flip", "attack.sign_flip.scale": 3.0},
    "label flip": {"attack.kind": "label-flip"},
    "noise × 5": {"attack.kind": "noise", "attack.noise.scale": 5.0},
    "lying statistics": {"attack.kind": "lying-statistics"},
}
"""The clipped mean clips an update above 6 usual lengths, and the third one above 3."""

COUNTS = (0, 1, 2, 3)
NOBODY = "nobody"
MARK = "<!-- tables of benchmarks/attacks.py -->"

Figures = dict[str, float]
Results = Mapping[tuple[str, int, str], Sequence[Figures]]
"""By attack, number of attackers and defence: accuracy and energy of each seed. A model that diverged classifies by
chance, and its energy is what was spent until then."""


def record_key(attack: str, count: int, defence: str, seed: int) -> str:
    return f"{attack}, {count} attackers, {defence}, seed {seed}" if count else f"{NOBODY}, {defence}, seed {seed}"


def cases(attacks: Sequence[str], defences: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, int, str, int]]:
    """Attack, number of attackers, defence, seed; a run without attackers is the same for every attack."""
    found: dict[str, tuple[str, int, str, int]] = {}
    for seed in seeds:
        for attack in attacks:
            for count in COUNTS:
                for defence in defences:
                    found.setdefault(record_key(attack, count, defence, seed), (attack, count, defence, seed))
    return list(found.values())


def measured(data: Dataset, attack: str, count: int, defence: str, seed: int) -> Figures:
    changes = {**FEDERATION, **DEFENCES[defence], "federation.seed": seed}
    if count:
        changes |= {**ATTACKS[attack], "attack.clients": count}
    spent_j: list[float] = []
    try:
        run = simulate(
            load_scenario("femnist", changes),
            dataset=data,
            callbacks=[lambda event: spent_j.append(event.ledger.last["energy_j"])],
        )
    except DivergedError:  # the model has infinite weights: it classifies by chance
        chance = 1.0 / data.num_classes
        return {"accuracy": round(chance, 5), "energy_j": round(sum(spent_j), 7), "diverged_after": len(spent_j)}
    return {"accuracy": round(run.summary["test_accuracy"], 5), "energy_j": round(run.summary["energy_j"], 7)}


def results(record: Mapping[str, Figures], attacks: Sequence[str], seeds: Sequence[int]) -> Results:
    found: dict[tuple[str, int, str], list[Figures]] = {}
    for attack in attacks:
        for count in COUNTS:
            for defence in DEFENCES:
                keys = [record_key(attack, count, defence, seed) for seed in seeds]
                mine = [record[key] for key in keys if key in record]
                if mine:
                    found[attack, count, defence] = mine
    return found


def table(found: Results, attack: str) -> list[str]:
    """One attack as lines of Markdown: accuracy in per cent and energy in millijoules, by number of attackers."""
    lines = [
        "| defence | "
        + " | ".join(f"{count} attacker{'s' * (count != 1)}" for count in COUNTS)
        + " | energy (mJ), 0 → 3 |"
    ]
    lines.append("|---" * (len(COUNTS) + 2) + "|")
    for defence in DEFENCES:
        cells, energies = [], []
        for count in COUNTS:
            mine = found.get((attack, count, defence), ())
            shown = estimate(one["accuracy"] for one in mine).shown(".1f", scale=100.0) if mine else "not run"
            diverged = sum("diverged_after" in one for one in mine)
            cells.append(f"{shown}, {diverged} of {len(mine)} diverged" if diverged else shown)
            if count in (COUNTS[0], COUNTS[-1]):
                joules = estimate(one["energy_j"] for one in mine)
                energies.append(f"{1e3 * joules.mean:.1f}" if mine else "–")
        lines.append(f"| {defence} | " + " | ".join(cells) + f" | {' → '.join(energies)} |")
    return lines


def figure(found: Results, attacks: Sequence[str]) -> Chart:
    """Accuracy by number of attackers, one panel per attack."""
    panels = []
    for attack in attacks:
        series = []
        for place, defence in enumerate(DEFENCES):
            known = [count for count in COUNTS if (attack, count, defence) in found]
            values = [estimate(100.0 * one["accuracy"] for one in found[attack, count, defence]) for count in known]
            style = Style(PALETTE[place], MARKERS[place])
            series.append(estimated(defence, known, values, style, limits=(0.0, 100.0)))
        panels.append(
            Panel(
                attack,
                "attackers of 10 clients",
                "test accuracy (%)",
                tuple(series),
                y_range=(0.0, 60.0),
                categories=tuple(map(str, COUNTS)),
            )
        )
    caption = f"EMNIST, 10 clients, 15 rounds, codec update+entropy. {INTERVALS}."
    return Chart("attacks", "Accuracy with attackers", caption, tuple(panels), 2, (5.0, 3.4))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", default=",".join(ATTACKS), help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--defences", metavar="A,B", help=f"default all: {', '.join(DEFENCES)}")
    parser.add_argument("--seeds", default="0,1,2", metavar="0,1,…")
    parser.add_argument("--record", type=Path, default=Path("docs/results/attacks.json"), metavar="FILE")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write the figure here")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables into this page, after its mark")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--show", action="store_true", help="print the tables of what is recorded and stop")
    options = parser.parse_args()
    attacks, seeds = options.attacks.split(","), [int(one) for one in options.seeds.split(",")]
    defences = options.defences.split(",") if options.defences else list(DEFENCES)
    for option, chosen, known in (("attacks", attacks, ATTACKS), ("defences", defences, DEFENCES)):
        unknown = [name for name in chosen if name not in known]
        if unknown:
            parser.error(f"--{option} {unknown[0]} is not one of {', '.join(known)}")
    file: Path = options.record
    record: dict[str, Figures] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    due = [case for case in cases(attacks, defences, seeds) if record_key(*case) not in record]
    if due and not options.show:
        whole = load_dataset("emnist", data_folder(options.data_dir), seed=0, options={})
        data = replace(
            whole, test_images=whole.test_images[:TEST_SAMPLES], test_labels=whole.test_labels[:TEST_SAMPLES]
        )
        for place, case in enumerate(due, start=1):
            record[record_key(*case)] = measured(data, *case)
            write_text_whole(file, json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
            print(f"{place} of {len(due)}: {record_key(*case)}: {record[record_key(*case)]}", flush=True)
    found = results(record, attacks, seeds)
    lines = [line for attack in attacks for line in ("", f"## {attack}", "", *table(found, attack))]
    print("\n".join(lines))
    if options.page is not None:
        before, mark, _ = options.page.read_text(encoding="utf-8").partition(MARK)
        write_text_whole(options.page, before + mark + "\n" + "\n".join(lines) + "\n")
    if options.figure is not None and found:
        save_chart(figure(found, attacks), options.figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
