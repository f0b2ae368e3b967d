"""What the page says about made-up runs: causes, what was left out, what is not the paper's, and trained savings."""

import json
import re
from dataclasses import replace

import pytest

from qccf.commands import report as command
from qccf.report.diagnosis import NOTES as NAME
from qccf.report.page import Manifest, Report, build_report
from qccf.report.records import families
from qccf.report.study_charts import trained_rows
from qccf.report.verdicts import RULES
from tests.made_runs import AS_CLAIMED, made_family, made_record, made_studies

CHEAP = AS_CLAIMED | {
    "principle": AS_CLAIMED["principle"] | {"energy": 0.8},
    "same-size": AS_CLAIMED["same-size"] | {"energy": 1.2},
}
NOTES = """# Causes

## least-energy, emnist: does not hold
**The claim.** Principle is made cheap
for this test.

## saves-principle, emnist: partly
An old story.
"""


@pytest.fixture(scope="module")
def text() -> str:
    records = list(made_family(CHEAP, seeds=3).records)
    cut = replace(records[0], rounds=records[0].rounds[:5], summary=records[0].summary | {"finished": False})
    few = [r for r in records if r.setting.energy_weight == 100.0]
    return build_report([*few, cut], made_studies(), Manifest(), NOTES).page


def test_a_cause_stands_where_it_was_written_for_and_warns_when_it_is_old(text: str) -> None:
    section = text[text.index('id="diagnosis"') : text.index('id="results"')]
    parts = re.split("<h3>", section)[1:]
    told = {re.sub("<[^>]+>", "", part).partition("\n")[0]: part for part in parts}
    least = told["EMNIST: QCCF spends the least energy over all rounds. ✗ does not hold"]
    assert "<p><strong>The claim.</strong> Principle is made cheap for this test.</p>" in least
    assert "check it again" not in least
    assert "β = 150, principle: energy -" in least
    old = told["EMNIST: QCCF takes 48.21 % less energy than principle. ✗ does not hold"]
    assert "Written when the verdict was “partly”; check it again." in old
    new = told["EMNIST: QCCF takes 35.42 % less energy than same-size. ≈ partly"]
    assert "Nobody has written down the cause yet." in new
    assert not any("fewest rounds" in head for head in told), "what holds needs no cause"


def test_an_unfinished_run_is_left_out_and_said(text: str) -> None:
    assert "Runs that have not come to their end: 1, left out." in text
    assert "30 training runs, 3 seeds" in text
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1])
    policies = next(chart for chart in charts if chart["key"] == "policies-emnist")
    assert len(policies["panels"][0]["series"][0]["x"]) == 40, "one short run must not shorten the others"


def test_rules_and_what_is_not_the_papers_are_on_the_page(text: str) -> None:
    assert all(rule in text.replace("&#x27;", "'") for rule in RULES.values())
    assert "energy ±5 %, accuracy ±1 points, rank correlation ±0.2, rounds ±1 rounds, bits ±0.5 bits" in text
    settings = text[text.index('id="settings"') :]
    rows = re.findall(r"<tr>(.*?)</tr>", settings)
    shown = [re.sub("<[^>]+>", "|", row).replace("||", "|") for row in rows]
    assert any(row.startswith("|bandwidth (MHz)|1|10|") for row in shown)
    assert any(row.startswith("|learning rate|not in its text|0.1|") for row in shown)
    assert not any(row.startswith("|samples a client") for row in shown), "1,200 is the paper's"


def test_training_stands_beside_the_studies(text: str) -> None:
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1])
    panels = next(chart for chart in charts if chart["key"] == "savings")["panels"]
    panel = next(panel for panel in panels if panel["title"] == "channel gain")
    trained = next(s for s in panel["series"] if s["name"] == "trained, against same-size")
    assert (trained["x"], trained["line"]) == ([0.0], False)
    family = made_family(CHEAP, seeds=3)
    (low, high) = (s for s in family.comparisons())
    pairs = family.paired((high, "same-size"), (high, "qccf"))
    saved = [1 - q.energy_j[-1] / b.energy_j[-1] for b, q in pairs]
    assert trained["y"][0] == pytest.approx(sum(saved) / 3, rel=1e-5)
    assert low.beta < high.beta
    assert "0 dB, trained" in text


def test_only_runs_that_differ_in_one_factor_are_points_of_it() -> None:
    family = made_family(AS_CLAIMED, seeds=2)

    def changed(**updates):
        return replace(
            family,
            records=tuple(
                replace(
                    r,
                    scenario=r.scenario.model_copy(
                        update={k: getattr(r.scenario, k).model_copy(update=v) for k, v in updates.items()}
                    ),
                )
                for r in family.records
            ),
        )

    assert {row.factor.name for row in trained_rows([family])} >= {"bandwidth", "channel gain", "L"}
    patience = next(row for row in trained_rows([family]) if row.factor.key == "principle.patience")
    assert patience.value == family.rounds // 10
    (row,) = trained_rows([changed(radio={"gain_db": 10.0})])
    assert (row.factor.name, row.value, row.trained) == ("channel gain", 10.0, True)
    assert trained_rows([changed(radio={"gain_db": 10.0}, learning={"smoothness": 0.05})]) == []
    assert trained_rows([made_family({"qccf": AS_CLAIMED["qccf"]}, seeds=2)]) == []

    varied = changed(radio={"gain_db": 10.0}).records
    cut = [replace(r, summary={**r.summary, "finished": False}) for r in changed(learning={"smoothness": 0.05}).records]
    page = build_report(family.records, made_studies(), Manifest(), "", [*varied, *cut]).page
    assert "10 dB, trained" in page
    assert "0.05, trained" not in page, "a run that has not ended"
    assert page.count('<table class="claims') == 1


def test_runs_on_the_same_data_are_told_apart() -> None:
    record = made_record("qccf", 0)
    other = record.scenario.model_copy(update={"radio": record.scenario.radio.model_copy(update={"gain_db": 10.0})})
    groups = families([record, replace(record, scenario=other)])
    assert [family.title for family in groups] == [
        "EMNIST with radio.gain_db = 0.0",
        "EMNIST with radio.gain_db = 10.0",
    ]
    assert families([record])[0].title == "EMNIST"


def test_notes_and_manifests_of_all_folders_come_together(tmp_path, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(command, "build_report", lambda *parts: (seen.append(parts[3]), Report("page", {}, []))[1])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / NAME).write_text(NOTES)
    folders = [tmp_path / "a", tmp_path / "b"]
    notes = [folder / NAME for folder in folders]
    command.write_report(tmp_path / "page.html", command.Found(), Manifest(), notes=notes)
    assert seen == [NOTES]
    assert (tmp_path / "page.html").read_text() == "page"
    left_out, failed = (("cifar10", "not here"),), (("a run", "broke"),)
    first, second = Manifest("one", "smoke", left_out, (), 1), Manifest("two", "small", left_out, failed, 2)
    assert command._together([first, second]) == Manifest("one\ntwo", "smoke", left_out, failed, 3)
    assert command._together([]) == Manifest()
