"""The cell seen from above."""

import numpy as np
from matplotlib.axes import Axes

from qccf.core.contracts import FloatArray
from qccf.rounds.world import World


def draw_cell(axes: Axes, world: World, mean_bits: FloatArray, policy: str) -> None:
    """Clients where they stand, coloured by their mean bits (NaN: never took part), as large as their datasets."""
    sizes = world.dataset_sizes
    radius_m = world.scenario.cell.radius_m
    angles = np.linspace(0.0, 2.0 * np.pi, 200)
    axes.plot(radius_m * np.cos(angles), radius_m * np.sin(angles), color="0.6", lw=1)
    axes.plot(0, 0, marker="^", color="black", markersize=9)
    axes.annotate("server", (0, 0), xytext=(6, 6), textcoords="offset points")
    active = np.isfinite(mean_bits)
    area = 30.0 + 170.0 * sizes / sizes.max()
    x, y = world.cell.positions_m.T
    axes.scatter(x[~active], y[~active], s=area[~active], facecolors="none", edgecolors="0.5")
    dots = axes.scatter(x[active], y[active], s=area[active], c=mean_bits[active], cmap="viridis", edgecolors="0.3")
    axes.figure.colorbar(dots, ax=axes, label="mean bits a parameter", shrink=0.8)
    if len(sizes) <= 30:
        for place, size in zip(world.cell.positions_m, sizes, strict=True):
            axes.annotate(f"{size:.0f}", place, xytext=(0, -14), textcoords="offset points", ha="center", fontsize=7)
    limit = radius_m * 1.08
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xlabel="east (m)", ylabel="north (m)")
    axes.set_title(f"The cell under {policy}, seed {world.seed} (labels: samples)")
    axes.grid(False)
