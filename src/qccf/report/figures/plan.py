"""What a plan looks like: the cell from above, what each policy costs, and how the bits move."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from qccf.report.figures.cell import draw_cell
from qccf.report.figures.style import new_figure, run_style
from qccf.rounds.run import Run
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan_summary


def plan_figure(runs: Sequence[Run], focus: str) -> Figure:
    """Four panels. `focus` is the policy whose bits colour the cell."""
    figure, axes = new_figure(10.5, 8.2, 2, 2)
    rows = plan_summary(runs)
    shown = next(run for run in runs if run.policy == focus)
    uploads = shown.by_round("participated").sum(axis=0)
    mean_bits = np.where(uploads > 0, shown.by_round("num_bits").sum(axis=0) / np.maximum(uploads, 1), np.nan)
    draw_cell(axes[0, 0], build_world(shown.scenario, shown.seed, shown.dataset_sizes), mean_bits, focus)
    _draw_energy(axes[0, 1], rows)
    _draw_bits_over_rounds(axes[1, 0], runs)
    _draw_bits_over_sizes(axes[1, 1], runs)
    return figure


def _draw_energy(axes: Axes, rows: list[dict[str, Any]]) -> None:
    names = [row["policy"] for row in rows]
    means = np.array([row["energy_j"]["mean"] for row in rows])
    stds = np.array([row["energy_j"]["std"] for row in rows])
    computing = means * np.array([row["compute_energy_share"] for row in rows])
    places = np.arange(len(rows))
    colours = [run_style(name, k)[0] for k, name in enumerate(names)]
    axes.bar(places, means, yerr=stds, color=colours, capsize=4, error_kw={"lw": 1})
    axes.bar(places, computing, color="none", edgecolor="white", hatch="///", lw=0)
    for place, mean, std in zip(places, means, stds, strict=True):
        axes.annotate(f"{mean:.3g} J", (place, mean + std), xytext=(0, 3), textcoords="offset points", ha="center")
    axes.set_xticks(places, names, rotation=15)
    axes.set(ylabel="energy of the whole run (J)", title="Energy a policy (hatched: computing)")
    axes.grid(axis="x", visible=False)


def _quantizing(runs: Sequence[Run]) -> list[str]:
    """The policies whose bits are a choice; 32-bit floats would only squash the axis."""
    names = dict.fromkeys(run.policy for run in runs)
    return [
        n
        for n in names
        if any(
            (r.client_columns["num_bits"][r.client_columns["participated"]] < 32).any() for r in runs if r.policy == n
        )
    ]


def _draw_bits_over_rounds(axes: Axes, runs: Sequence[Run]) -> None:
    for k, name in enumerate(_quantizing(runs)):
        mine = [run for run in runs if run.policy == name]
        uploads = np.array([run.by_round("participated").sum(axis=1) for run in mine])
        with np.errstate(invalid="ignore"):
            bits = np.array([run.by_round("num_bits").sum(axis=1) for run in mine]) / np.where(
                uploads > 0, uploads, np.nan
            )
        rounds = np.arange(1, bits.shape[1] + 1)
        seen = np.isfinite(bits).any(axis=0)
        colour, marker = run_style(name, k)
        middle = np.nanmean(bits[:, seen], axis=0)
        axes.plot(rounds[seen], middle, color=colour, marker=marker, markevery=0.1, markersize=4, label=name)
        low, high = np.nanmin(bits[:, seen], axis=0), np.nanmax(bits[:, seen], axis=0)
        axes.fill_between(rounds[seen], low, high, color=colour, alpha=0.15, lw=0)
    axes.set(xlabel="round", ylabel="mean bits a parameter", title="Bits against rounds (band: over seeds)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _draw_bits_over_sizes(axes: Axes, runs: Sequence[Run]) -> None:
    for k, name in enumerate(_quantizing(runs)):
        mine = [run for run in runs if run.policy == name]
        sizes = np.concatenate([run.dataset_sizes for run in mine])
        uploads = np.concatenate([run.by_round("participated").sum(axis=0) for run in mine])
        bits = np.concatenate([run.by_round("num_bits").sum(axis=0) for run in mine])
        seen = uploads > 0
        colour, marker = run_style(name, k)
        axes.scatter(sizes[seen], bits[seen] / uploads[seen], s=14, color=colour, marker=marker, alpha=0.7, label=name)
    axes.set(xlabel="samples of a client", ylabel="mean bits a parameter", title="Bits against dataset size")
