"""Charts drawn by Matplotlib."""

import itertools
import math
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from qccf.reports.figures.chart import CellMap, Chart, HeatMap, Panel, Series, chart_to_csv, chart_to_json
from qccf.reports.figures.drawing import MOST_ROWS, chart_files, draw, save_chart
from qccf.reports.figures.paper import family_charts
from qccf.reports.figures.style import Styles
from tests.helpers.made_runs import AS_CLAIMED, ROUNDS, made_family


def simple_chart(**panel) -> Chart:
    series = Series("a", [0.0, 1.0], [2.0, 3.0], "#0072B2", "o", low=[1.0, 2.0], high=[3.0, 4.0])
    return Chart("key", "Title", "A caption.", (Panel("p", "x", "y", (series,), **panel),))


def cell_and_heat_map(clients: int, classes: int) -> Chart:
    rng = np.random.default_rng(0)
    bits = rng.uniform(1, 8, clients)
    bits[0] = math.nan
    cell = CellMap("cell", 500.0, rng.uniform(-300, 300, (clients, 2)), rng.uniform(600, 1800, clients), bits, "bits")
    rows, columns = tuple(f"{k} (100)" for k in range(clients)), tuple("x" * 8 for _ in range(classes))
    return Chart("maps", "", "", (cell, HeatMap("p", "x", "y", np.ones((clients, classes)), "v", rows, columns)))


def test_figure_and_page_show_the_same_numbers() -> None:
    chart = next(c for c in family_charts(made_family(AS_CLAIMED), "", Styles()) if c.key == "policies")
    figure = draw(chart)
    axes = figure.axes[1]
    shown = chart_to_json(chart)["panels"][1]
    assert axes.get_xlabel() == "round"
    assert axes.get_ylabel() == "accumulated energy (J)"
    for line, series in zip(axes.lines, shown["series"], strict=True):
        np.testing.assert_allclose(line.get_ydata(), series["y"], rtol=1e-5)
        assert line.get_color() == series["colour"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == chart.names()
    assert len(chart_to_csv(chart).splitlines()) == 1 + 4 * 5 * ROUNDS


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_matplotlibs_settings_are_the_same_before_and_after(tmp_path: Path, kind: str) -> None:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever earlier tests have left
        before = dict(matplotlib.rcParams)
        draw(simple_chart())
        assert dict(matplotlib.rcParams) == before
        save_chart(simple_chart(), tmp_path / f"figure.{kind}")
        assert dict(matplotlib.rcParams) == before


def test_settings_that_act_when_a_figure_is_saved_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same chart gives the same file, with fonts that publishers accept, whatever the host has set."""
    first = chart_files(simple_chart(), "svg", "pdf")
    monkeypatch.setitem(matplotlib.rcParams, "svg.hashsalt", "another")
    monkeypatch.setitem(matplotlib.rcParams, "pdf.fonttype", 3)
    monkeypatch.setitem(matplotlib.rcParams, "savefig.bbox", None)
    assert chart_files(simple_chart(), "svg", "pdf") == first
    assert b"/Type3" not in first["pdf"]


def test_categories_are_the_ticks() -> None:
    axes = draw(simple_chart(categories=("u", "v"))).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["u", "v"]


def test_bars_have_intervals_values_and_a_hatched_part() -> None:
    bar = Series("a", [0.0], [2.0], "#0072B2", "o", [1.5], [2.5], kind="bars", hatched=[0.5])
    figure = draw(Chart("k", "t", "c", (Panel("p", "", "J", (bar,), categories=("a",)),)))
    (axes,) = figure.axes
    assert [patch.get_height() for patch in axes.patches] == [2.0, 0.5]
    assert axes.patches[1].get_hatch()
    (errors,) = [c for c in axes.collections if len(c.get_segments())]
    assert [point[1] for point in errors.get_segments()[0]] == [1.5, 2.5]
    assert [text.get_text() for text in axes.texts] == ["2"]
    assert not figure.legends, "names stand on the axis"


@pytest.mark.parametrize("clients", [10, 50, 200])
def test_maps_show_every_client_and_labels_that_do_not_overlap(clients: int) -> None:
    figure = draw(cell_and_heat_map(clients, 62))
    cell, heat, *_ = figure.axes
    figure.canvas.draw()
    assert sum(len(dots.get_offsets()) for dots in cell.collections) == clients
    assert heat.images[0].get_array().shape == (clients, 62)
    labels = [tick for tick in heat.get_yticklabels() if tick.get_text()]
    assert len(labels) == min(clients, math.ceil(clients / math.ceil(clients / MOST_ROWS)))
    boxes = sorted((tick.get_window_extent() for tick in labels), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 + 1 for below, above in itertools.pairwise(boxes))
    legend = [text.get_text() for text in cell.get_legend().get_texts()]
    assert legend[0] == "server"
    assert legend[-1] == "empty: no upload"
    assert all(text.endswith(" samples") for text in legend[1:-1])


def test_the_caption_is_drawn_where_there_is_no_page() -> None:
    assert draw(simple_chart(), captioned=True).get_suptitle() == "A caption."
    assert draw(simple_chart()).get_suptitle() == ""


def test_the_legend_of_a_cell_covers_nothing():
    """With all its entries: a client without uploads, and one whose battery ran out."""
    rng = np.random.default_rng(3)
    values, ran_out = np.array([np.nan, 2.0, 3.0, 4.0]), np.array([False, True, False, False])
    cell = CellMap("cell", 500.0, rng.uniform(-300, 300, (4, 2)), rng.uniform(600, 1800, 4), values, "bits", ran_out)
    figure = draw(Chart("cell", "", "", (cell,), panel_size_inch=(5.2, 4.6)))
    figure.canvas.draw()
    axes, colours = figure.axes
    legend = axes.get_legend().get_window_extent()
    assert len(axes.get_legend().get_texts()) == 5
    for other in (axes.get_window_extent(), axes.xaxis.label.get_window_extent(), colours.get_tightbbox()):
        assert not legend.overlaps(other)


@pytest.mark.parametrize(("ratio", "plain"), [(25.0, True), (1e5, False)])
def test_a_short_logarithmic_axis_has_ticks_at_one_two_and_five(ratio: float, plain: bool) -> None:
    x = 0.02 * np.geomspace(1.0, ratio, 20)
    chart = Chart("key", "", "", (Panel("p", "x", "y", (Series("a", x, x, "#0072B2", "o"),), x_log=True),))
    figure = draw(chart)
    figure.canvas.draw()
    words = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert ({"0.02", "0.05", "0.1", "0.2", "0.5"} <= set(words)) == plain
    assert not any(label.get_text() for label in figure.axes[0].get_xticklabels(minor=True))
