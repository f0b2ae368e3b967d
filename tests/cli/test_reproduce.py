"""`qccf reproduce` and `qccf report` as a user meets them, on a federation of milliseconds."""

import base64
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from qccf.cli.main import main
from qccf.cli.report import Found, manifest_of
from qccf.jobs.training import TrainingJob
from qccf.learning.datasets import DATASETS
from qccf.paper.claims import CLAIMS
from qccf.paper.studies import SavingsStudy, study_jobs
from qccf.reports.page.opening import Manifest
from tests.helpers.batch_jobs import interrupt_third_run
from tests.helpers.tiny import SETTINGS, TinySource, tiny_arguments

TINY = [s for s in SETTINGS if not s.startswith(("data.dataset_size_std", "federation.rounds", "codec"))]
TINY.append("learning.learning_rate=0.1")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch, tmp_path: Path) -> None:
    prepare(monkeypatch, tmp_path)


def prepare(monkeypatch, folder: Path) -> None:
    monkeypatch.setitem(DATASETS, "tiny", TinySource)
    monkeypatch.setenv("QCCF_DATA", str(folder / "data"))
    monkeypatch.setattr("qccf.paper.studies.study_jobs", few_studies)
    monkeypatch.setattr("qccf.paper.experiments.FACTORS", ())  # the tiny federation overrides some of them


def few_studies(_seeds: int, _rounds: int, studies: Path, **_):
    """One of the solvers and one value of each factor: enough for the figures to exist."""
    jobs = study_jobs(2, 3, studies, brief=True)
    first = {}
    for job in jobs:
        first.setdefault(job.factor if isinstance(job, SavingsStudy) else "solvers", job)
    return list(first.values())


def command(out: Path, *more: str) -> list[str]:
    settings = [part for value in (*TINY, "data.dataset=tiny") for part in ("--set", value)]
    return ["reproduce", "--scale", "smoke", "--out", str(out), *settings, *more]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("reproduced")
    with pytest.MonkeyPatch.context() as monkeypatch:
        prepare(monkeypatch, out)
        assert main(command(out / "all")) == 0
    return out / "all"


class Page(HTMLParser):
    """What a page consists of; complains about tags that do not match."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.downloads: dict[str, str] = {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        values = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.downloads.update({values["download"]: values["href"]} if "download" in values else {})
            self.links.append(values["href"])
        self.loads += [values[key] for key in ("src", "srcset", "data") if key in values]
        if tag == "link":
            self.loads.append(values["href"])

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"


@pytest.mark.slow
def test_the_page_is_whole_and_needs_nothing_else(reproduced: Path) -> None:
    text = (reproduced / "report.html").read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        assert link.startswith(("#", "data:")), link
        assert not link.startswith("#") or link[1:] in page.ids, f"{link} leads nowhere"
    assert set(page.loads) == {"data:,"}
    assert not re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org/2000/svg)", text)
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1])
    keys = [chart["key"] for chart in charts]
    assert {key.partition("-")[0] for key in keys} >= {
        "weights",
        "policies",
        "efficiency",
        "bits",
        "solvers",
        "savings",
    }
    assert set(keys) <= set(page.ids)
    for key in keys:
        files = {
            kind: base64.b64decode(page.downloads[f"{key}.{kind}"].partition(",")[2]) for kind in ("svg", "pdf", "csv")
        }
        assert files["pdf"].startswith(b"%PDF")
        assert b"<svg" in files["svg"][:1000]
        assert files["csv"].startswith(b"panel,series,x,y,low,high\n")
        for kind, data in files.items():
            assert (reproduced / "figures" / f"{key}.{kind}").read_bytes() == data


@pytest.mark.slow
def test_the_page_says_what_was_done(reproduced: Path) -> None:
    text = (reproduced / "report.html").read_text()
    assert text.count(' id="claim-') == len(CLAIMS), "as a line of the forest plot, or listed as without a number"
    for claim in CLAIMS:
        assert claim.words in text
    assert "blurred blobs made for a test" in text
    assert "This is a smoke test" in text
    assert "Task cifar10 was not run: cifar10 is not here; get it with: qccf data fetch cifar10." in text
    assert "qccf reproduce all --scale smoke --tasks femnist,cifar10" in text
    assert "no client can ever upload within device.deadline_s = 0.02" in text, "what the literal table would do"
    assert all(f'<td data-head="key">E{k}</td>' in text for k in range(1, 11))
    assert "torch" in text
    assert str(reproduced.parent) not in text, "the page must not name a machine's folders"


@pytest.mark.slow
@pytest.mark.drawn
def test_the_report_of_the_folder_is_that_of_the_command(reproduced: Path, tmp_path: Path) -> None:
    """Runs with a setting changed are no experiment of the paper, so the page has one table of claims."""
    assert len(json.loads((reproduced / "reproduction.json").read_text())["varied"]) == 3
    assert main(["report", str(reproduced), "--out", str(tmp_path / "again.html")]) == 0
    page = (tmp_path / "again.html").read_bytes()
    assert page == (reproduced / "report.html").read_bytes()
    assert page.count(b'<table class="claims') == 1


@pytest.mark.slow
def test_curves_are_means_with_intervals_over_seeds(reproduced: Path) -> None:
    import pandas as pd

    from qccf.core.intervals import estimate

    charts = json.loads(
        re.search(r'id="charts">(.*?)</script>', (reproduced / "report.html").read_text(), re.DOTALL)[1]
    )
    energy = next(c for c in charts if c["key"].startswith("policies"))["panels"][1]
    series = next(s for s in energy["series"] if s["name"] == "same-size")
    folders = [f for f in (reproduced / "runs").iterdir() if "same-size" in f.name]
    beta = min(_beta(folder) for folder in folders)
    totals = [
        pd.read_parquet(f / "rounds.parquet")["cumulative_energy_j"].iloc[-1] for f in folders if _beta(f) == beta
    ]
    e = estimate(totals)
    assert len(totals) == 2
    assert series["y"][-1] == pytest.approx(e.mean, rel=1e-5)
    assert series["high"] == [], "two seeds have no interval"
    assert series["x"] == [1, 2, 3]


def _beta(folder: Path) -> float:
    return float(re.search(r"dataset_size_std = ([\d.]+)", (folder / "scenario.toml").read_text())[1])


@pytest.fixture
def reports(monkeypatch) -> list[tuple[Found, Manifest]]:
    """What the report of each command is made from; the page itself, which takes seconds, is not made."""
    made: list[tuple[Found, Manifest]] = []
    monkeypatch.setattr(
        "qccf.cli.reproduce.write_report", lambda _out, found, manifest, **_: made.append((found, manifest))
    )
    monkeypatch.setattr("qccf.cli.reproduce.print_verdicts", lambda *_: None)
    return made


def test_the_same_command_runs_nothing_again_and_a_changed_one_only_what_changed(
    tmp_path: Path, monkeypatch, reports
) -> None:
    ran: list[str] = []
    run = TrainingJob.run
    monkeypatch.setattr(TrainingJob, "run", lambda job, *rest: (ran.append(job.label), run(job, *rest))[1])
    assert main(command(tmp_path, "fig2")) == 0
    assert len(ran) == 6
    assert main(command(tmp_path, "fig2")) == 0
    assert len(ran) == 6
    assert main(command(tmp_path, "fig3")) == 0
    assert len(ran) == 6 + 20 - 2, "the two runs that the figures share are there already"
    assert main(command(tmp_path, "fig2", "--set", "radio.gain_db=3.0")) == 0
    assert len(ran) == 6 + 18 + 6
    assert [len(found.runs) for found, _ in reports] == [6, 6, 20, 6], "a report is of its own plan"


def test_the_plan_is_written_before_it_is_run(tmp_path: Path, monkeypatch) -> None:
    """Who kills the command, or looks while it runs, gets a report of this plan."""
    monkeypatch.setattr("qccf.cli.queue_view.run_jobs", lambda *_, **__: sys.exit("killed"))
    with pytest.raises(SystemExit, match="killed"):
        main(command(tmp_path, "fig3"))
    tree = json.loads((tmp_path / "reproduction.json").read_text())
    assert (len(tree["runs"]), tree["failed"]) == (20, [])
    assert manifest_of(tree, tmp_path).unfinished == 20
    assert tree["not_run"] == [], "this figure does not need the second task"


def test_an_interrupt_keeps_the_finished_runs(tmp_path: Path, monkeypatch, capsys, reports) -> None:
    calls = interrupt_third_run(TrainingJob, monkeypatch)
    assert main(command(tmp_path, "fig2")) == 130
    assert "Stopped: 2 done, 0 running, 4 left" in capsys.readouterr().out
    ((found, manifest),) = reports
    assert (len(found.runs), manifest.unfinished) == (2, 4)
    assert main(command(tmp_path, "fig2")) == 0
    assert len(calls) == 7


def test_a_failed_run_is_named_and_the_others_are_reported(tmp_path: Path, monkeypatch, capsys, reports) -> None:
    run = TrainingJob.run

    def one_fails(job, *rest):
        if job.scenario.federation.seed == 1 and job.scenario.control.paper.energy_weight == 10.0:
            raise RuntimeError("memory ran out")
        run(job, *rest)

    monkeypatch.setattr(TrainingJob, "run", one_fails)
    assert main(command(tmp_path, "fig2")) == 1
    shown = capsys.readouterr().out
    assert "failed: RuntimeError: memory ran out" in shown
    assert "5 done, 0 running, 0 left, 1 failed" in shown
    ((found, manifest),) = reports
    assert (len(found.runs), manifest.unfinished) == (5, 0)
    ((label, reason),) = manifest.failed
    assert label == "tiny, qccf, codec model, β 1.5, V 10, seed 1"
    assert reason.startswith("RuntimeError: memory ran out")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--jobs", "0"], "--jobs 0 is out of range"),
        (["--tasks", "femnist,imagenet"], "task 'imagenet' does not exist: choose one of femnist, cifar10."),
        (["--tasks", "cifar10"], "get it with: qccf data fetch cifar10"),
        (["fig4", "--tasks", "femnist"], "fig4 cannot be run: none of these tasks is in it"),
        (["--set", "radio.bandwidth_hz=1e3"], "no client can ever upload"),
        (["--set", "radio.nonsense=1"], "radio.nonsense is not a setting"),
    ],
)
def test_mistakes_get_a_sentence_and_leave_no_folder(tmp_path: Path, capsys, arguments, sentence) -> None:
    out = tmp_path / "out"
    tiny = command(out) if "radio.bandwidth_hz=1e3" not in arguments else ["reproduce", "--out", str(out)]
    assert main([*tiny, *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.slow
def test_report_takes_a_users_own_runs(tmp_path: Path, capsys) -> None:
    assert (
        main(["compare", "femnist", *tiny_arguments(), "--policy", "qccf,same-size", "--out", str(tmp_path / "mine")])
        == 0
    )
    assert main(["report", str(tmp_path / "mine"), "--out", str(tmp_path / "page" / "mine.html")]) == 0
    text = (tmp_path / "page" / "mine.html").read_text()
    page = Page(text)
    assert "2 training runs on tiny (synthetic data): " in text
    assert "8 rounds, 1 seed, policies qccf and same-size" in text
    assert "tiny (synthetic), β = 12, " in text
    assert "policies-tiny" in page.ids
    assert all(link[1:] in page.ids for link in page.links if link.startswith("#")), "no link leads nowhere"
    assert "savings" not in page.ids
    assert "These runs do not judge the paper's claims: they use the controller's default form" in text.replace(
        "&#39;", "'"
    )
    shown = capsys.readouterr().out
    assert "2 training runs on tiny" in shown
    assert "not measurable" not in shown
    assert "Written: " in shown


def test_report_of_nothing_or_of_something_broken(tmp_path: Path, capsys) -> None:
    assert main(["report", str(tmp_path / "absent")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert "no training run here has written a summary yet" in capsys.readouterr().err
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}")
    (tmp_path / "run" / "rounds.parquet").write_text("no parquet")
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no complete run" in capsys.readouterr().err
    (tmp_path / "reproduction.json").write_text("[]")
    assert main(["report", str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.slow
def test_the_solver_study_finds_no_gap_below_zero(reproduced: Path) -> None:
    study = next(json.loads(p.read_text()) for p in (reproduced / "studies").rglob("study.json") if "solvers" in str(p))
    assert study["study"] == "solvers"
    for name, gaps in study["gap_j"].items():
        assert all(gap >= -1e-9 for gap in gaps), f"{name} cannot beat the exact solver on the same round"
    assert len(study["energy_j"]["exact"]) == 2
