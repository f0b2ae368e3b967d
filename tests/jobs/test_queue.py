"""The queue: no job runs twice, a failed job does not end the others, an interrupt loses no finished step."""

import ctypes
import os
from pathlib import Path

import pytest

from qccf.jobs.local import LocalEngine
from qccf.jobs.queue import QueueProgress, run_jobs
from tests.helpers.batch_jobs import CountingJob, MemoryJob, counting_job, large_blocks_come_from_the_pool


def steps_of(job: CountingJob) -> int:
    return len(list(job.folder.glob("step-*")))


@pytest.mark.parametrize("workers", [1, 2])
def test_every_job_runs_once_and_finished_ones_not_at_all(tmp_path: Path, workers: int) -> None:
    jobs = [counting_job(str(k), tmp_path) for k in range(5)]
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "finished").touch()
    seen = []
    progress = run_jobs(
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
def test_a_failed_job_is_reported_and_the_others_run(tmp_path: Path, workers: int) -> None:
    faults = ["", "sentence", "bug", "once"] + ["death"] * (workers > 1) + [""]
    jobs = [counting_job(str(k), tmp_path, fault=fault) for k, fault in enumerate(faults)]
    progress = run_jobs(jobs, LocalEngine(workers))
    assert progress.states == ["failed" if fault not in ("", "once") else "done" for fault in faults]
    assert progress.reasons[1] == "the cell is empty: add clients."
    assert progress.reasons[2].startswith("ZeroDivisionError: by zero")
    assert "ZeroDivisionError" in (jobs[2].folder / "failed.txt").read_text()
    tries = [len(list(job.folder.glob("try-*"))) for job in jobs]
    assert tries[:4] == [0, 1, 3, 2], "a user error is not retried, an unexpected error is retried twice"
    assert not (jobs[3].folder / "failed.txt").exists(), "the last attempt succeeded"
    assert set(progress.failures()) == ({1, 2} if workers == 1 else {1, 2, 4})
    if workers > 1:
        assert tries[4] == 3
        assert progress.reasons[4] == "its process died (exit status 9)."


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_per_job(tmp_path: Path, workers: int) -> None:
    jobs = [counting_job(str(k), tmp_path) for k in range(3)]
    assert run_jobs(jobs, LocalEngine(workers, process_per_job=True)).states == ["done"] * 3
    processes = {path.name for job in jobs for path in job.folder.glob("process-*")}
    assert len(processes) == 3
    assert f"process-{os.getpid()}" not in processes


@pytest.mark.parametrize("workers", [1, 2])
def test_after_an_interrupt_the_next_call_resumes(tmp_path: Path, workers: int) -> None:
    """Each job waits after its first step, so that the interrupt finds the workers in the middle of a job."""
    jobs = [counting_job(str(k), tmp_path, waits=workers > 1) for k in range(4)]

    def stop(progress: QueueProgress, _: int) -> None:
        if sum(steps == 1 for steps in progress.done_steps) == workers:
            raise KeyboardInterrupt

    progress = run_jobs(jobs, LocalEngine(workers), listener=stop)
    assert progress.interrupted
    assert progress.states == ["waiting"] * 4
    assert [steps_of(job) for job in jobs] == [1] * workers + [0] * (4 - workers)
    interrupted = [job for job in jobs if (job.folder / "interrupted").exists()]
    assert interrupted == jobs[:workers], "a worker must be interrupted, not only killed"
    (tmp_path / "continue").touch()
    again = run_jobs(jobs, LocalEngine(workers))
    assert again.states == ["done"] * 4
    assert [steps_of(job) for job in jobs] == [3] * 4


def test_the_remaining_time_is_estimated_from_the_steps_so_far(tmp_path: Path, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("qccf.jobs.queue.time.monotonic", lambda: now[0])
    jobs = [counting_job(str(k), tmp_path, steps=10) for k in range(3)]
    progress = QueueProgress(jobs, ["waiting"] * 3, [0] * 3, workers=2)
    assert progress.eta_s() is None
    progress._start(0)
    progress._step(0, 7)  # resumed: the time of these steps is unknown
    assert progress.eta_s() is None
    now[0] = 2.0
    progress._step(0, 8)
    assert progress.eta_s() == pytest.approx((2 + 10 + 10) * 2.0 / 2)
    progress._end(0, "done")
    assert progress.eta_s() == pytest.approx((10 + 10) * 2.0 / 2)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="only glibc has this setting")
def test_workers_keep_freed_memory_and_this_process_is_not_changed(tmp_path: Path) -> None:
    here = large_blocks_come_from_the_pool()
    found = {}
    for name, engine in (
        ("here", LocalEngine(1)),
        ("workers", LocalEngine(2)),
        ("measured", LocalEngine(1, process_per_job=True)),
    ):
        job = MemoryJob(label=name, folder=tmp_path / name, steps=1, step_kind="memory")
        assert run_jobs([job], engine).states == ["done"]
        found[name] = (job.folder / job.result).read_text()
    assert found == {"here": "pool" if here else "system", "workers": "pool", "measured": "system"}
    assert large_blocks_come_from_the_pool() == here
