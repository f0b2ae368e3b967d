"""Curves, points and bars of several runs: the same numbers and styles for runs, comparisons, plans and the paper."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from qccf.core.intervals import estimate
from qccf.reports.figures.builders import (
    BAND,
    accuracy_over_energy,
    bits_over_sizes,
    client_bits,
    curves,
    energy_bars,
    grouped,
    quantizing,
)
from qccf.reports.figures.chart import CellMap, HeatMap
from qccf.reports.figures.plan import plan_chart
from qccf.reports.figures.run import run_charts
from qccf.reports.figures.style import Styles
from qccf.rounds.run import Run
from qccf.runtimes.planner import plan
from qccf.settings.loading import load_scenario
from tests.helpers.made_runs import ROUNDS, SIZES, first_rounds, made_record
from tests.helpers.tiny import tiny_dataset

OWN = "my.module:Policy"


def with_column(run: Run, **columns: np.ndarray) -> Run:
    return replace(run, round_columns=run.round_columns | columns)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    policies = {"qccf": {}, "no-quantization": {"first": 40.0}, OWN: {"energy": 2.0}}
    return [made_record(name, seed, **truth) for name, truth in policies.items() for seed in range(3)]


def test_a_band_is_the_95_percent_interval_of_the_mean_over_seeds(runs: list[Run]) -> None:
    series = {one.name: one for one in curves(grouped(runs), lambda run: run.energy_j, Styles(runs))}
    assert list(series) == ["qccf", "no-quantization", OWN]
    expected = estimate(run.energy_j[-1] for run in runs[:3])
    last = series["qccf"]
    assert (last.x[0], last.x[-1]) == (1.0, ROUNDS)
    assert (last.y[-1], last.low[-1], last.high[-1]) == (expected.mean, expected.low, expected.high)


def test_intervals_end_at_the_limits_of_the_quantity() -> None:
    """Seeds at 2 % and 98 % give an interval beyond 0 and 100 %."""
    values = (0.02, 0.5, 0.98)
    mixed = [with_column(made_record("qccf", k), test_accuracy=np.full(ROUNDS, v)) for k, v in enumerate(values)]
    (series,) = curves(grouped(mixed), lambda run: run.accuracy, Styles(), highest=1.0)
    (trade,) = accuracy_over_energy(grouped(mixed), Styles())
    for one in (series, trade):
        assert (one.y[0], one.low[0], one.high[0]) == (0.5, 0.0, 1.0)
    (few,) = curves(grouped(mixed[:2]), lambda run: run.accuracy, Styles(), highest=1.0)
    assert (len(few.low), len(few.high)) == (0, 0), "two seeds have no interval"


def test_rounds_that_not_all_runs_have_or_evaluate_are_left_out() -> None:
    sparse = np.full(ROUNDS, np.nan)
    sparse[4::5] = 0.5
    mine = [with_column(made_record("qccf", seed), test_accuracy=sparse) for seed in (0, 1)]
    mine.append(first_rounds(mine[0], 20))
    (series,) = curves(grouped(mine), lambda run: run.accuracy, Styles())
    assert series.x == [5.0, 10.0, 15.0, 20.0]
    (trade,) = accuracy_over_energy(grouped(mine), Styles())
    assert trade.x[0] == pytest.approx(np.mean([run.energy_j[4] for run in mine]))


def test_one_seed_has_no_band() -> None:
    (series,) = curves(grouped([made_record("qccf", 0)]), lambda run: run.energy_j, Styles())
    assert len(series.low) == len(series.high) == 0


def test_bits_are_of_uploads_only(runs: list[Run]) -> None:
    shown = quantizing(grouped(runs))
    assert list(shown) == ["qccf", OWN], "32-bit floats would squash the axis"
    points = bits_over_sizes(shown, Styles(runs))[0]
    assert points.kind == "points"
    assert len(points.x) == 3 * len(SIZES)
    participated = runs[0].by_round("participated").copy()
    participated[:, 0] = False
    participated[ROUNDS // 2 :, 1] = False
    partly = replace(runs[0], client_columns=runs[0].client_columns | {"participated": participated.reshape(-1)})
    bits = runs[0].by_round("num_bits")
    expected = [np.nan, bits[: ROUNDS // 2, 1].mean(), *bits[:, 2:].mean(axis=0)]
    np.testing.assert_allclose(client_bits(partly), expected)
    assert len(bits_over_sizes(grouped([partly]), Styles())[0].x) == len(SIZES) - 1


def test_bars_are_energies_with_intervals_and_the_part_for_computing(runs: list[Run]) -> None:
    first, second, third = energy_bars(grouped(runs), Styles(runs))
    expected = estimate(run.energy_j[-1] for run in runs[:3])
    assert (first.kind, first.x, first.y, first.low) == ("bars", [0.0], [expected.mean], [expected.low])
    assert first.hatched[0] == pytest.approx(0.25 * expected.mean), "a quarter of the energy of made-up runs"
    assert (second.x, third.x) == ([1.0], [2.0])


def test_every_figure_of_a_comparison_shows_the_same_styles(runs: list[Run]) -> None:
    for run in runs:
        run.summary["floor_j"] = 1.0
    charts = {chart.key: chart for chart in run_charts(runs, tiny_dataset(13_000))}
    assert list(charts) == ["learning", "bits", "cell", "partition"]
    shown = {
        (series.name, series.colour, series.marker)
        for chart in charts.values()
        for panel in chart.curve_panels
        for series in panel.series
        if not series.dotted
    }
    assert {name for name, *_ in shown} == {"qccf", "no-quantization", OWN}
    assert len(shown) == 3, "one style per policy"
    assert all(BAND in charts[key].caption for key in ("learning", "bits"))
    (cell,), (partition,) = charts["cell"].panels, charts["partition"].panels
    assert isinstance(cell, CellMap)
    np.testing.assert_allclose(cell.values, client_bits(runs[0]))
    assert isinstance(partition, HeatMap)
    np.testing.assert_allclose(partition.values.sum(axis=1), SIZES)


def test_a_plan_of_a_policy_with_a_label_is_drawn() -> None:
    runs = plan(load_scenario("femnist", ["federation.rounds=2", "policy.label=mine"]), ["fixed-bits", "qccf"], 1)
    cell = plan_chart(runs).panels[0]
    assert isinstance(cell, CellMap)
    np.testing.assert_allclose(cell.values, client_bits(runs[1]))
    first = plan_chart(runs[:1]).panels[0]
    assert isinstance(first, CellMap)
    np.testing.assert_allclose(first.values, client_bits(runs[0]))


def test_a_plan_is_drawn_from_the_same_builders() -> None:
    runs = plan(load_scenario("femnist", ["federation.rounds=4"]), ["qccf", "no-quantization"], 3)
    chart = plan_chart(runs)
    cell, energy, over_rounds, over_sizes = chart.panels
    assert isinstance(cell, CellMap)
    assert energy.series == energy_bars(grouped(runs), Styles())
    assert energy.categories == ("qccf", "no-quantization")
    assert [series.name for series in (*over_rounds.series, *over_sizes.series)] == ["qccf", "qccf"]
    assert BAND in chart.caption


def test_plans_are_drawn_without_pandas_and_torch() -> None:
    code = "import sys, qccf.reports.figures.plan; print([m for m in ('pandas', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
