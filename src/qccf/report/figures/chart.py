"""A figure as data, drawn twice from the same numbers: for the page by a script, for papers by Matplotlib."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from qccf.core.contracts import FloatArray
from qccf.report.figures.style import new_figure

COLUMNS = 2
FEW = 6
"""So many values on a logarithmic axis are its ticks."""


@dataclass(frozen=True)
class Series:
    """One curve or cloud. `low` and `high` are the ends of a band, empty where there is none."""

    name: str
    x: Sequence[float] | FloatArray
    y: Sequence[float] | FloatArray
    colour: str
    marker: str
    low: Sequence[float] | FloatArray = ()
    high: Sequence[float] | FloatArray = ()
    line: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes. With `categories` x counts them; `reference` is a value to compare with, and its name."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_log: bool = False
    percent: bool = False
    integers: bool = False
    categories: tuple[str, ...] = ()
    references: tuple[tuple[float, str], ...] = ()
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Chart:
    """A figure: panels that share a legend."""

    key: str
    title: str
    caption: str
    panels: tuple[Panel, ...]

    def names(self) -> list[str]:
        return list(dict.fromkeys(series.name for panel in self.panels for series in panel.series))


def chart_to_json(chart: Chart) -> dict[str, Any]:
    """Plain values for the page; what is not a number is null."""
    return {
        "key": chart.key,
        "title": chart.title,
        "panels": [
            {
                "title": panel.title,
                "xLabel": panel.x_label,
                "yLabel": panel.y_label,
                "xLog": panel.x_log,
                "percent": panel.percent,
                "integers": panel.integers,
                "categories": list(panel.categories),
                "yRange": panel.y_range,
                "references": [{"y": _number(y), "name": name} for y, name in panel.references],
                "series": [
                    {
                        "name": series.name,
                        "colour": series.colour,
                        "marker": series.marker,
                        "line": series.line,
                        **{key: [_number(v) for v in getattr(series, key)] for key in ("x", "y", "low", "high")},
                    }
                    for series in panel.series
                ],
            }
            for panel in chart.panels
        ],
    }


def chart_to_csv(chart: Chart) -> str:
    """Every point of the figure as a table."""
    lines = ["panel,series,x,y,low,high"]
    for panel in chart.panels:
        for series in panel.series:
            for k in range(len(series.x)):
                ends = (series.low[k], series.high[k]) if len(series.low) else ("", "")
                cells = [panel.title, series.name, series.x[k], series.y[k], *ends]
                lines.append(",".join(f'"{cell}"' if isinstance(cell, str) and cell else _cell(cell) for cell in cells))
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return "" if value == "" or not math.isfinite(value) else f"{value:.8g}"


def _number(value: Any) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def draw(chart: Chart) -> Figure:
    """The figure as vectors, in a size that fits a page of a paper."""
    columns = min(COLUMNS, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    figure, axes = new_figure(3.6 * columns, 2.7 * rows + 0.45, rows, columns)
    flat: list[Axes] = list(axes.flat) if hasattr(axes, "flat") else [axes]
    handles: dict[str, Any] = {}
    for panel, one in zip(chart.panels, flat, strict=False):
        handles = _draw_panel(one, panel) | handles
    for spare in flat[len(chart.panels) :]:
        spare.set_visible(False)
    if len(handles) > 1:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=min(3 * columns - 1, len(handles))
        )
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> dict[str, Any]:
    handles = {}
    for series in panel.series:
        (line,) = axes.plot(
            series.x,
            series.y,
            color=series.colour,
            marker=series.marker,
            markevery=max(1, len(series.x) // 10) if series.line else 1,
            markersize=4,
            lw=1.4 if series.line else 0,
            alpha=1.0 if series.line else 0.6,
            label=series.name,
        )
        handles[series.name] = line
        if len(series.low) and not series.line:
            ends = [[y - a for y, a in zip(series.y, series.low, strict=True)],
                    [b - y for y, b in zip(series.y, series.high, strict=True)]]  # fmt: skip
            axes.errorbar(series.x, series.y, yerr=ends, color=series.colour, capsize=3, lw=0, elinewidth=1)
        elif len(series.low):
            axes.fill_between(series.x, series.low, series.high, color=series.colour, alpha=0.15, lw=0)
    for value, name in panel.references:
        axes.axhline(value, color="0.4", ls=":", lw=1)
        axes.annotate(name, (0.99, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    if panel.x_log:
        axes.set_xscale("log")
        ticks = sorted({float(x) for series in panel.series for x in series.x})
        if len(ticks) <= FEW:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_xticks([], minor=True)
    if panel.y_range:
        axes.set_ylim(*panel.y_range)
    if panel.integers:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if panel.categories:
        axes.set_xticks(range(len(panel.categories)), panel.categories, fontsize=7)
        axes.set_xlim(-0.5, len(panel.categories) - 0.5)
    return handles
