"""Charts as data."""

import csv
import io
import json
import math

import pytest

from qccf.policies.registry import PAPERS_POLICIES
from qccf.reports.figures.chart import CellMap, Chart, Panel, Series, chart_to_csv, chart_to_json
from qccf.reports.figures.paper import family_charts
from qccf.reports.figures.style import Styles
from tests.helpers.made_runs import AS_CLAIMED, ROUNDS, SEEDS, made_family

STYLES = Styles()


@pytest.fixture(scope="module")
def charts() -> dict[str, Chart]:
    return {chart.key: chart for chart in family_charts(made_family(AS_CLAIMED), "-x", STYLES)}


def test_the_papers_figures_are_there(charts: dict[str, Chart]) -> None:
    assert list(charts) == ["weights-x", "policies-x", "efficiency-x", "time-x", "bits-x", "lost-x"]
    assert [panel.title for panel in charts["policies-x"].panels] == [
        "(a) Accuracy, β = 150", "(b) Energy, β = 150", "(c) Accuracy, β = 300", "(d) Energy, β = 300",
    ]  # fmt: skip
    assert charts["weights-x"].curve_panels[0].series[0].x == [1, 10, 100, 1000, 10000]
    assert "no-quantization" not in charts["bits-x"].names()
    assert charts["lost-x"].names() == ["principle"]
    for chart in charts.values():
        assert "95 % interval" in chart.caption, "every figure says what its bands are"
        for panel in chart.curve_panels:
            assert panel.x_label
            assert panel.y_label
            for series in panel.series:
                if series.name in STYLES.policies:
                    assert (series.colour, series.marker) == STYLES.policies[series.name]
    points = charts["bits-x"].curve_panels[1].series[0]
    assert points.kind == "points"
    assert len(points.x) == SEEDS * 10
    assert len(charts["policies-x"].curve_panels[0].series[0].x) == ROUNDS


def test_other_values_of_v_stand_beside_the_other_policies(charts: dict[str, Chart]) -> None:
    """At the β at which several V ran, the last rounds of QCCF's other runs."""
    narrow, wide = charts["efficiency-x"].curve_panels
    (points,) = [series for series in narrow.series if series.name not in STYLES.policies]
    assert (points.name, points.kind, points.colour) == ("qccf, other V", "points", STYLES.policies["qccf"].colour)
    energies, accuracies = (panel.series[0].y for panel in reversed(charts["weights-x"].curve_panels))
    assert points.x == [energies[k] for k in (0, 1, 3, 4)]
    assert points.y == [accuracies[k] for k in (0, 1, 3, 4)]
    assert {series.name for series in wide.series} == set(PAPERS_POLICIES)
    in_time = charts["time-x"].curve_panels[0]
    assert {series.name for series in in_time.series} == set(PAPERS_POLICIES)
    assert in_time.x_label == "simulated time (s)"
    assert in_time.series[0].y == narrow.series[0].y
    assert list(in_time.series[0].x) != list(narrow.series[0].x)


def test_nan_is_null_on_the_page_and_empty_in_the_table() -> None:
    series = Series('a, "b"', [1.0, 2.0], [math.nan, 3.0], "#000000", "o", low=[math.nan, 2.0], high=[math.nan, 4.0])
    chart = Chart("k", "t", "c", (Panel("p", "x", "y", (series,), categories=("u", "v", "w")),))
    shown = chart_to_json(chart)
    json.dumps(shown, allow_nan=False)
    assert shown["panels"][0]["series"][0]["y"] == [None, 3.0]
    rows = list(csv.reader(io.StringIO(chart_to_csv(chart))))
    assert rows == [
        ["panel", "series", "x", "y", "low", "high"],
        ["p", 'a, "b"', "1", "", "", ""],
        ["p", 'a, "b"', "2", "3", "2", "4"],
    ]


def test_maps_are_not_curves() -> None:
    import numpy as np

    cell = CellMap("cell", 500.0, np.zeros((1, 2)), np.ones(1), np.ones(1), "bits")
    chart = Chart("k", "t", "c", (cell,))
    assert chart.names() == chart_to_json(chart)["panels"] == []
