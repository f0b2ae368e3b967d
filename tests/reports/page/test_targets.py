"""The report's table of what it took to reach an accuracy."""

import re

from qccf.paper.families import setting_of
from qccf.reports.page.build import build_report
from qccf.reports.page.opening import Manifest
from qccf.reports.page.results import TARGET_HEADS, target_tables
from qccf.rounds.targets import target_cells
from tests.helpers.made_runs import AS_CLAIMED, made_family


def test_each_policy_has_a_row_per_target_and_says_what_it_did_not_reach() -> None:
    family = made_family(AS_CLAIMED, seeds=2)
    tables = target_tables(family, [0.3, 0.99])
    assert len(tables) == len(family.settings())
    for table, setting in zip(tables, family.settings(), strict=True):
        labels = family.labels(setting)
        assert [row.cells[1] for row in table.rows] == ["30 %"] * len(labels) + ["99 %"] * len(labels)
        for row, label in zip(table.rows, labels, strict=False):
            assert row.cells[2:] == target_cells(family.of(setting, label), 0.3)
            assert len(row.cells) == len(TARGET_HEADS)
        assert all(row.cells[2:] == ["not reached", "–", "–"] for row in table.rows[len(labels) :])


def test_without_targets_the_highest_reached_ones_are_shown_on_the_page() -> None:
    family = made_family(AS_CLAIMED, seeds=2)
    runs = [run for run in family.records if setting_of(run).energy_weight == 100.0]
    page = build_report(runs, [], Manifest()).page
    shown = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))
    assert "what it took to reach an accuracy" in shown
    assert "An accuracy is reached when the mean of 3 evaluations on" in shown
    assert "seconds, simulated" in shown
