"""The Ray engine on a stand-in for Ray; `test_ray_sweep.py` uses a real cluster."""

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qccf._version import __version__
from qccf.core.errors import QccfError
from qccf.jobs import ray_cluster as cluster
from qccf.jobs.archive import pack
from qccf.jobs.queue import JobQueue, QueueProgress, run_jobs
from tests.helpers.batch_jobs import counting_job


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class StandIn:
    """Runs a task when its result is asked for. `spoil` may change what a task returns, or raise."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, cores=(2.0,), spoil=lambda _, result: result) -> None:
        self.cores = cores
        self.spoil = spoil
        self.calls = 0
        self.most_at_once = 0

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": count}} for count in self.cores] + [
            {"Alive": False, "Resources": {"CPU": 64.0}}
        ]

    def remote(self, **_):
        def make(target):
            if isinstance(target, type):
                return SimpleNamespace(remote=lambda: actor(target()))
            task = SimpleNamespace(remote=lambda *arguments: lambda: target(*arguments))
            task.options = lambda **_: task
            return task

        return make

    def wait(self, references, timeout):
        self.most_at_once = max(self.most_at_once, len(references))
        return references[:1], references[1:]

    def get(self, reference, timeout=None):
        result = reference()
        if not isinstance(result, tuple):
            return result
        self.calls += 1
        return self.spoil(self.calls, result)


def actor(one):
    return SimpleNamespace(post=SimpleNamespace(remote=one.post), collect=SimpleNamespace(remote=lambda: one.collect))


def run(ray: StandIn, jobs, limit=None, listener=lambda _, __: None) -> QueueProgress:
    engine = SimpleNamespace(run=lambda queue: cluster._Dispatcher(ray, queue, limit).run())
    return run_jobs(jobs, engine, listener=listener)


def test_the_results_of_a_node_are_sent_back(tmp_path: Path) -> None:
    jobs = [counting_job(str(k), tmp_path) for k in range(5)]
    ray = StandIn(cores=(2.0, 1.0))
    assert run(ray, jobs).states == ["done"] * 5
    assert [len(list(job.folder.glob("step-*"))) for job in jobs] == [3] * 5
    assert ray.most_at_once == 3, "as many as there are cores on nodes that are alive"
    assert sorted(path.name for path in tmp_path.iterdir()) == list("01234")


def test_a_limit_holds(tmp_path: Path) -> None:
    ray = StandIn(cores=(8.0,))
    run(ray, [counting_job(str(k), tmp_path) for k in range(5)], limit=2)
    assert ray.most_at_once == 2


@pytest.mark.parametrize("how", ["lost", "damaged", "unfinished"])
def test_a_result_that_does_not_arrive_is_retried(tmp_path: Path, how: str) -> None:
    reasons: list[str] = []

    def spoil(call: int, result):
        if call != 1:
            return result
        if how == "lost":
            raise RayError
        return None, (result[1][:-9] if how == "damaged" else pack(tmp_path / "nothing"))

    def listener(progress: QueueProgress, index: int) -> None:
        if progress.states[index] == "waiting":
            reasons.append(progress.reasons[index])

    jobs = [counting_job(str(k), tmp_path) for k in range(2)]
    assert run(StandIn(spoil=spoil), jobs, listener=listener).states == ["done"] * 2
    expected = {
        "lost": cluster.LOST,
        "damaged": "the node returned a damaged archive.",
        "unfinished": "the node returned an unfinished run.",
    }
    assert reasons == [expected[how]]


def test_the_error_of_a_job_and_its_traceback_are_sent_back(tmp_path: Path) -> None:
    jobs = [counting_job("0", tmp_path, fault="bug"), counting_job("1", tmp_path, fault="sentence")]
    progress = run(StandIn(), jobs)
    assert progress.failures()[0].startswith("ZeroDivisionError: by zero")
    assert "ZeroDivisionError" in (tmp_path / "0" / "failed.txt").read_text()
    assert progress.failures()[1] == "the cell is empty: add clients."
    assert [len(list(job.folder.glob("try-*"))) for job in jobs] == [3, 1]


def test_messages_of_an_earlier_attempt_are_ignored(tmp_path: Path) -> None:
    ray = StandIn()
    progress = QueueProgress([counting_job("0", tmp_path)], ["waiting"], [0])
    queue = JobQueue(progress, lambda _, __: None, 0)
    dispatcher = cluster._Dispatcher(ray, queue, None)
    dispatcher._send_jobs()
    (attempt,) = dispatcher._attempts.values()
    dispatcher._actor.post.remote(attempt.number - 1, 3, b"no archive")
    dispatcher._read_messages()
    assert progress.done_steps == [0]
    (tmp_path / "reached").mkdir()
    (tmp_path / "reached" / "step-0").touch()
    dispatcher._actor.post.remote(attempt.number, 1, pack(tmp_path / "reached"))
    dispatcher._read_messages()
    assert progress.done_steps == [1]
    assert [path.name for path in attempt.job.folder.iterdir()] == ["step-0"]


def test_a_node_sends_its_state_while_the_job_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cluster, "SAVE_EVERY_S", 0.0)
    box = cluster._ProgressActor()
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "step-0").touch()
    job = counting_job("0", tmp_path, steps=3)
    failure, left = cluster._run_on_node(__version__, [], pickle.dumps(job), pack(tmp_path / "before"), actor(box), 7)
    assert failure is None
    assert left
    messages = box.collect()
    assert [(number, steps) for number, steps, _ in messages] == [(7, 2), (7, 3)], "it resumed after the first step"
    assert all(saved for _, _, saved in messages)
    assert box.collect() == []
    assert not job.folder.exists(), "a node leaves nothing in the command's folder"


def test_another_version_on_a_node_is_named() -> None:
    failure, left = cluster._run_on_node("0.0", [], b"", b"", None, 0)
    assert failure is not None
    assert failure.final
    assert failure.reason == f"this node has qccf {__version__}, the command 0.0: install the same."
    assert left == b""


def test_a_job_that_fits_no_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QccfError, match=r"needs 4 cores .* largest node of the cluster has 2: lower"):
        run(StandIn(cores=(2.0, 2.0)), [counting_job("0", tmp_path, cores=4)])


def test_when_the_only_node_with_room_is_lost_finished_jobs_stay(tmp_path: Path) -> None:
    ray = StandIn(cores=(4.0,))

    def shrink(_: int, result):
        ray.cores = (2.0,)
        return result

    ray.spoil = shrink
    progress = run(ray, [counting_job(str(k), tmp_path, cores=4) for k in range(3)])
    assert progress.states == ["done", "failed", "failed"]
    assert "the largest node of the cluster has 2" in progress.failures()[2]


def test_an_error_without_text_is_named(tmp_path: Path) -> None:
    def spoil(_: int, __):
        error = RayTaskError()
        error.cause = MemoryError()
        raise error

    progress = run(StandIn(spoil=spoil), [counting_job("0", tmp_path)])
    assert progress.failures()[0] == "MemoryError: "
