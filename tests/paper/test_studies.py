"""Studies of decisions alone: what an interruption costs."""

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
