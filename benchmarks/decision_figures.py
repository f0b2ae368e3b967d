"""Figures of the decisions that benchmarks.decisions has recorded: savings, maps of them, and few channels.

Run: python -m benchmarks.decision_figures [--record FILE] [--images docs/images]
Intervals are over trainings, 95 %. A saving is QCCF's, in per cent of the other policy's energy in the same cell.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from benchmarks.decision_tables import ADAPTIVE, WHOLE_MODELS, column, over_trainings, savings
from benchmarks.decisions import RECORD, Columns, Point, Recorded, cells_of, points, read_record
from qccf.paper.findings import PAPERS_SAVINGS
from qccf.reports.figures.style import MARKERS, PALETTE

SAME_SIZE = ("same-size, CPU follows", "same-size, joint")
MAPS = {
    "map-deadline": ("T_max × B",),
    "map-gain": ("gain × B (bandwidth)", "gain × B (deadline)"),
    "map-start": ("λ2⁰ × L",),
}
"""The figure of each map, and its studies."""
FEW = ("qccf", *SAME_SIZE, "principle, paper", "channel-allocate", "no-quantization")
ROUNDS, CLIENTS = 100, 20
"""Of the runs with few channels."""
LEAST_SERVED = 0.5
"""Savings where fewer clients than this take part are marked in maps: there is little to save."""
MOST_SHOWN = 60.0
"""Where the colours of a map end, in per cent."""


def draw_savings(recorded: Recorded, file: Path) -> None:
    """QCCF's savings against each baseline in each reading, with the paper's figures."""
    rivals = [name for name in ADAPTIVE if name not in ("qccf", WHOLE_MODELS)]
    rivals += ["principle, published, updates", "no-quantization"]
    figure, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
    for offset, beta, colour in ((0.12, 300, "#0072B2"), (-0.12, 150, "#56B4E9")):
        columns = recorded[f"policies: β = {beta}"]
        found = [savings(columns, name) for name in rivals]
        places = np.arange(len(rivals))[::-1] + offset
        middle = np.array([100.0 * e.mean for e in found])
        axes.errorbar(
            middle, places, xerr=[100.0 * e.half for e in found], fmt="o", color=colour,
            label=f"β = {beta}, {cells_of(columns)} cells", capsize=3, markersize=5,
        )  # fmt: skip
    for place, name in zip(np.arange(len(rivals))[::-1], rivals, strict=True):
        papers = PAPERS_SAVINGS.get(name.partition(",")[0])
        if papers is not None:
            axes.plot(100.0 * papers, place, "D", mfc="none", mec="black", label="paper" if "follows" in name else None)
    axes.axvline(0.0, color="grey", linewidth=0.8)
    axes.set_yticks(np.arange(len(rivals))[::-1], rivals)
    axes.set_xlabel("energy that QCCF saves (%)")
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(file, dpi=120)
    plt.close(figure)


def coordinates(study: str) -> tuple[list[str], list[str], dict[tuple[int, int], Point]]:
    """Rows and columns of a map, and the point at each place."""
    mine = [point for point in points() if point.study == study]
    rows = list(dict.fromkeys(point.label.split(", ")[0] for point in mine))
    columns = list(dict.fromkeys(point.label.split(", ")[1] for point in mine))
    places = [tuple(point.label.split(", ")) for point in mine]
    return rows, columns, {(rows.index(a), columns.index(b)): point for (a, b), point in zip(places, mine, strict=True)}


def draw_map(axes: Any, study: str, recorded: Recorded, rival: str) -> Any:
    """QCCF's saving per upload that arrives at every point of a study; a cross where nobody can upload."""
    rows, columns, places = coordinates(study)
    values = np.full((len(rows), len(columns)), np.nan)
    for (i, j), point in places.items():
        found = recorded.get(point.key)
        if found is None:
            continue
        saved = savings(found, rival, per_upload=True)
        if not saved.count:
            axes.plot(j, i, "x", color="grey")
            continue
        values[i, j] = 100.0 * saved.mean
        digits = 0 if abs(values[i, j]) >= 1.0 else 1
        spread = f"\n± {100.0 * saved.half:.{digits}f}" if np.isfinite(saved.half) else ""
        shown = f"{values[i, j]:+.{digits}f}{spread}"
        dark = abs(values[i, j]) > 0.6 * MOST_SHOWN
        axes.text(j, i, shown, ha="center", va="center", size=7, color="white" if dark else "black")
        if np.nanmean(column(found, "qccf", "participation")) < LEAST_SERVED:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1.0, 1.0, fill=False, hatch="///", edgecolor="grey", lw=0.0))
    image = axes.imshow(values, cmap="RdBu", vmin=-MOST_SHOWN, vmax=MOST_SHOWN, aspect="auto")
    axes.set_xticks(range(len(columns)), [one.partition("= ")[2] for one in columns], size=8)
    axes.set_yticks(range(len(rows)), rows, size=8)
    axes.set_xlabel(columns[0].partition(" =")[0], size=8)
    axes.set_title(f"{study}: against {rival}", size=8)
    return image


def draw_maps(studies: Sequence[str], recorded: Recorded, file: Path) -> None:
    """One row of panels per study, one panel per reading of same-size."""
    figure, panels = plt.subplots(
        len(studies), len(SAME_SIZE), figsize=(9.0, 3.4 * len(studies)), layout="constrained", squeeze=False
    )
    for line, study in zip(panels, studies, strict=True):
        for axes, rival in zip(line, SAME_SIZE, strict=True):
            image = draw_map(axes, study, recorded, rival)
    cells = {cells_of(recorded[point.key]) for point in points() if point.study in studies and point.key in recorded}
    counted = f"{min(cells)} to {max(cells)}" if len(cells) > 1 else f"{max(cells)}"
    figure.supxlabel("hatched: QCCF serves fewer than half of the clients; ×: nobody can upload", size=8)
    figure.colorbar(image, ax=panels, label=f"QCCF saves per upload (%), {counted} cells", shrink=0.8)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def few_channels(recorded: Recorded) -> dict[int, Columns]:
    """Number of channels to what is recorded for it, with 20 clients."""
    found = {int(point.label.split()[2]): recorded.get(point.key) for point in points() if point.study == "channels"}
    return {channels: columns for channels, columns in found.items() if columns is not None}


def draw_few_channels(recorded: Recorded, file: Path) -> None:
    """Fewer channels than clients: energy per upload that arrives, and how evenly clients take part."""
    by_channels = few_channels(recorded)
    figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.4), layout="constrained")
    for place, name in enumerate(FEW):
        style = {"color": PALETTE[place], "marker": MARKERS[place], "capsize": 3, "linewidth": 1.0, "label": name}
        for axes, values in zip(panels, (_per_upload, _fairness), strict=True):
            found = [over_trainings(values(columns, name)) for columns in by_channels.values()]
            axes.errorbar(list(by_channels), [e.mean for e in found], yerr=[e.half for e in found], **style)
    counted = min(map(cells_of, by_channels.values()))
    for axes, label in zip(panels, ("energy per upload (mJ)", "Jain's index of participation"), strict=True):
        axes.set_xticks(list(by_channels))
        axes.set_xlabel(f"channels for 20 clients ({counted} cells)")
        axes.set_ylabel(label)
    panels[0].set_ylim(bottom=0.0)
    panels[1].set_ylim(0.0, 1.05)
    panels[1].legend(frameon=False, fontsize=7, loc="lower right")
    figure.savefig(file, dpi=120)
    plt.close(figure)


def _per_upload(columns: Columns, name: str) -> np.ndarray:
    """Millijoules per upload that counts. Those of no-quantization are all late and count, because it is exempt."""
    counted = column(columns, name, "participation")
    return 1e3 * column(columns, name, "energy_j") / (ROUNDS * CLIENTS * np.where(counted > 0.0, counted, np.nan))


def _fairness(columns: Columns, name: str) -> np.ndarray:
    return column(columns, name, "fairness")


def drawn(recorded: Recorded, images: Path) -> Iterable[Path]:
    """Draw what is recorded, maps only if no point is missing; returns the files."""
    draw_savings(recorded, images / "savings.png")
    yield images / "savings.png"
    for name, studies in MAPS.items():
        whole = [study for study in studies if all(one.key in recorded for one in points() if one.study == study)]
        if whole:
            draw_maps(whole, recorded, images / f"{name}.png")
            yield images / f"{name}.png"
    if few_channels(recorded):
        draw_few_channels(recorded, images / "few-channels.png")
        yield images / "few-channels.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE")
    parser.add_argument("--images", type=Path, default=Path("docs/images"), metavar="DIR")
    options = parser.parse_args()
    for file in drawn(read_record(options.record), options.images):
        print(file)


if __name__ == "__main__":
    main()
