"""Studies without training: what they change, and that an interrupted one resumes."""

import json
from pathlib import Path

import pytest

from qccf.paper import studies
from qccf.paper.studies import SavingsStudy, SolverStudy, study_jobs


@pytest.mark.parametrize(("kind", "runs_a_cell"), [(SolverStudy, 4), (SavingsStudy, 3)])
def test_an_interrupted_study_goes_on_with_its_next_cell(kind, runs_a_cell, tmp_path: Path, monkeypatch) -> None:
    job = next(job for job in study_jobs(3, 2, tmp_path, brief=True) if isinstance(job, kind))
    seen: list[int] = []

    def counted(*arguments, original=studies.plan_run):
        seen.append(1)
        return original(*arguments)

    def stop_after_two(cells: int) -> None:
        if cells == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(studies, "plan_run", counted)
    job.run(tmp_path / "whole", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        job.run(tmp_path / "stopped", stop_after_two)
    assert not (tmp_path / "stopped" / studies.RESULT).exists()
    seen.clear()
    told: list[int] = []
    job.run(tmp_path / "stopped", told.append)
    assert len(seen) == runs_a_cell
    assert told == [3]
    assert (tmp_path / "stopped" / studies.RESULT).read_text() == (tmp_path / "whole" / studies.RESULT).read_text()
    assert [path.name for path in (tmp_path / "stopped").iterdir()] == [studies.RESULT]


def test_studies_change_one_thing_and_are_paired(tmp_path: Path) -> None:
    jobs = [job for job in study_jobs(20, 100, tmp_path, brief=False) if isinstance(job, SavingsStudy)]
    assert all(job.steps >= 20 for job in jobs)
    assert {job.factor for job in jobs} >= {"bandwidth", "channel gain", "ε2", "λ2⁰ - ε2", "L"}
    base = next(job for job in jobs if job.factor == "bandwidth" and job.value == 10e6).scenario
    for job in jobs:
        differing = [
            f"{section}.{key}"
            for section, values in job.scenario.model_dump().items()
            for key, value in values.items()
            if base.model_dump()[section][key] != value
        ]
        assert len(differing) <= 1, (job.label, differing)
    assert len({job.folder for job in jobs}) == len(jobs)
    assert sum(isinstance(job, SolverStudy) for job in study_jobs(20, 100, tmp_path, brief=False)) == 4


def test_who_pays_for_a_missed_deadline(tmp_path: Path) -> None:
    """Nobody pays less than the client; to the end it pays more; only then does every upload count."""
    results = {}
    for job in study_jobs(2, 12, tmp_path, brief=True):
        if isinstance(job, SavingsStudy) and job.factor.startswith("who pays"):
            job.run(job.folder, lambda _: None)
            assert job.is_finished()
            results[job.value] = json.loads((job.folder / "study.json").read_text())
    spent = {value: sum(study["energy_j"]["principle"]) for value, study in results.items()}
    assert spent["nobody"] < spent["client"] < spent["late"]
    assert results["nobody"]["missed"]["principle"] == [0.0, 0.0]
    assert min(results["client"]["missed"]["principle"]) > 0
    assert len({tuple(study["energy_j"]["qccf"]) for study in results.values()}) == 1
