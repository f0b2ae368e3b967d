"""The first sentences of the page, its first chart and its first table."""

import re
from dataclasses import replace

import pytest

from qccf.core.intervals import estimate
from qccf.paper.families import families
from qccf.reports.figures.chart import Series
from qccf.reports.page.build import build_report
from qccf.reports.page.numbers import NO_BREAK
from qccf.reports.page.opening import Manifest, all_remarks, opening_sentences
from qccf.reports.page.results import overview_groups, overview_table
from qccf.rounds.run import Run
from tests.helpers.made_runs import AS_CLAIMED, first_rounds, made_family, made_record


def sentences(runs: list[Run], remarks: tuple[str, ...] = ()) -> list[str]:
    return [text.replace(NO_BREAK, " ") for text in opening_sentences(families(runs), remarks)]


def with_codec(run: Run, codec: str) -> Run:
    return replace(run, scenario=run.scenario.replaced(codec={"name": codec}))


def with_policy(run: Run, policy: str) -> Run:
    return replace(run, scenario=run.scenario.replaced(policy={"name": policy}))


def test_one_run() -> None:
    ran, result, state = sentences([made_record("qccf", 0)])
    assert ran == ("1 training run on EMNIST: 10 clients on 10 channels, 40 rounds, 1 seed, policy qccf, codec model.")
    assert re.fullmatch(r"qccf spends [\d.]+ J and reaches [\d.]+ % accuracy\.", result)
    assert state == "All runs finished."


def test_synthetic_data_is_called_so() -> None:
    run = made_record("qccf", 0)
    made_up = replace(
        run, summary=run.summary | {"synthetic": True}, scenario=run.scenario.replaced(data={"dataset": "tiny"})
    )
    assert "on tiny (synthetic data): " in sentences([made_up])[0]


def test_several_policies_and_seeds_have_paired_intervals() -> None:
    runs = [made_record(p, s, **AS_CLAIMED[p]) for p in ("same-size", "qccf", "principle") for s in range(3)]
    ran, result, _ = sentences(runs)
    assert "3 seeds, policies same-size, qccf and principle, codec model." in ran
    totals = {p: [float(run.energy_j[-1]) for run in runs if run.policy == p] for p in ("qccf", "same-size")}
    saved = estimate(1 - ours / theirs for ours, theirs in zip(totals["qccf"], totals["same-size"], strict=True))
    energies = {p: estimate(values).shown(".1f", 1.0, " J") for p, values in totals.items()}
    assert result.startswith(f"qccf spends the least energy, {energies['qccf']} at ")
    assert f": {saved.shown('.1f', 100, ' %')} less than same-size ({energies['same-size']} at " in result
    assert "most accurate" not in result, "all are within a point"


def test_two_seeds_have_means_only_and_a_tiny_difference_is_called_so() -> None:
    def energies(policy: str, factor: float) -> list[Run]:
        runs = [made_record("qccf", seed) for seed in range(2)]
        columns = [run.round_columns | {"cumulative_energy_j": factor * run.energy_j} for run in runs]
        return [with_policy(replace(r, round_columns=c), policy) for r, c in zip(runs, columns, strict=True)]

    result = sentences([*energies("qccf", 1.0), *energies("same-size", 1.0004)])[1]
    assert "±" not in result
    assert "accuracy, within 0.1% of same-size (" in result


def test_policies_that_spend_the_same_are_named_together() -> None:
    equal = [with_policy(made_record("qccf", s, energy=0.5), p) for p in ("qccf", "same-size") for s in range(2)]
    dearer = [made_record("principle", s, energy=2.0) for s in range(2)]
    result = sentences([*equal, *dearer])[1]
    assert result.startswith("qccf and same-size spend the least energy, ")
    assert "less than principle (" in result
    assert ", the same as same-size (" in sentences(equal)[1]


def test_a_cheap_policy_that_learns_less_is_not_called_best_without_a_word() -> None:
    runs = [made_record("qccf", s, energy=0.5, ceiling=0.6) for s in range(3)]
    runs += [made_record("same-size", s, energy=0.8, ceiling=0.6) for s in range(3)]
    runs += [made_record("principle", s, energy=2.0) for s in range(3)]
    result = sentences(runs)[1]
    assert re.search(r"; principle is the most accurate, 7\d\.\d ± \d\.\d % for 80\.\d ± \d\.\d J\.$", result)


def test_a_difference_that_seeds_do_not_settle_is_not_a_saving() -> None:
    energies = {"qccf": (1.0, 2.0), "same-size": (2.0, 1.1)}
    runs = [made_record(p, s, energy=energies[p][s]) for p in energies for s in (0, 1)]
    result = sentences(runs)[1]
    assert "but 2 seeds do not settle the difference of " in result
    assert "less than" not in result


def test_several_codecs_are_named() -> None:
    costs = {"update": 1.0, "model": 1.5}
    runs = [with_codec(made_record("qccf", s, energy=cost), codec) for codec, cost in costs.items() for s in (0, 1)]
    ran, result, _ = sentences(runs)
    assert "policy qccf, codecs update and model." in ran
    assert result.startswith("qccf with codec update spends the least energy")
    assert "less than qccf with codec model (" in result
    (group,) = overview_groups(families(runs))
    rows = overview_table(group, titled=False).rows
    assert [(row.policy, row.cells[0]) for row in rows] == [("qccf", "model"), ("qccf", "update")]
    assert re.fullmatch(r"60\.\d ± \d\.\d J", rows[0].cells[2].replace(NO_BREAK, " "))


def test_unfinished_runs_are_a_remark() -> None:
    run = made_record("qccf", 0)
    cut = replace(first_rounds(made_record("qccf", 1), 5), summary=run.summary | {"finished": False})
    groups = families([run])
    (remark,) = all_remarks(groups, Manifest(), unfinished=1, shown=False)
    assert remark == "Unfinished runs: 1, left out."
    assert opening_sentences(groups, [remark])[2] == "One thing needs attention."
    alone = build_report([cut], [], Manifest())
    assert "5 rounds, 1 seed" in alone.sentences[0]
    assert "Unfinished runs: 1, shown up to their last round, and not judged." in alone.page
    assert alone.silences == ["no run has finished"]


def test_what_a_reproduction_could_not_do_comes_first() -> None:
    manifest = Manifest("qccf reproduce", "small", (("cifar10", "not here"),), (("a run", "It broke."),), 2)
    remarks = all_remarks(families([made_record("qccf", 0)]), manifest, unfinished=0, shown=False)
    assert remarks == [
        "Task cifar10 was not run: not here.",
        "A run failed, a run: It broke.",
        "Of the plan, 2 runs or studies are not finished yet.",
    ]


def test_few_settings_are_all_at_the_top_and_many_are_one_per_family() -> None:
    one = made_family({"qccf": AS_CLAIMED["qccf"], "same-size": AS_CLAIMED["same-size"]}, seeds=1)
    assert [setting.beta for _, setting in overview_groups([one])] == [150.0, 300.0]
    all_five = made_family(AS_CLAIMED, seeds=1)
    assert [setting.beta for _, setting in overview_groups([all_five, all_five])] == [300.0, 300.0]


def test_labels_say_what_was_run() -> None:
    run = made_record("qccf", 0)
    small = replace(run, scenario=run.scenario.replaced(data={"dataset_size_mean": 200.0, "dataset_size_std": 50.0}))
    page = build_report([small], [], Manifest()).page
    assert "EMNIST, β = 50, V = 100" in page
    assert "scaled" not in page.replace("scaled_update", "")
    assert "β = 50 of 200 samples is in proportion the paper's β = 300 of 1200." in page
    assert page.index("in proportion") > page.index('id="settings"')


def overview_series(runs: list[Run]) -> tuple[Series, ...]:
    (chart,) = [chart for chart in build_report(runs, [], Manifest()).charts if chart.key == "overview"]
    (panel,) = chart.curve_panels
    return panel.series


def test_the_chart_shows_every_policy_and_codec() -> None:
    runs = [
        with_codec(made_record(p, s), c) for p in ("qccf", "principle") for c in ("model", "update") for s in (0, 1)
    ]
    series = overview_series(runs)
    assert [one.name for one in series] == ["qccf, model", "qccf, update", "principle, model", "principle, update"]
    assert {one.kind for one in series} == {"line"}
    assert series[0].x[-1] == pytest.approx((runs[0].energy_j[-1] + runs[1].energy_j[-1]) / 2)


def test_many_curves_would_hide_each_other_so_points_are_drawn() -> None:
    runs = [with_codec(made_record("qccf", s), f"my.codecs:Codec{k:02}") for k in range(11) for s in (0, 1, 2)]
    series = overview_series(runs)
    assert (len(series), {one.kind for one in series}) == (11, {"points"})
    energy = estimate(float(run.energy_j[-1]) for run in runs[:3])
    accuracy = estimate(run.final_accuracy() for run in runs[:3])
    assert (series[0].x, series[0].y, series[0].low) == ([energy.mean], [accuracy.mean], [accuracy.low])
