"""Accuracy against rounds, simulated time and energy, from the records of benchmarks.accuracy.

Run: python -m benchmarks.accuracy_figures [--record FILE] [--images DIR]
Writes accuracy-<task>.png for each task with recorded runs, and accuracy-weights.png: the front of energy and accuracy
over V, beside the baselines and constant bits. Only seeds with all runs of the study are drawn.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy import CONSTANT, RECORD, STUDIES, record_file, record_name
from qccf.core.intervals import estimate
from qccf.core.words import counted
from qccf.reports.figures.builders import FEW_SEEDS, INTERVALS, NO_BAND, accuracy_over, band_caption, estimated, grouped
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import Styles
from qccf.rounds.run import Run
from qccf.rounds.run_record import RunRecords


def whole_seeds(study: str, records: RunRecords) -> dict[str, list[Run]]:
    """The recorded runs by kind, of the seeds that have every kind, so that all curves and points have the same seeds.
    Empty if there is no such seed."""
    one = STUDIES[study]
    seeds = [seed for seed in range(one.seeds) if all(record_name(study, kind, seed) in records for kind in one.kinds)]
    if not seeds:
        return {}
    return {kind: records.runs(record_name(study, kind, seed) for seed in seeds) for kind in one.kinds}


def final_energy_j(runs: Sequence[Run]) -> float:
    """The mean energy of whole runs."""
    return estimate(float(run.energy_j[-1]) for run in runs).mean


def ordered(by_kind: Mapping[str, Sequence[Run]], policy: str) -> dict[str, Sequence[Run]]:
    """The kinds with that policy, from the least energy to the most."""
    mine = [(kind, runs) for kind, runs in by_kind.items() if runs[0].policy == policy]
    return dict(sorted(mine, key=lambda pair: final_energy_j(pair[1])))


def front_chart(by_kind: Mapping[str, Sequence[Run]]) -> Chart:
    """The accuracy of the last round at the energy of the whole run: QCCF with each V, each number of constant bits,
    and the paper's other policies."""
    styles = Styles(run for runs in by_kind.values() for run in runs)
    names = {"qccf": "qccf over V", CONSTANT: "constant bits"}
    series = []
    for policy in dict.fromkeys(runs[0].policy for runs in by_kind.values()):
        groups = ordered(by_kind, policy).values()
        energies = [final_energy_j(runs) for runs in groups]
        accuracies = [estimate(run.final_accuracy() for run in runs) for runs in groups]
        style, name = styles.policies[policy], names.get(policy, policy)
        series.append(estimated(name, energies, accuracies, style, kind="points", limits=(0.0, 1.0)))
    panel = Panel("", "energy (J)", "test accuracy", tuple(series), x_log=True, percent=True)
    weights = [f"{runs[0].scenario.control.paper.energy_weight:.0f}" for runs in ordered(by_kind, "qccf").values()]
    bits = [kind.removesuffix(" bits") for kind in ordered(by_kind, CONSTANT)]
    study, seeds = STUDIES["weights"], len({run.seed for runs in by_kind.values() for run in runs})
    caption = (
        f"EMNIST, {study.rounds} rounds, {study.samples:g} samples per client, {counted(seeds, 'seed')}. "
        f"{f'{INTERVALS}.' if seeds >= FEW_SEEDS else NO_BAND} From left to right: qccf with V = {', '.join(weights)}; "
        f"{', '.join(bits)} constant bits. Further up and to the left is better."
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
    planned = STUDIES[study].seeds
    counted_seeds = counted(seeds, "seed") if seeds == planned else f"{seeds} of {counted(planned, 'seed')}"
    caption = f"{counted_seeds}. {band_caption(groups)}"
    return Chart(f"accuracy-{study}", f"Accuracy on {study}", caption, panels, columns=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), metavar="DIR")
    options = parser.parse_args()
    for study, one in STUDIES.items():
        by_kind = whole_seeds(study, RunRecords(record_file(study, options.record)))
        whole = f"{study}: {len(next(iter(by_kind.values()), ()))} of {counted(one.seeds, 'seed')} with all runs"
        if not by_kind:
            print(f"{whole}, so there is no figure")
            continue
        runs = [run for mine in by_kind.values() for run in mine]
        path = options.images / f"accuracy-{study}.png"
        save_chart(front_chart(by_kind) if one.front else accuracy_chart(study, runs), path)
        print(f"{whole}. Written: {path}")


if __name__ == "__main__":
    main()
