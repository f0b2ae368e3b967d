"""What training came to: accuracy and energy, bits, the cell, and who holds what."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from qccf.learning.datasets import Dataset
from qccf.learning.partition import partition
from qccf.report.figures.cell import draw_cell
from qccf.report.figures.style import new_figure, run_style
from qccf.rounds.run import Run, run_labels
from qccf.rounds.world import build_world
from qccf.settings.loading import Scenario


def run_figures(runs: Sequence[Run], scenario: Scenario, dataset: Dataset) -> dict[str, Figure]:
    """Every figure of a run or a comparison, by file name."""
    note = "synthetic data" if dataset.synthetic else dataset.name
    return {
        "learning": _learning(runs, note),
        "bits": _bits(runs, note),
        "cell": _cell(runs, scenario),
        "partition": _partition(runs[0].seed, scenario, dataset),
    }


def _learning(runs: Sequence[Run], note: str) -> Figure:
    figure, axes = new_figure(13, 3.9, 1, 3)
    _curves(axes[0], runs, lambda run: run.rounds["round"] + 1, lambda run: run.rounds["test_accuracy"])
    axes[0].set(xlabel="round", ylabel="test accuracy", title=f"Accuracy against rounds ({note})")
    _curves(axes[1], runs, lambda run: run.rounds["round"] + 1, lambda run: run.rounds["cumulative_energy_j"])
    axes[1].set(xlabel="round", ylabel="energy so far (J)", title="Energy against rounds")
    _floor(axes[1], axes[2], runs)
    for run, label in zip(runs, run_labels(runs), strict=True):
        colour, marker = _style(runs, label)
        seen = run.rounds["test_accuracy"].notna()
        x, y = run.rounds["cumulative_energy_j"][seen], run.rounds["test_accuracy"][seen]
        axes[2].plot(x, y, color=colour, marker=marker, markevery=0.1, markersize=4, lw=1)
    axes[2].set(xlabel="energy so far (J)", ylabel="test accuracy", title="Accuracy against energy (a line a seed)")
    for axis in (axes[0], axes[2]):
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    for axis in axes[:2]:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].legend(fontsize=8)
    axes[1].legend(handles=axes[1].lines[-1:], fontsize=8)
    return figure


def _floor(against_rounds: Axes, against_energy: Axes, runs: Sequence[Run]) -> None:
    """What computing alone takes at the lowest frequency, beside what was spent."""
    rounds = max(len(run.rounds) for run in runs)
    total = float(np.mean([run.summary["floor_j"] / len(run.rounds) for run in runs])) * rounds
    line = against_energy.axvline(total, color="black", ls=":", lw=1.2, label=f"computing alone, {rounds} rounds")
    against_energy.legend(handles=[line], fontsize=8, loc="lower right")
    against_rounds.plot([0, rounds], [0.0, total], color="black", ls=":", lw=1.2, label="computing alone, nothing sent")


def _bits(runs: Sequence[Run], note: str) -> Figure:
    quantizing = [run for run in runs if (run.clients["num_bits"][run.clients["participated"]] < 32).any()]
    figure, axes = new_figure(9.5, 3.9, 1, 2)
    if quantizing:
        _curves(axes[0], quantizing, lambda run: run.rounds["round"] + 1, lambda run: run.rounds["mean_bits"])
        axes[0].legend(fontsize=8)
    axes[0].set(xlabel="round", ylabel="mean bits a parameter", title=f"Bits against rounds ({note})")
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    for run, label in zip(quantizing, run_labels(quantizing), strict=True):
        uploads = run.clients[run.clients["participated"]].groupby("client")
        colour, marker = _style(runs, label)
        axes[1].scatter(
            uploads["dataset_size"].first(), uploads["num_bits"].mean(), s=16, color=colour, marker=marker, alpha=0.7
        )
    axes[1].set(xlabel="samples of a client", ylabel="mean bits a parameter", title="Bits against dataset size")
    return figure


def _cell(runs: Sequence[Run], scenario: Scenario) -> Figure:
    run = next((run for run in runs if run.policy == "qccf"), runs[0])
    world = build_world(scenario, run.seed)
    mine = run.clients[run.clients["participated"]].groupby("client")["num_bits"].mean()
    bits = mine.reindex(range(len(world.dataset_sizes))).to_numpy(dtype=float)
    figure, axes = new_figure(5.4, 4.6)
    draw_cell(axes, world, bits, run.policy)
    return figure


def _partition(seed: int, scenario: Scenario, dataset: Dataset) -> Figure:
    """How many samples of each class each client holds; the first forty clients."""
    sizes = build_world(scenario, seed).dataset_sizes.astype(np.int64)
    shares = partition(
        dataset.train_labels,
        dataset.train_writers,
        sizes,
        method=scenario.data.partition,
        dirichlet_alpha=scenario.data.dirichlet_alpha,
        seed=seed,
    )[:40]
    counts = np.array([np.bincount(dataset.train_labels[share], minlength=dataset.num_classes) for share in shares])
    width = min(14.0, 4.0 + 0.16 * dataset.num_classes)
    figure, axes = new_figure(width, 1.4 + 0.24 * len(shares))
    picture = axes.imshow(counts, aspect="auto", cmap="viridis", interpolation="nearest")
    figure.colorbar(picture, ax=axes, label="samples")
    axes.set_xticks(range(dataset.num_classes), dataset.class_names, fontsize=6)
    axes.set_yticks(range(len(shares)), [f"{k} ({len(share)})" for k, share in enumerate(shares)], fontsize=7)
    axes.set(
        xlabel="class", ylabel="client (samples)", title=f"Who holds what ({scenario.data.partition}, {dataset.name})"
    )
    axes.grid(False)
    return figure


def _style(runs: Sequence[Run], label: str) -> tuple[str, str]:
    return run_style(label, list(dict.fromkeys(run_labels(runs))).index(label))


def _curves(axes: Axes, runs: Sequence[Run], x: Callable[[Run], object], y: Callable[[Run], object]) -> None:
    """The mean over seeds with a band from the lowest to the highest."""
    labels = run_labels(runs)
    for label in dict.fromkeys(labels):
        mine = [run for run, own in zip(runs, labels, strict=True) if own == label]
        length = min(len(run.rounds) for run in mine)
        rounds = np.asarray(x(mine[0]), dtype=float)[:length]
        values = np.array([np.asarray(y(run), dtype=float)[:length] for run in mine])
        seen = np.isfinite(values).all(axis=0)
        colour, marker = _style(runs, label)
        middle = values[:, seen].mean(axis=0)
        axes.plot(rounds[seen], middle, color=colour, marker=marker, markevery=0.1, markersize=4, label=label)
        if len(mine) > 1:
            low, high = values[:, seen].min(axis=0), values[:, seen].max(axis=0)
            axes.fill_between(rounds[seen], low, high, color=colour, alpha=0.15, lw=0)
