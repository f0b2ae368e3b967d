"""The batch engine: nothing runs twice, nothing that fails takes others along, an interrupt loses nothing."""

import os
import time
from pathlib import Path

import pytest

from qccf.jobs.local import LocalEngine
from qccf.jobs.queue import Progress, run_batch
from tests.helpers.batch_jobs import CountingJob


def steps_of(job: CountingJob) -> int:
    return len(list(job.folder.glob("step-*")))


@pytest.mark.parametrize("workers", [1, 2])
def test_every_job_runs_once_and_finished_ones_not_at_all(tmp_path: Path, workers: int) -> None:
    jobs = [CountingJob(str(k), tmp_path) for k in range(5)]
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "finished").touch()
    seen = []
    progress = run_batch(
        jobs, LocalEngine(workers), listener=lambda p, k: seen.append((k, p.states[k], p.done_steps[k]))
    )
    assert progress.states == ["done"] * 5
    assert not progress.interrupted
    assert [steps_of(job) for job in jobs] == [3, 3, 0, 3, 3]
    assert 2 not in {k for k, _, _ in seen}
    for k in (0, 1, 3, 4):
        assert [(state, steps) for j, state, steps in seen if j == k] == [
            ("running", 0), ("running", 1), ("running", 2), ("running", 3), ("done", 3),
        ]  # fmt: skip
    processes = {path.name for job in jobs for path in job.folder.glob("process-*")}
    assert (f"process-{os.getpid()}" in processes) == (workers == 1)
    assert 1 <= len(processes) <= workers


@pytest.mark.parametrize("workers", [1, 2])
def test_what_fails_is_reported_and_the_rest_goes_on(tmp_path: Path, workers: int) -> None:
    faults = ["", "sentence", "bug", "once"] + ["death"] * (workers > 1) + [""]
    jobs = [CountingJob(str(k), tmp_path, fault=fault) for k, fault in enumerate(faults)]
    progress = run_batch(jobs, LocalEngine(workers))
    assert progress.states == ["failed" if fault not in ("", "once") else "done" for fault in faults]
    assert progress.sentences[1] == "the cell is empty: add clients."
    assert progress.sentences[2].startswith("ZeroDivisionError: by zero")
    assert "ZeroDivisionError" in (jobs[2].folder / "failed.txt").read_text()
    tries = [len(list(job.folder.glob("try-*"))) for job in jobs]
    assert tries[:4] == [0, 1, 3, 2], "a mistake is not repeated, what broke is tried twice more"
    assert not (jobs[3].folder / "failed.txt").exists(), "in the end it went well"
    assert set(progress.failures()) == ({1, 2} if workers == 1 else {1, 2, 4})
    if workers > 1:
        assert tries[4] == 3
        assert progress.sentences[4] == "its process died (exit status 9)."


@pytest.mark.parametrize("workers", [1, 2])
def test_fresh_jobs_have_a_process_each(tmp_path: Path, workers: int) -> None:
    jobs = [CountingJob(str(k), tmp_path) for k in range(3)]
    assert run_batch(jobs, LocalEngine(workers, fresh=True)).states == ["done"] * 3
    processes = {path.name for job in jobs for path in job.folder.glob("process-*")}
    assert len(processes) == 3
    assert f"process-{os.getpid()}" not in processes


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_ends_it_and_the_next_call_goes_on(tmp_path: Path, workers: int) -> None:
    jobs = [CountingJob(str(k), tmp_path, steps=40, pause_s=0.05) for k in range(4)]

    def stop(progress: Progress, index: int) -> None:
        if progress.done_steps[index] == 2:
            raise KeyboardInterrupt

    started = time.monotonic()
    progress = run_batch(jobs, LocalEngine(workers), listener=stop)
    assert progress.interrupted
    assert progress.states == ["waiting"] * 4
    assert time.monotonic() - started < 60
    reached = [steps_of(job) for job in jobs]
    assert 2 <= max(reached) < 40
    if workers > 1:
        assert any((job.folder / "interrupted").exists() for job in jobs), "a worker must be told, not only killed"
    again = run_batch(jobs, LocalEngine(workers))
    assert again.states == ["done"] * 4
    assert [steps_of(job) for job in jobs] == [40] * 4


def test_the_eta_is_what_is_left_at_the_pace_so_far(tmp_path: Path, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("qccf.jobs.queue.time.monotonic", lambda: now[0])
    jobs = [CountingJob(str(k), tmp_path, steps=10) for k in range(3)]
    progress = Progress(jobs, ["waiting"] * 3, [0] * 3, workers=2)
    assert progress.eta_s() is None
    progress._start(0)
    progress._step(0, 7)  # resumed: nothing is known of the time these took
    assert progress.eta_s() is None
    now[0] = 2.0
    progress._step(0, 8)
    assert progress.eta_s() == pytest.approx((2 + 10 + 10) * 2.0 / 2)
    progress._end(0, "done")
    assert progress.eta_s() == pytest.approx((10 + 10) * 2.0 / 2)
