"""The claims as a forest plot: its numbers are those of the claims, and it is absent where nothing can be judged."""

import html
import re
from dataclasses import replace

import pytest
from markupsafe import escape

from qccf.core.intervals import estimate
from qccf.paper.claims import CAUSES, CLAIMS, judge
from qccf.paper.families import Family, families
from qccf.reports.page.build import build_report
from qccf.reports.page.claims import claims_section
from qccf.reports.page.forest import Axis, forest
from qccf.reports.page.opening import Manifest
from tests.helpers.made_runs import AS_CLAIMED, REVERSED, made_family, made_record


@pytest.fixture(scope="module")
def family() -> Family:
    return made_family(AS_CLAIMED, seeds=3)


def value_at(axis: Axis, percent: float, scale: float) -> float:
    """The number that is drawn at a place, from the ticks."""
    (a, first), *_, (b, last) = axis.ticks
    low, high = (float(text.removesuffix(" %").replace("−", "-")) for text in (first, last))
    return (low + (percent - a) / (b - a) * (high - low)) / scale


@pytest.mark.parametrize("world", [AS_CLAIMED, REVERSED])
def test_every_line_is_drawn_at_the_numbers_of_its_claim(world: dict) -> None:
    judged = judge(made_family(world, reverse=world is REVERSED, seeds=3))
    axes = forest(judged)
    drawn = {row.judged.claim.key for axis in axes for row in axis.rows}
    assert drawn == {one.claim.key for one in judged}
    for axis in axes:
        for row in axis.rows:
            for line in (row.deciding, *row.lines):
                e, scale = line.measure.estimate, line.measure.quantity.scale
                assert any(line.measure in finding.measures for finding in row.judged.findings)
                tolerance = 2e-4 * (value_at(axis, 100, scale) - value_at(axis, 0, scale))
                assert value_at(axis, line.at, scale) == pytest.approx(e.mean, abs=tolerance)
                assert line.cut_low or value_at(axis, line.low, scale) == pytest.approx(e.low, abs=tolerance)
                assert line.cut_high or value_at(axis, line.high, scale) == pytest.approx(e.high, abs=tolerance)
                assert 0 <= line.low <= line.at <= line.high <= 100
            if row.judged.claim.papers_value is not None:
                assert value_at(axis, row.papers_at, 100) == pytest.approx(row.judged.claim.papers_value, abs=1e-3)
    marked = {row.judged.claim.key for axis in axes for row in axis.rows if row.papers_at is not None}
    assert marked == {"saves-principle", "saves-same-size"}


def test_numbers_that_are_all_zero_are_drawn_at_zero(family: Family) -> None:
    nothing = [
        replace(one, findings=[
            replace(finding, measures=[replace(measure, estimate=estimate([0.0] * 3)) for measure in finding.measures])
            for finding in one.findings
        ])
        for one in judge(family)
    ]  # fmt: skip
    axes = forest(nothing)
    assert len(axes) >= 4
    for axis in axes:
        assert len(axis.ticks) > 2
        zero = next(at for at, label in axis.ticks if label.removesuffix(" %") == "0")
        for row in axis.rows:
            assert row.deciding.low == row.deciding.at == row.deciding.high == zero


def test_the_line_shown_is_the_worst_number_of_the_claim(family: Family) -> None:
    cheap = AS_CLAIMED | {"principle": AS_CLAIMED["principle"] | {"energy": 0.5}}
    (energy, *_) = forest(judge(made_family(cheap, seeds=3)))
    row = next(row for row in energy.rows if row.judged.claim.key == "least-energy")
    assert (row.deciding.measure.against, row.deciding.answer) == ("principle", "refuted")
    (energy, *_) = forest(judge(family))
    row = next(row for row in energy.rows if row.judged.claim.key == "least-energy")
    assert (row.deciding.measure.against, row.deciding.answer) == ("same-size", "holds"), "the smallest lead"


def test_the_page_shows_each_line_with_its_verdict(family: Family) -> None:
    report = build_report(family.records, [], Manifest())
    rows = re.findall(r'<tr id="claim-([\w-]+)-emnist">(.*?)</tr>', report.page, re.DOTALL)
    assert {key for key, _ in rows} == {one.claim.key for one in report.judged}
    judged = {one.claim.key: one for one in report.judged}
    for key, row in rows:
        assert row.count("<td>") == 3
        assert f"</span> {judged[key].verdict}</span>" in row
        assert f'<p class="where">{escape(judged[key].why)}</p>' in row
        assert f", n = {judged[key].deciding()[1].estimate.count}</summary>" in row
        assert f"rests on: {CAUSES[judged[key].claim.cause].lower()}" in html.unescape(row)
    causes = report.page[report.page.index("causes-table") : report.page.index("Claims in one row")]
    assert all(f'href="#claim-{claim.key}-emnist"' in causes for claim in CLAIMS), "every claim is in one group"
    assert (
        report.page.index('id="overview-section"')
        < report.page.index('id="figures"')
        < report.page.index('id="claims"')
    )


def silence(family: Family, *, reproduced: bool = False) -> str:
    return claims_section(family, "", reproduced=reproduced).silence


def test_runs_that_cannot_speak_of_the_paper_say_why(family: Family) -> None:
    def changed(**sections: dict) -> Family:
        runs = [replace(run, scenario=run.scenario.replaced(**sections)) for run in family.records]
        return replace(family, records=tuple(runs))

    assert silence(family) == ""
    assert silence(changed(radio={"gain_db": 10.0})) == "", "the paper states no gain"
    assert "the controller's default form" in silence(changed(control={"form": "scale-free"}))
    assert "no run uses the paper's codec" in silence(changed(codec={"name": "update"}))
    other = changed(federation={"num_clients": 20})
    assert silence(other) == "their settings are not the paper's (federation.num_clients = 20)"
    assert silence(other, reproduced=True) == "", "the user asked for the paper's experiments with this setting"
    (alone,) = families([made_record("no-quantization", seed) for seed in (0, 1)])
    assert silence(alone) == "no two of these runs are a pair that a claim compares"


def test_without_claims_there_is_one_line_and_no_section() -> None:
    runs = [made_record("no-quantization", seed) for seed in (0, 1)]
    report = build_report(runs, [], Manifest())
    assert report.judged == []
    assert report.page.count("do not judge the paper's claims: no two of these runs") == 1
    assert 'id="claims"' not in report.page
    assert 'href="#claims"' not in report.page
    assert "claims.csv" not in report.files


def test_a_pair_that_a_claim_compares_is_enough() -> None:
    runs = [made_record(p, s, **AS_CLAIMED[p]) for p in ("qccf", "same-size") for s in range(3)]
    report = build_report(runs, [], Manifest())
    assert '<tr id="claim-saves-same-size-emnist">' in report.page
    assert '<tr id="claim-weights-emnist">' not in report.page
    assert re.search(r"\d claims without a number here", report.page)
