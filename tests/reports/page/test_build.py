"""The page of made-up runs: causes, runs left out, differences from the paper, trained savings, escaping."""

import io
import json
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from qccf.cli import report as command
from qccf.core.errors import QccfError
from qccf.paper.diagnosis import NOTES as NAME
from qccf.paper.families import families, setting_of
from qccf.paper.verdicts import RULES
from qccf.reports.figures.studies import study_charts, trained_rows
from qccf.reports.figures.style import Styles
from qccf.reports.page import build
from qccf.reports.page.build import ReportPage, build_report
from qccf.reports.page.opening import Manifest
from qccf.rounds.run import Run
from tests.helpers.made_runs import AS_CLAIMED, first_rounds, made_family, made_record, made_studies

CHEAP = AS_CLAIMED | {
    "principle": AS_CLAIMED["principle"] | {"energy": 0.8},
    "same-size": AS_CLAIMED["same-size"] | {"energy": 1.2},
}
NOTES = """# Causes

## least-energy, emnist: refuted
**The claim.** Principle is made cheap
for this test.

## saves-principle, emnist: holds in part
An old story.
"""


def with_settings(runs: Iterable[Run], **sections: dict) -> list[Run]:
    return [replace(run, scenario=run.scenario.replaced(**sections)) for run in runs]


@pytest.fixture(scope="module")
def text() -> str:
    records = list(made_family(CHEAP, seeds=6).records)
    cut = replace(first_rounds(records[0], 5), summary=records[0].summary | {"finished": False})
    few = [r for r in records if setting_of(r).energy_weight == 100.0]
    return build_report([*few, cut], made_studies(), Manifest(), NOTES).page


def test_a_cause_is_shown_with_its_claim_and_a_warning_if_the_verdict_changed(text: str) -> None:
    section = text[text.index('class="fold causes"') : text.index('id="results"')]
    assert "EMNIST: 3 claimed advantages not as claimed, and why" in section
    parts = re.split("<h4>", section)[1:]
    sections = {re.sub("<[^>]+>", "", part).partition("\n")[0]: part for part in parts}
    least = sections["QCCF spends the least energy over all rounds. ✗ refuted"]
    assert "<p><strong>The claim.</strong> Principle is made cheap\nfor this test.</p>" in least
    assert "check it again" not in least
    assert "β = 150, principle: energy -" in least
    old = sections["QCCF takes 48.21 % less energy than principle. ✗ refuted"]
    assert "Written when the verdict was “holds in part”; check it again." in old
    new = sections["QCCF takes 35.42 % less energy than same-size. ≈ holds in part"]
    assert "Nobody has written down the cause yet." in new
    assert not any("fewest rounds" in head for head in sections), "what holds needs no cause"


def test_an_unfinished_run_is_left_out_and_the_page_says_so(text: str) -> None:
    assert "Unfinished runs: 1, left out." in text
    assert "60 training runs on EMNIST: 10 clients on 10 channels, 40 rounds, 6 seeds" in text
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1])
    policies = next(chart for chart in charts if chart["key"] == "policies-emnist")
    assert len(policies["panels"][0]["series"][0]["x"]) == 40, "one short run must not shorten the others"


def test_rules_and_differences_from_the_paper_are_on_the_page(text: str) -> None:
    assert all(rule in text.replace("&#39;", "'") for rule in RULES.values())
    assert "energy ±5 %, accuracy ±1 points, rank correlation ±0.2, rounds ±1 rounds, bits ±0.5 bits" in text
    settings = text[text.index('id="settings"') :]
    rows = re.findall(r"<tr>(.*?)</tr>", settings, re.DOTALL)
    shown = [re.sub("<[^>]+>", "|", row).replace("||", "|") for row in rows]
    assert any(row.startswith("|bandwidth (MHz)|1|10|") for row in shown)
    assert any(row.startswith("|learning rate|not in its text|0.1|") for row in shown)
    assert not any(row.startswith("|samples per client") for row in shown), "1,200 is the paper's"


def test_trained_savings_are_shown_beside_the_studies(text: str) -> None:
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1])
    panels = next(chart for chart in charts if chart["key"] == "savings")["panels"]
    panel = next(panel for panel in panels if panel["title"] == "channel gain")
    trained = next(s for s in panel["series"] if s["name"] == "trained, against same-size")
    assert (trained["x"], trained["kind"]) == ([0.0], "points")
    family = made_family(CHEAP, seeds=6)
    (low, high) = (s for s in family.comparisons())
    pairs = family.paired((high, "same-size"), (high, "qccf"))
    saved = [1 - q.energy_j[-1] / b.energy_j[-1] for b, q in pairs]
    assert trained["y"][0] == pytest.approx(sum(saved) / 6, rel=1e-5)
    assert low.beta < high.beta
    assert "0 dB, trained" in text


@pytest.mark.slow
def test_only_runs_that_differ_in_one_factor_are_points_of_it() -> None:
    family = made_family(AS_CLAIMED, seeds=2)

    def changed(**updates):
        return replace(family, records=tuple(with_settings(family.records, **updates)))

    assert {row.factor.name for row in trained_rows([family])} >= {"bandwidth", "channel gain", "L"}
    patience = next(row for row in trained_rows([family]) if row.factor.key == "principle.patience")
    assert patience.value == family.rounds // 10
    brief = trained_rows([changed(federation={"rounds": 3})])
    assert next(row.value for row in brief if row.factor.key == "principle.patience") == 2, "principle's default"
    (row,) = trained_rows([changed(radio={"gain_db": 10.0})])
    assert (row.factor.name, row.value, row.trained) == ("channel gain", 10.0, True)
    assert trained_rows([changed(radio={"gain_db": 10.0}, learning={"smoothness": 0.05})]) == []
    assert trained_rows([made_family({"qccf": AS_CLAIMED["qccf"]}, seeds=2)]) == []

    varied = changed(radio={"gain_db": 10.0}).records
    cut = [replace(r, summary={**r.summary, "finished": False}) for r in changed(learning={"smoothness": 0.05}).records]
    page = build_report(family.records, made_studies(), Manifest(), "", [*varied, *cut]).page
    assert "10 dB, trained" in page
    assert "0.05, trained" not in page, "a run that has not finished"
    assert page.count('<table class="claims') == 1


def test_trained_savings_are_of_the_same_seeds_and_of_nothing_else_changed() -> None:
    family = made_family(AS_CLAIMED, seeds=4)

    def changed(records, **updates):
        return families(with_settings(records, **updates))[0]

    first = [r for r in family.records if r.seed == 1]
    rows = trained_rows([family, changed(first, radio={"gain_db": 10.0})])
    gain = [row for row in rows if row.factor.key == "radio.gain_db"]
    assert [(row.value, row.savings["principle"].count) for row in gain] == [(0.0, 1), (10.0, 1)]
    assert gain[0].savings["principle"].mean == gain[1].savings["principle"].mean, "the same seed"
    assert gain[1].shown_value == "10 dB, trained, 1 seed"
    assert gain[1].source == "EMNIST, 40 rounds"
    assert next(row for row in rows if row.factor.name == "L").savings["principle"].count == 4

    three = [r for r in family.records if r.seed < 3]
    mixed = [changed(three, learning={"smoothness": 0.05}), changed(first, learning={"smoothness": 0.15})]
    (chart,) = study_charts(made_studies(), trained_rows([family, *mixed]), Styles())
    panel = next(panel for panel in chart.panels if panel.title == "L")
    dots = next(series for series in panel.series if series.name == "trained, against principle")
    assert [np.isfinite(low) for low in dots.low] == [True, True, False], "one seed has no interval, the others have"

    narrow = [r for r in family.records if setting_of(r).beta == 150.0]
    unfinished = [replace(r, summary=r.summary | {"finished": False}) for r in family.records]
    for other in (
        changed(family.records, codec={"name": "update"}),
        changed(
            family.records, control={"paper": family.scenario.control.paper.model_copy(update={"energy_weight": 10.0})}
        ),
        changed(family.records, federation={"num_clients": 20}),
        families(narrow)[0],
        families(unfinished)[0],
    ):
        assert trained_rows([other]) == []


@pytest.mark.parametrize("section", ["loss_options", "model_options"])
def test_an_option_that_the_preset_does_not_state_is_a_difference(section: str) -> None:
    family = made_family(AS_CLAIMED, seeds=2)
    with_option = families(with_settings(family.records, learning={section: {"label_smoothing": 0.1}}))
    assert trained_rows(with_option) == []
    other_data = families(with_settings(family.records, data={"options": {"classes": 10}}))
    assert len(trained_rows(other_data)) == len(trained_rows([family])) > 0, "data are not compared"


def test_a_run_that_is_found_twice_counts_once_and_a_double_is_refused() -> None:
    record = made_record("principle", 0)
    (family,) = families([record, replace(record, folder=record.folder / "again")])
    assert len(family.records) == 1
    other = record.scenario.replaced(codec={"safety_margin": 0.5})
    with pytest.raises(QccfError, match="are both principle with seed 0, but differ in the options"):
        families([record, replace(record, scenario=other)])


def test_runs_on_other_data_or_in_other_precision_are_no_pairs() -> None:
    record = made_record("qccf", 0)
    for change in ({"data": "all of it"}, {"precision": "bf16"}):
        assert len(families([record, replace(record, summary=record.summary | change)])) == 2


def test_the_claims_are_a_table_of_numbers() -> None:
    records = [r for r in made_family(AS_CLAIMED, seeds=3).records if (r.policy, r.seed) != ("principle", 2)]
    report = build_report(records, [], Manifest())
    table = pd.read_csv(io.BytesIO(report.files["claims.csv"]))
    assert set(table["claim"]) == {one.claim.key for one in report.judged}
    row = table[(table["claim"] == "saves-principle") & (table["part"] == "β = 150")].iloc[0]
    assert (row["seeds"], row["unit"], row["figure"]) == (2, "%", "policies-emnist")
    assert row["low"] < row["mean"] == pytest.approx(48.2, abs=1.0)
    assert row["verdict"] == next(one.verdict for one in report.judged if one.claim.key == "saves-principle")
    assert {"principle", "same-size"} <= set(table[table["claim"] == "least-energy"]["against"])
    assert "(2 of 3 seeds)" in report.page
    assert 'download="claims.csv"' in report.page


@pytest.mark.slow
def test_what_is_not_settled_is_not_called_confirmed() -> None:
    one_seed = build_report(made_family(AS_CLAIMED, seeds=1).records, [], Manifest())
    assert (one_seed.judged, "claims.csv" in one_seed.files) == ([], False)
    assert "do not judge the paper's claims: one seed gives no interval" in one_seed.page
    close = dict.fromkeys(AS_CLAIMED, AS_CLAIMED["qccf"])
    two_seeds = build_report(made_family(close, seeds=2).records, [], Manifest()).page
    assert "these runs neither show nor refute" in two_seeds


@pytest.mark.slow
def test_versions_are_those_of_the_runs() -> None:
    records = made_family(AS_CLAIMED, seeds=2).records
    mixed = [
        replace(r, summary=r.summary | {"version": "0.0.9", "packages": {"torch": "1.0"}} if r.seed else r.summary)
        for r in records
    ]
    page = build_report(mixed, [], Manifest()).page
    assert f"qccf ? ({len(records) // 2} runs); qccf 0.0.9, torch 1.0 ({len(records) // 2} runs)" in page


def test_families_on_the_same_data_have_different_titles() -> None:
    record = made_record("qccf", 0)
    groups = families([record, *with_settings([record], radio={"gain_db": 10.0})])
    assert [family.title for family in groups] == [
        "EMNIST with radio.gain_db = 0.0",
        "EMNIST with radio.gain_db = 10.0",
    ]
    assert families([record])[0].title == "EMNIST"


@pytest.mark.slow
def test_figures_are_numbered_only_where_their_names_would_be_the_same() -> None:
    record = made_record("qccf", 0)
    others = [{"data": {"dataset": "femnist"}}, {"radio": {"gain_db": 10.0}}]
    records = [record, *(changed for sections in others for changed in with_settings([record], **sections))]
    names = {chart.key for chart in build_report(records, [], Manifest()).charts if chart.key.startswith("policies")}
    assert names == {"policies-emnist", "policies-emnist-1", "policies-femnist"}


def test_notes_and_manifests_of_all_folders_come_together(tmp_path, monkeypatch) -> None:
    seen = []
    page = ReportPage("page", {}, [])
    monkeypatch.setattr(build, "build_report", lambda *parts: (seen.append(parts[3]), page)[1])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / NAME).write_text(NOTES)
    folders = [tmp_path / "a", tmp_path / "b"]
    notes = [folder / NAME for folder in folders]
    command.write_report(tmp_path / "page.html", command.Found(), Manifest(), notes=notes)
    assert seen == [NOTES]
    assert (tmp_path / "page.html").read_text() == "page"
    left_out, failed = (("cifar10", "not here"),), (("a run", "broke"),)
    first, second = Manifest("one", "smoke", left_out, (), 1), Manifest("two", "small", left_out, failed, 2)
    assert command._merge_manifests([first, second]) == Manifest("one\ntwo", "smoke", left_out, failed, 3)
    assert command._merge_manifests([]) == Manifest()


def test_what_comes_from_a_run_folder_is_shown_as_text_and_stays_in_its_folder(tmp_path) -> None:
    evil = "<script>alert(1)</script>/../../evil & <!--"
    runs = [
        replace(run, summary=run.summary | {"data": evil, "precision": evil, "version": evil}, folder=tmp_path / "<b>")
        for run in with_settings(made_family(AS_CLAIMED, seeds=2).records, data={"dataset": evil})
    ]
    notes = f"## least-energy, {evil}: refuted\n{evil}"
    manifest = Manifest(evil, "small", ((evil, evil),), ((evil, evil),))
    report = build_report(runs, made_studies(), manifest, notes, runs)
    assert report.page.count("<script") == 3, "only the page's own"
    assert "<b>" not in report.page
    assert "<!--" not in report.page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in report.page
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', report.page, re.DOTALL)[1])
    assert evil in next(chart for chart in charts if chart["key"].startswith("policies"))["title"]
    assert all(re.fullmatch(r"[\w+-]+\.(?:csv|svg|pdf)", name) for name in report.files), "no folder in a name"
    for text in re.findall(r' (?:id|href|download)="([^"]*)"', report.page):
        assert "script" not in text or text.startswith("data:") or re.fullmatch(r"#?[\w+.-]+", text), text


@pytest.mark.slow
def test_names_made_from_different_datasets_stay_different() -> None:
    record = made_record("qccf", 0)
    others = [changed for name in ("a b", "a/b", "..") for changed in with_settings([record], data={"dataset": name})]
    keys = [chart.key for chart in build_report([record, *others], [], Manifest()).charts]
    assert len(set(keys)) == len(keys)
    assert {"policies-a-b", "policies-a-b-1", "policies-data"} <= set(keys)
