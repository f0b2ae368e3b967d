"""The report says what was wrong with the decisions of its runs, and nothing where all is well."""

from dataclasses import replace

from qccf.reports.page.build import build_report
from qccf.reports.page.opening import Manifest
from qccf.rounds.run import Run
from tests.helpers.made_runs import made_record

EMPTY = {"kind": "empty-rounds", "message": "3 rounds were <empty>: act."}


def page(runs: list[Run]) -> str:
    return build_report(runs, [], Manifest()).page


def with_summary(run: Run, **more) -> Run:
    return replace(run, summary=run.summary | more)


def test_findings_stand_at_the_top_one_line_per_policy_and_kind() -> None:
    runs = [made_record(policy, seed) for policy in ("qccf", "principle") for seed in (0, 1)]
    found = [with_summary(run, health=[EMPTY] if run.policy == "qccf" else []) for run in runs]
    text = page(found)
    section = text[text.index('id="health"') : text.index('id="overview"')]
    assert section.startswith('id="health">One thing needs attention.</p>')
    assert section.count("<li>") == 1
    assert "<li>qccf, seed 0: 3 rounds were &lt;empty&gt;: act. Also in 1 other run.</li>" in section


def test_more_than_three_findings_are_folded() -> None:
    kinds = [EMPTY | {"kind": f"kind-{k}"} for k in range(4)]
    shown, folded = (page([with_summary(made_record("qccf", 0), health=kinds[:count])]) for count in (3, 4))
    assert '<p class="lead" id="health">3 things need attention.</p>' in shown
    assert '<details class="lead" id="health"><summary>4 things need attention.</summary>' in folded


def test_without_findings_one_sentence_says_so() -> None:
    checked = page([with_summary(made_record("qccf", 0), health=[])])
    assert "All runs finished, and their health checks found nothing wrong." in checked
    older = page([made_record("qccf", 0)])
    assert "All runs finished." in older
    assert "health" not in older.lower(), "runs of older versions have no checks"


def test_results_show_how_clients_and_budget_were_served() -> None:
    runs = [made_record("qccf", seed) for seed in (0, 1)]
    served = [
        with_summary(run, empty_rounds=2 + run.seed, jain=0.5, error_ratio=None if run.seed else 0.9) for run in runs
    ]
    text = page(served)
    for head, value in (("empty rounds", "2.5"), ("Jain&#39;s index", "0.5"), ("error / budget", "0.9")):
        assert f'data-head="{head}">{value}</td>' in text
    assert 'data-head="error / budget">–</td>' in page(runs), "runs of older versions"
