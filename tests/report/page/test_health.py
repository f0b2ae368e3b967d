"""The report says what was wrong with the decisions of its runs, and nothing where all is well."""

from dataclasses import replace

from qccf.report.page.build import Manifest, build_report
from qccf.rounds.run import Run
from tests.helpers.made_runs import made_record

EMPTY = {"kind": "empty-rounds", "message": "3 rounds were <empty>: act."}


def page(runs: list[Run]) -> str:
    return build_report(runs, [], Manifest()).page


def with_summary(run: Run, **more) -> Run:
    return replace(run, summary=run.summary | more)


def test_findings_have_a_section_with_one_sentence_per_policy_and_kind() -> None:
    runs = [made_record(policy, seed) for policy in ("qccf", "principle") for seed in (0, 1)]
    found = [with_summary(run, health=[EMPTY] if run.policy == "qccf" else []) for run in runs]
    text = page(found)
    assert '<a href="#health">Health</a>' in text
    section = text[text.index('<h2 id="health">') : text.index('<h2 id="figures">')]
    assert section.count("<li>") == 1
    assert "<li>qccf, seed 0: 3 rounds were &lt;empty&gt;: act. Also in 1 other run.</li>" in section
    assert "<h3>EMNIST, β = 150" in section


def test_without_findings_there_is_no_section() -> None:
    for run in (made_record("qccf", 0), with_summary(made_record("qccf", 0), health=[])):
        assert "health" not in page([run]).lower()


def test_results_show_how_clients_and_budget_were_served() -> None:
    runs = [made_record("qccf", seed) for seed in (0, 1)]
    served = [
        with_summary(run, empty_rounds=2 + run.seed, jain=0.5, error_ratio=None if run.seed else 0.9) for run in runs
    ]
    text = page(served)
    for head, value in (("empty rounds", "2.5"), ("Jain&#39;s index", "0.5"), ("error / budget", "0.9")):
        assert f'data-head="{head}">{value}</td>' in text
    assert 'data-head="error / budget">–</td>' in page(runs), "runs of older versions"
