"""Draws charts with Matplotlib. The settings of Matplotlib are the same before and after."""

import io
import math
import textwrap
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from qccf.core.files import write_whole
from qccf.reports.figures.chart import CellMap, Chart, HeatMap, Panel, Series

LOOK: dict[Any, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 150,
    "savefig.bbox": "tight",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "figure.constrained_layout.w_pad": 0.08,
    "legend.frameon": False,
    "hatch.linewidth": 0.8,
    "pdf.fonttype": 42,  # publishers accept these fonts
    "svg.hashsalt": "qccf",  # the same chart gives the same file
}
# Without dates, so that the same chart gives the same file.
METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}

HALO = {"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 0.5}

FEW_TICKS = 6
"""A logarithmic axis with at most this many values has a tick at each."""
WIDE = 1e3
"""A logarithmic axis over a smaller range has ticks at 1, 2 and 5 times each power of ten."""
MANY_POINTS = 200
"""From this many points on they are drawn smaller and more transparent."""
MOST_ROWS = 60
"""A heat map with more rows labels only some of them."""


class ChartFigure(Figure):
    """A figure that shows itself in a notebook, although it does not belong to pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        with rc_context(LOOK):
            self.savefig(buffer, format="png", dpi=80)
        return buffer.getvalue()


def chart_files(chart: Chart, *kinds: str, captioned: bool = False) -> dict[str, bytes]:
    """The chart as files of these kinds (svg, pdf, png), with its caption above it if `captioned`."""
    files = {}
    with rc_context(LOOK):  # some settings act when a figure is made, others when it is saved
        figure = draw(chart, captioned=captioned)
        for kind in kinds:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=METADATA.get(kind))
            files[kind] = buffer.getvalue()
    return files


def save_chart(chart: Chart, path: Path, *, captioned: bool = True) -> None:
    """Write the chart as the kind of file that the path ends with."""
    kind = path.suffix.lstrip(".")
    data = chart_files(chart, kind, captioned=captioned)[kind]

    def write(part: Path) -> None:
        part.write_bytes(data)

    write_whole(path, write)


def _literal(value: Any) -> Any:
    """The same with dollar signs that are text: names come from settings, and two of them would enclose a formula."""
    if isinstance(value, str):
        return value.replace("$", r"\$")
    if isinstance(value, tuple):
        return tuple(_literal(one) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _literal(getattr(value, one.name)) for one in fields(value)})
    return value


def draw(chart: Chart, *, captioned: bool = False) -> Figure:
    """The figure of a chart. It belongs to the caller: Matplotlib keeps no reference to it."""
    chart = _literal(chart)
    with rc_context(LOOK):
        columns = min(chart.columns, len(chart.panels))
        rows = math.ceil(len(chart.panels) / columns)
        width, height = _size_inch(chart)
        caption = textwrap.fill(chart.caption, int(width * columns * 16)) if captioned else ""
        figure = ChartFigure(
            figsize=(width * columns, height * rows + 0.45 + 0.13 * (caption.count("\n") + 1)), layout="constrained"
        )
        flat: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
        handles: dict[str, Any] = {}
        for panel, axes in zip(chart.panels, flat, strict=False):
            match panel:
                case Panel():
                    handles |= {k: v for k, v in _draw_curves(axes, panel).items() if k not in handles}
                case CellMap():
                    _draw_cell(axes, panel)
                case HeatMap():
                    _draw_heat_map(axes, panel)
        for spare in flat[len(chart.panels) :]:
            spare.set_visible(False)
        if len(handles) > 1:
            figure.legend(
                handles.values(),
                handles.keys(),
                loc="outside lower center",
                ncols=min(max(2, int(width * columns / 1.5)), len(handles)),
            )
        if caption:
            figure.suptitle(caption, fontsize=8, x=0.01, ha="left", color="0.35")
        return figure


def _size_inch(chart: Chart) -> tuple[float, float]:
    """Of one panel; a heat map grows with its rows and columns."""
    width, height = chart.panel_size_inch
    for panel in chart.panels:
        if isinstance(panel, HeatMap):
            width = max(width, min(14.0, 3.0 + 0.16 * len(panel.columns)))
            height = max(height, 1.2 + 0.17 * min(len(panel.rows), MOST_ROWS))
    return width, height


def _draw_curves(axes: Axes, panel: Panel) -> dict[str, Any]:
    """Draw a panel and return what the legend shows of each name."""
    many = sum(len(series.x) for series in panel.series if series.kind == "points") > MANY_POINTS
    handles = {series.name: _draw_series(axes, series, many) for series in panel.series}
    for value, name in panel.references:
        axes.axhline(value, color="0.4", ls=":", lw=1)
        axes.annotate(
            name, (0.99, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7, bbox=HALO
        )
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    if panel.x_log:
        axes.set_xscale("log")
        ticks = sorted({float(x) for series in panel.series for x in series.x})
        if len(ticks) <= FEW_TICKS:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_xticks([], minor=True)
        elif ticks[0] > 0.0 and ticks[-1] < WIDE * ticks[0]:
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
    if panel.y_log:
        axes.set_yscale("log")
    if panel.y_range:
        axes.set_ylim(*panel.y_range)
    if not panel.x_log:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=panel.integers))
    if panel.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if panel.categories:
        slanted = sum(map(len, panel.categories)) > 45
        turned: dict[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        axes.set_xticks(range(len(panel.categories)), panel.categories, fontsize=8, **turned)
        axes.set_xlim(-0.5, len(panel.categories) - 0.5)
    return handles if not any(series.kind == "bars" for series in panel.series) else {}


def _draw_series(axes: Axes, series: Series, many: bool) -> Any:
    if series.kind == "bars":
        return _draw_bars(axes, series)
    line = series.kind == "line"
    (handle,) = axes.plot(
        series.x,
        series.y,
        color=series.colour,
        marker=series.marker,
        markevery=max(1, len(series.x) // 10) if line else 1,
        markersize=4 if line or not many else 2.5,
        ls=":" if series.dotted else "-",
        lw=1.4 if line else 0,
        alpha=1.0 if line else 0.4 if many else 0.6,
    )
    if len(series.low) and line:
        axes.fill_between(series.x, series.low, series.high, color=series.colour, alpha=0.15, lw=0)
    elif len(series.low):
        axes.errorbar(series.x, series.y, yerr=_errors(series), color=series.colour, capsize=3, lw=0, elinewidth=1)
    return handle


def _draw_bars(axes: Axes, series: Series) -> Any:
    """Bars with their values above them. Names stand on the axis, so bars are not in the legend."""
    bars = axes.bar(series.x, series.y, color=series.colour)
    if len(series.low):
        axes.errorbar(series.x, series.y, yerr=_errors(series), color="black", capsize=4, lw=0, elinewidth=1)
    if len(series.hatched):
        axes.bar(series.x, series.hatched, color="none", edgecolor="white", hatch="////", lw=0)
    for k, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        top = float(np.nanmax([y, series.high[k] if len(series.high) else y]))
        axes.annotate(f"{y:.3g}", (x, top), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8)
    axes.margins(y=0.12)
    axes.grid(axis="x", visible=False)
    return bars


def _errors(series: Series) -> Any:
    y = np.asarray(series.y, dtype=float)
    return np.array([y - np.asarray(series.low), np.asarray(series.high) - y])


def _draw_cell(axes: Axes, panel: CellMap) -> None:
    """Clients as large as their datasets; two circles in the legend say how large that is."""
    sizes = panel.dataset_sizes
    crowd = min(1.0, math.sqrt(20 / len(sizes)))
    area = crowd * (25.0 + 175.0 * sizes / sizes.max())
    angles = np.linspace(0.0, 2.0 * np.pi, 200)
    axes.plot(panel.radius_m * np.cos(angles), panel.radius_m * np.sin(angles), color="0.6", lw=1)
    axes.plot(0, 0, marker="^", color="black", markersize=8, ls="")
    known = np.isfinite(panel.values)
    x, y = panel.positions_m.T
    axes.scatter(x[~known], y[~known], s=area[~known], facecolors="none", edgecolors="0.5")
    dots = axes.scatter(
        x[known], y[known], s=area[known], c=panel.values[known], cmap="viridis", edgecolors="0.3", lw=0.6, alpha=0.9
    )
    axes.figure.colorbar(dots, ax=axes, label=panel.value_label, shrink=0.8)
    handles = [Line2D([], [], marker="^", color="black", ls="", label="server")]
    for which in dict.fromkeys((int(sizes.argmin()), int(sizes.argmax()))):
        diameter = math.sqrt(area[which])
        handles.append(
            Line2D([], [], marker="o", color="0.5", mfc="none", ls="", ms=diameter, label=f"{sizes[which]:.0f} samples")
        )
    if not known.all():
        handles.append(Line2D([], [], marker="o", color="0.5", mfc="none", ls="", ms=4, label="empty: no upload"))
    if panel.ran_out is not None and panel.ran_out.any():
        axes.scatter(x[panel.ran_out], y[panel.ran_out], marker="x", color="#D55E00", s=60 * crowd, lw=1.5)
        handles.append(Line2D([], [], marker="x", color="#D55E00", ls="", ms=6, label="battery ran out"))
    columns = len(handles) if len(handles) < 4 else 2  # a longer row would reach below the colours
    axes.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, fontsize=8, labelspacing=0.9
    )
    limit = panel.radius_m * 1.06
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xlabel="east (m)", ylabel="north (m)")
    axes.set_title(panel.title)
    axes.grid(False)


def _draw_heat_map(axes: Axes, panel: HeatMap) -> None:
    picture = axes.imshow(panel.values, aspect="auto", cmap="viridis", interpolation="nearest")
    axes.figure.colorbar(picture, ax=axes, label=panel.value_label)
    step = math.ceil(len(panel.rows) / MOST_ROWS)
    axes.set_yticks(range(0, len(panel.rows), step), panel.rows[::step], fontsize=7)
    long = max(map(len, panel.columns), default=0) > 3
    turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
    step = math.ceil(len(panel.columns) / 70)
    axes.set_xticks(range(0, len(panel.columns), step), panel.columns[::step], fontsize=7, **turned)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    axes.grid(False)
