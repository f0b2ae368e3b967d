"""Series of several runs per label: means over seeds with 95 % intervals, in the same style everywhere.

A run may be trained, planned or read back. Nothing here needs pandas, so that plans can be drawn without it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.intervals import Estimate, estimate
from qccf.reports.figures.chart import CellMap, Panel, Series
from qccf.reports.figures.style import Style, Styles
from qccf.rounds.run import Run, run_labels
from qccf.rounds.world import build_world

Groups = Mapping[str, Sequence[Run]]
"""The runs of each label, one per seed."""

INTERVALS = "95 % intervals of the mean over seeds (Student's t)"
BAND = f"Lines are means over seeds, bands {INTERVALS}."
FEW_SEEDS = 3
"""An interval from two seeds would fill the picture."""
NO_BAND = f"Fewer than {FEW_SEEDS} seeds, so there are no intervals."
BITS_LABEL = "mean bits per parameter"
SIZES_LABEL = "samples per client"
RAW_BITS = 32


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by label, in the order of their first run."""
    groups: dict[str, list[Run]] = {}
    for label, run in zip(run_labels(runs), runs, strict=True):
        groups.setdefault(label, []).append(run)
    return groups


def band_caption(groups: Groups) -> str:
    """What lines and bands mean; few seeds have no interval."""
    return BAND if any(len(runs) >= FEW_SEEDS for runs in groups.values()) else NO_BAND


def estimated(
    name: str,
    x: Sequence[float] | FloatArray,
    estimates: Sequence[Estimate],
    style: Style,
    kind: Literal["line", "points", "bars"] = "line",
    *,
    limits: tuple[float, float] = (-np.inf, np.inf),
    **more: Any,
) -> Series:
    """Means with their intervals, cut at the `limits` of the quantity. An end is NaN where there is no interval."""
    ends: dict[str, Any] = {}
    halves = np.array([e.half if e.count >= FEW_SEEDS else np.nan for e in estimates])
    if np.isfinite(halves).any():
        means = np.array([e.mean for e in estimates])
        ends = {"low": np.maximum(means - halves, limits[0]).tolist(),
                "high": np.minimum(means + halves, limits[1]).tolist()}  # fmt: skip
    y = [e.mean for e in estimates]
    return Series(name, x, y, colour=style.colour, marker=style.marker, kind=kind, **ends, **more)


def curves(
    groups: Groups, of: Callable[[Run], FloatArray], styles: Styles, *, highest: float = np.inf
) -> tuple[Series, ...]:
    """One curve over the rounds per label; its values, one per round, lie between 0 and `highest`."""
    series = []
    for label, runs in groups.items():
        estimates = [estimate(column) for column in _by_seed(runs, of).T]
        seen = [k for k, e in enumerate(estimates) if e.count]
        rounds = [k + 1.0 for k in seen]
        style = styles.of(label, runs[0])
        series.append(estimated(label, rounds, [estimates[k] for k in seen], style, limits=(0.0, highest)))
    return tuple(series)


def accuracy_over_energy(groups: Groups, styles: Styles) -> tuple[Series, ...]:
    """The mean accuracy after each round at the mean energy spent until then."""
    return accuracy_over(lambda run: run.energy_j, groups, styles)


def accuracy_over_time(groups: Groups, styles: Styles) -> tuple[Series, ...]:
    """The mean accuracy after each round at the mean simulated time that has passed until then."""
    return accuracy_over(lambda run: run.time_s, groups, styles)


def accuracy_over(spent: Callable[[Run], FloatArray], groups: Groups, styles: Styles) -> tuple[Series, ...]:
    """The mean accuracy after each round at the mean of what was spent until then."""
    series = []
    for label, runs in groups.items():
        x, accuracy = _by_seed(runs, spent), _by_seed(runs, lambda run: run.accuracy)
        seen = np.isfinite(accuracy).all(axis=0)
        estimates = [estimate(column) for column in accuracy.T[seen]]
        style = styles.of(label, runs[0])
        series.append(estimated(label, x.mean(axis=0)[seen], estimates, style, limits=(0.0, 1.0)))
    return tuple(series)


def bits_over_sizes(groups: Groups, styles: Styles) -> tuple[Series, ...]:
    """One point per client and seed: its bits averaged over its uploads."""
    series = []
    for label, runs in groups.items():
        sizes = np.concatenate([run.dataset_sizes for run in runs])
        bits = np.concatenate([client_bits(run) for run in runs])
        seen = np.isfinite(bits)
        series.append(Series(label, sizes[seen], bits[seen], *styles.of(label, runs[0]), kind="points"))
    return tuple(series)


def client_bits(run: Run) -> FloatArray:
    """Mean bits of each client's uploads; NaN for a client without uploads."""
    participated = run.by_round("participated")
    uploads = participated.sum(axis=0)
    bits = np.where(participated, run.by_round("num_bits"), 0).sum(axis=0)
    return np.where(uploads > 0, bits / np.maximum(uploads, 1), np.nan)


def cell_map(run: Run) -> CellMap:
    """The clients of one run in their cell, coloured by their mean bits."""
    cell = build_world(run.scenario, run.seed, run.dataset_sizes).cell
    title = f"The cell, {run.policy}, seed {run.seed}"
    radius_m = run.scenario.cell.radius_m
    ran_out = run.by_round("battery_j")[-1] <= 0.0 if "battery_j" in run.client_columns else None
    return CellMap(title, radius_m, cell.positions_m, run.dataset_sizes, client_bits(run), BITS_LABEL, ran_out)


def energy_bars(groups: Groups, styles: Styles) -> tuple[Series, ...]:
    """One bar per label: the energy of a whole run, the part for computing hatched."""
    series = []
    for k, (label, runs) in enumerate(groups.items()):
        energy = estimate(float(run.energy_j[-1]) for run in runs)
        computing = energy.mean * float(np.mean([run.computing_share() for run in runs]))
        style = styles.of(label, runs[0])
        series.append(estimated(label, [float(k)], [energy], style, kind="bars", hatched=[computing]))
    return tuple(series)


def bits_panels(groups: Groups, styles: Styles, suffix: str = "") -> tuple[Panel, Panel]:
    """Bits over rounds and over dataset sizes; 32-bit floats are left out because they would squash the axis."""
    shown = quantizing(groups)
    over_rounds = curves(shown, lambda run: run.mean_bits, styles)
    return (
        Panel(f"(a) Bits over rounds{suffix}", "round", BITS_LABEL, over_rounds, integers=True),
        Panel(f"(b) Bits over dataset sizes{suffix}", SIZES_LABEL, BITS_LABEL, bits_over_sizes(shown, styles)),
    )


def quantizing(groups: Groups) -> dict[str, Sequence[Run]]:
    """The labels under which some upload has fewer than 32 bits per parameter."""
    return {label: runs for label, runs in groups.items() if any(_quantizes(run) for run in runs)}


def _quantizes(run: Run) -> bool:
    return bool((run.by_round("num_bits")[run.by_round("participated").astype(bool)] < RAW_BITS).any())


def _by_seed(runs: Sequence[Run], of: Callable[[Run], FloatArray]) -> FloatArray:
    """Values [seed, round], up to the last round that all runs have."""
    values = [np.asarray(of(run), dtype=float) for run in runs]
    length = min(map(len, values))
    return np.array([one[:length] for one in values])
