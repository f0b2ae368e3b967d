"""The charts of a run or of a comparison: learning, bits, the cell, and the data of each client."""

from collections.abc import Sequence

import numpy as np

from qccf.learning.datasets import Dataset
from qccf.learning.partition import partition
from qccf.reports.figures.builders import (
    accuracy_over_energy,
    accuracy_over_time,
    band_caption,
    bits_panels,
    cell_map,
    curves,
    grouped,
)
from qccf.reports.figures.chart import Chart, HeatMap, Panel, Series
from qccf.reports.figures.style import Styles
from qccf.rounds.run import Run

PANEL_INCH = (4.2, 3.3)
LEAST = "computing alone at the lowest frequency"


def run_charts(runs: Sequence[Run], dataset: Dataset) -> list[Chart]:
    """Every chart of runs on the same data; the keys are the names of the files."""
    data = f"Data: {dataset.name}{' (synthetic)' * dataset.synthetic}."
    focus = next((run for run in runs if run.policy == "qccf"), runs[0])
    cell = Chart("cell", "The cell", "", (cell_map(focus),), panel_size_inch=(5.2, 4.6))
    return [learning_chart(runs, data), _bits(runs, data), cell, _partition(runs[0], dataset)]


def learning_chart(runs: Sequence[Run], data: str) -> Chart:
    groups, styles = grouped(runs), Styles(runs)
    accuracy = curves(groups, lambda run: run.accuracy, styles, highest=1.0)
    energy = curves(groups, lambda run: run.energy_j, styles)
    trade = accuracy_over_energy(groups, styles)
    rounds = max(run.num_rounds for run in runs)
    least_j = float(np.mean([run.summary["floor_j"] / run.num_rounds for run in runs])) * rounds
    reached = np.concatenate([series.y for series in trade]) if trade else np.array([])
    ends = [float(reached.min()), float(reached.max())] if len(reached) else [0.0, 1.0]
    over_rounds = Series(LEAST, [0.0, float(rounds)], [0.0, least_j], "#000000", "", dotted=True)
    over_energy = Series(LEAST, [least_j, least_j], ends, "#000000", "", dotted=True)
    panels = (
        Panel("(a) Accuracy", "round", "test accuracy", accuracy, percent=True, integers=True),
        Panel("(b) Energy", "round", "accumulated energy (J)", (*energy, over_rounds), integers=True),
        Panel(
            "(c) Accuracy against energy",
            "accumulated energy (J)",
            "test accuracy",
            (*trade, over_energy),
            percent=True,
        ),
        Panel(
            "(d) Accuracy against time",
            "simulated time (s)",
            "test accuracy",
            accuracy_over_time(groups, styles),
            percent=True,
        ),
    )
    caption = f"{data} {band_caption(groups)} Dotted: the energy of {LEAST}, nothing uploaded."
    return Chart("learning", "Accuracy and energy", caption, panels, columns=2, panel_size_inch=PANEL_INCH)


def _bits(runs: Sequence[Run], data: str) -> Chart:
    groups = grouped(runs)
    caption = (
        f"{data} 32-bit floats are left out. (a) {band_caption(groups)} (b) One point per client and seed, its bits "
        "averaged over its uploads."
    )
    return Chart("bits", "Bits", caption, bits_panels(groups, Styles(runs)), panel_size_inch=PANEL_INCH)


def _partition(run: Run, dataset: Dataset) -> Chart:
    """How many samples of each class each client has."""
    data = run.scenario.data
    shares = partition(
        dataset.train_labels,
        dataset.train_writers,
        run.dataset_sizes.astype(np.int64),
        method=data.partition,
        dirichlet_alpha=data.dirichlet_alpha,
        seed=run.seed,
    )
    counts = np.array([np.bincount(dataset.train_labels[share], minlength=dataset.num_classes) for share in shares])
    panel = HeatMap(
        f"Classes per client ({dataset.name}, {data.partition}, seed {run.seed})",
        "class",
        "client (samples)",
        counts,
        "samples",
        tuple(f"{k} ({len(share)})" for k, share in enumerate(shares)),
        tuple(map(str, dataset.class_names)),
    )
    return Chart("partition", "Classes per client", "", (panel,))
