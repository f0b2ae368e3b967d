"""Accuracy against rounds, simulated time and energy, from the record of benchmarks.accuracy.

Run: python -m benchmarks.accuracy_figures [--record FILE] [--images DIR]
Writes accuracy-<task>.png for each task with recorded runs.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.accuracy import RECORD, STUDIES, record_name
from qccf.policies.registry import PAPERS_POLICIES
from qccf.reports.figures.builders import accuracy_over, band_caption, grouped
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import Styles
from qccf.rounds.run import Run
from qccf.rounds.run_record import RunRecords


def whole_seeds(study: str, records: RunRecords) -> list[Run]:
    """The recorded runs of the seeds that have every policy, so that all curves have the same seeds."""
    names = [[record_name(study, policy, seed) for policy in PAPERS_POLICIES] for seed in range(STUDIES[study].seeds)]
    complete = [name for seed in names if all(name in records for name in seed) for name in seed]
    return sorted(records.runs(complete), key=lambda run: PAPERS_POLICIES.index(run.policy))


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
    for study in STUDIES:
        if runs := whole_seeds(study, records):
            path = options.images / f"accuracy-{study}.png"
            save_chart(accuracy_chart(study, runs), path)
            print(f"Written: {path}")


if __name__ == "__main__":
    main()
