"""Figures as data, and drawn."""

import json
import math

import numpy as np
import pytest

from qccf.report.figures.chart import Chart, Panel, Series, chart_to_csv, chart_to_json, draw
from qccf.report.figures.paper import family_charts
from qccf.report.figures.style import POLICY_STYLES
from qccf.report.page.markdown import to_html
from tests.helpers.made_runs import AS_CLAIMED, ROUNDS, SEEDS, made_family


@pytest.fixture(scope="module")
def charts() -> dict[str, Chart]:
    return {chart.key: chart for chart in family_charts(made_family(AS_CLAIMED), "-x")}


def test_the_papers_figures_are_there(charts: dict[str, Chart]) -> None:
    assert list(charts) == ["weights-x", "policies-x", "efficiency-x", "bits-x", "lost-x"]
    assert [panel.title for panel in charts["policies-x"].panels] == [
        "(a) Accuracy, β = 150", "(b) Energy, β = 150", "(c) Accuracy, β = 300", "(d) Energy, β = 300",
    ]  # fmt: skip
    assert charts["weights-x"].panels[0].series[0].x == [1, 10, 100, 1000, 10000]
    assert "no-quantization" not in charts["bits-x"].names()
    assert charts["lost-x"].names() == ["principle"]
    for chart in charts.values():
        for panel in chart.panels:
            assert panel.x_label
            assert panel.y_label
            for series in panel.series:
                if series.name in POLICY_STYLES:
                    assert (series.colour, series.marker) == POLICY_STYLES[series.name]
    cloud = charts["bits-x"].panels[1].series[0]
    assert not cloud.line
    assert len(cloud.x) == SEEDS * 10
    assert len(charts["policies-x"].panels[0].series[0].x) == ROUNDS


def test_what_v_trades_stands_beside_the_other_policies(charts: dict[str, Chart]) -> None:
    """At the β at which several V ran, the ends of QCCF's other runs; the end of its own curve is at its own V."""
    narrow, wide = charts["efficiency-x"].panels
    (points,) = [series for series in narrow.series if series.name not in POLICY_STYLES]
    assert (points.name, points.line, points.colour) == ("qccf, other V", False, POLICY_STYLES["qccf"][0])
    energies, accuracies = (panel.series[0].y for panel in reversed(charts["weights-x"].panels))
    assert points.x == [energies[k] for k in (0, 1, 3, 4)]
    assert points.y == [accuracies[k] for k in (0, 1, 3, 4)]
    assert {series.name for series in wide.series} == set(POLICY_STYLES)


def test_drawn_and_told_from_the_same_numbers(charts: dict[str, Chart]) -> None:
    chart = charts["policies-x"]
    figure = draw(chart)
    axes = figure.axes[1]
    told = chart_to_json(chart)["panels"][1]
    assert axes.get_xlabel() == "round"
    assert axes.get_ylabel() == "accumulated energy (J)"
    for line, series in zip(axes.lines, told["series"], strict=True):
        np.testing.assert_allclose(line.get_ydata(), series["y"], rtol=1e-5)
        assert line.get_color() == series["colour"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == chart.names()
    rows = chart_to_csv(chart).splitlines()
    assert len(rows) == 1 + 4 * 5 * ROUNDS


def test_what_is_no_number_is_null_and_a_gap() -> None:
    series = Series("a, b", [1.0, 2.0], [math.nan, 3.0], "#000000", "o", low=[math.nan, 2.0], high=[math.nan, 4.0])
    chart = Chart("k", "t", "c", (Panel("p", "x", "y", (series,), categories=("u", "v", "w")),))
    told = chart_to_json(chart)
    json.dumps(told, allow_nan=False)
    assert told["panels"][0]["series"][0]["y"] == [None, 3.0]
    assert chart_to_csv(chart).splitlines()[1] == '"p","a, b",1,,,'
    assert [t.get_text() for t in draw(chart).axes[0].get_xticklabels()] == ["u", "v", "w"]


def test_the_little_markdown() -> None:
    page = to_html(
        "# A\n\nOne *two*\n**three** `a<b` [four](x.md).\n\n| h | i |\n|---|---|\n| 1 | 2 |\n\n- x\n  y\n- z"
    )
    assert "<h2>A</h2>" in page
    assert "<p>One <em>two</em> <strong>three</strong> <code>a&lt;b</code> four.</p>" in page
    assert '<td data-head="h">1</td><td data-head="i">2</td>' in page
    assert "<ul><li>x y</li><li>z</li></ul>" in page
