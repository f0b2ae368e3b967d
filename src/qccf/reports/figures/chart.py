"""A figure as data. The page draws it with a script, `qccf.reports.figures.drawing` with Matplotlib."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qccf.core.contracts import BoolArray, FloatArray

Values = Sequence[float] | FloatArray


@dataclass(frozen=True)
class Series:
    """One curve, one set of points or one set of bars.

    `low` and `high` are the ends of the 95 % intervals, empty where there are none; `hatched` is the hatched part of
    each bar.
    """

    name: str
    x: Values
    y: Values
    colour: str
    marker: str
    low: Values = ()
    high: Values = ()
    kind: Literal["line", "points", "bars"] = "line"
    dotted: bool = False
    hatched: Values = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes. With `categories`, x is their index; a reference is a y value and its name."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False
    percent: bool = False
    integers: bool = False
    categories: tuple[str, ...] = ()
    references: tuple[tuple[float, str], ...] = ()
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class CellMap:
    """Clients at their positions [client, (x, y)] in the cell. A NaN value is drawn as an empty circle.

    Those whose battery ran out have a cross.
    """

    title: str
    radius_m: float
    positions_m: FloatArray
    dataset_sizes: FloatArray
    values: FloatArray
    value_label: str
    ran_out: BoolArray | None = None


@dataclass(frozen=True)
class HeatMap:
    """Values [row, column] as colours."""

    title: str
    x_label: str
    y_label: str
    values: FloatArray
    value_label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Chart:
    """A figure: panels that share a legend, `columns` of them in a row."""

    key: str
    title: str
    caption: str
    panels: tuple[Panel | CellMap | HeatMap, ...]
    columns: int = 2
    panel_size_inch: tuple[float, float] = (3.6, 2.7)

    @property
    def curve_panels(self) -> list[Panel]:
        """The panels that are not maps."""
        return [panel for panel in self.panels if isinstance(panel, Panel)]

    def names(self) -> list[str]:
        return list(dict.fromkeys(series.name for panel in self.curve_panels for series in panel.series))


def chart_to_json(chart: Chart) -> dict[str, Any]:
    """The chart's curves as plain values for the page; NaN becomes null."""
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
                        "kind": series.kind,
                        **{key: [_number(v) for v in getattr(series, key)] for key in ("x", "y", "low", "high")},
                        **({"hatched": [_number(v) for v in series.hatched]} if len(series.hatched) else {}),
                    }
                    for series in panel.series
                ],
            }
            for panel in chart.curve_panels
        ],
    }


def chart_to_csv(chart: Chart) -> str:
    """Every point of the chart's curves as a table."""
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(["panel", "series", "x", "y", "low", "high"])
    for panel in chart.curve_panels:
        for series in panel.series:
            for k in range(len(series.x)):
                ends = (series.low[k], series.high[k]) if len(series.low) else (math.nan, math.nan)
                numbers = (series.x[k], series.y[k], *ends)
                table.writerow([panel.title, series.name, *(f"{v:.8g}" if math.isfinite(v) else "" for v in numbers)])
    return buffer.getvalue()


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
