"""Accuracy against rounds, simulated time and energy, from the record of benchmarks.accuracy.

Run: python -m benchmarks.accuracy_figures [--record FILE] [--images DIR]
Writes accuracy-<task>.png for each task with recorded runs, and accuracy-weights.png: the front of energy and accuracy
over V, beside constant bits.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy import RECORD, STUDIES, record_name, recorded_runs
from qccf.core.intervals import estimate
from qccf.policies.registry import PAPERS_POLICIES
from qccf.reports.figures.builders import INTERVALS, accuracy_over, band_caption, estimated, grouped
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import PALETTE, Style, Styles
from qccf.rounds.run import Run
from qccf.rounds.run_record import RunRecords


def whole_seeds(study: str, records: RunRecords) -> list[Run]:
    """The recorded runs of the seeds that have every policy, so that all curves have the same seeds."""
    names = [[record_name(study, policy, seed) for policy in PAPERS_POLICIES] for seed in range(STUDIES[study].seeds)]
    complete = [name for seed in names if all(name in records for name in seed) for name in seed]
    return sorted(records.runs(complete), key=lambda run: PAPERS_POLICIES.index(run.policy))


def front_chart(by_kind: Mapping[str, Sequence[Run]]) -> Chart:
    """The accuracy of the last round at the energy of the whole run: QCCF with each V, and each number of bits."""
    series = []
    for name, of_kind, style in (
        ("qccf over V", lambda kind: kind.startswith("V"), Style(PALETTE[0], "o")),
        ("constant bits", lambda kind: kind.endswith("bits"), Style(PALETTE[1], "s")),
    ):
        groups = [runs for kind, runs in by_kind.items() if of_kind(kind)]
        energies = [estimate(float(run.energy_j[-1]) for run in runs).mean for runs in groups]
        accuracies = [estimate(run.final_accuracy() for run in runs) for runs in groups]
        series.append(estimated(name, energies, accuracies, style, kind="points", limits=(0.0, 1.0)))
    study = STUDIES["weights"]
    panel = Panel("", "energy (J)", "test accuracy", tuple(series), x_log=True, percent=True)
    caption = (
        f"EMNIST, {study.rounds} rounds, {study.samples:g} samples per client, {study.seeds} seeds. {INTERVALS}. "
        "Further up and to the left is better."
    )
    return Chart("accuracy-weights", "Energy and accuracy over V", caption, (panel,), 1, (6.0, 4.0))


def accuracy_chart(study: str, runs: list[Run]) -> Chart:
    """Three panels: what accuracy costs in rounds, in time and in energy."""
    groups, styles = grouped(runs), Styles(runs)
    panels = tuple(
        Panel(
            f"({letter}) Over {what}",
            axis,
            "test accuracy",
            accuracy_over(spent, groups, styles),
            x_log=log,
            percent=True,
        )
        for letter, what, axis, spent, log in (
            ("a", "rounds", "round", lambda run: np.arange(1.0, run.num_rounds + 1.0), False),
            ("b", "simulated time", "simulated time (s)", lambda run: run.time_s, True),
            ("c", "energy", "accumulated energy (J)", lambda run: run.energy_j, True),
        )
    )
    seeds = len({run.seed for run in runs})
    caption = f"{seeds} {'seeds' if seeds > 1 else 'seed'}. {band_caption(groups)}"
    return Chart(f"accuracy-{study}", f"Accuracy on {study}", caption, panels, columns=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), metavar="DIR")
    options = parser.parse_args()
    records = RunRecords(options.record)
    if by_kind := recorded_runs("weights", records):
        path = options.images / "accuracy-weights.png"
        save_chart(front_chart(by_kind), path)
        print(f"Written: {path}")
    for study in (name for name, one in STUDIES.items() if one.needed_accuracy is not None):
        if runs := whole_seeds(study, records):
            path = options.images / f"accuracy-{study}.png"
            save_chart(accuracy_chart(study, runs), path)
            print(f"Written: {path}")


if __name__ == "__main__":
    main()
