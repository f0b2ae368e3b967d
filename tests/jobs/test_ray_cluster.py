"""The Ray engine's own rules, on a stand-in for Ray: `tests/cluster` shows them on a real one."""

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qccf._version import __version__
from qccf.core.errors import QccfError
from qccf.jobs import ray_cluster as cluster
from qccf.jobs.archive import pack
from qccf.jobs.queue import Desk, Progress, run_batch
from tests.helpers.batch_jobs import CountingJob


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


def run(ray: StandIn, jobs, limit=None, listener=lambda _, __: None) -> Progress:
    engine = SimpleNamespace(run=lambda desk: cluster._Dispatch(ray, desk, limit).run())
    return run_batch(jobs, engine, listener=listener)


def test_what_a_node_leaves_comes_home(tmp_path: Path) -> None:
    jobs = [CountingJob(str(k), tmp_path) for k in range(5)]
    ray = StandIn(cores=(2.0, 1.0))
    assert run(ray, jobs).states == ["done"] * 5
    assert [len(list(job.folder.glob("step-*"))) for job in jobs] == [3] * 5
    assert ray.most_at_once == 3, "as many as there are cores on nodes that are alive"
    assert sorted(path.name for path in tmp_path.iterdir()) == list("01234")


def test_a_limit_holds(tmp_path: Path) -> None:
    ray = StandIn(cores=(8.0,))
    run(ray, [CountingJob(str(k), tmp_path) for k in range(5)], limit=2)
    assert ray.most_at_once == 2


@pytest.mark.parametrize("how", ["lost", "damaged", "unfinished"])
def test_what_goes_wrong_on_the_way_is_tried_again(tmp_path: Path, how: str) -> None:
    told: list[str] = []

    def spoil(call: int, result):
        if call != 1:
            return result
        if how == "lost":
            raise RayError
        return None, (result[1][:-9] if how == "damaged" else pack(tmp_path / "nothing"))

    def listener(progress: Progress, index: int) -> None:
        if progress.states[index] == "waiting":
            told.append(progress.sentences[index])

    jobs = [CountingJob(str(k), tmp_path) for k in range(2)]
    assert run(StandIn(spoil=spoil), jobs, listener=listener).states == ["done"] * 2
    sentences = {
        "lost": cluster.LOST,
        "damaged": "what came back is damaged.",
        "unfinished": "what came back is not a finished run.",
    }
    assert told == [sentences[how]]


def test_a_fault_of_the_job_is_named_with_its_traceback_at_home(tmp_path: Path) -> None:
    jobs = [CountingJob("0", tmp_path, fault="bug"), CountingJob("1", tmp_path, fault="sentence")]
    progress = run(StandIn(), jobs)
    assert progress.failures()[0].startswith("ZeroDivisionError: by zero")
    assert "ZeroDivisionError" in (tmp_path / "0" / "failed.txt").read_text()
    assert progress.failures()[1] == "the cell is empty: add clients."
    assert [len(list(job.folder.glob("try-*"))) for job in jobs] == [3, 1]


def test_letters_of_an_earlier_try_are_not_read(tmp_path: Path) -> None:
    ray = StandIn()
    progress = Progress([CountingJob("0", tmp_path)], ["waiting"], [0])
    desk = Desk(progress, lambda _, __: None, 0)
    dispatch = cluster._Dispatch(ray, desk, None)
    dispatch._fill()
    (flight,) = dispatch._flying.values()
    dispatch._mailbox.post.remote(flight.ticket - 1, 3, b"no parcel")
    dispatch._read_mail()
    assert progress.done_steps == [0]
    (tmp_path / "reached").mkdir()
    (tmp_path / "reached" / "step-0").touch()
    dispatch._mailbox.post.remote(flight.ticket, 1, pack(tmp_path / "reached"))
    dispatch._read_mail()
    assert progress.done_steps == [1]
    assert [path.name for path in flight.job.folder.iterdir()] == ["step-0"]


def test_a_node_sends_home_what_it_has_reached(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cluster, "KEEP_S", 0.0)
    box = cluster._Mailbox()
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "step-0").touch()
    job = CountingJob("0", tmp_path, steps=3)
    failure, left = cluster._work(__version__, [], pickle.dumps(job), pack(tmp_path / "before"), actor(box), 7)
    assert failure is None
    assert left
    letters = box.collect()
    assert [(ticket, steps) for ticket, steps, _ in letters] == [(7, 2), (7, 3)], "it went on after the first step"
    assert all(reached for _, _, reached in letters)
    assert box.collect() == []
    assert not job.folder.exists(), "a node leaves nothing in the command's folder"


def test_another_version_on_a_node_is_named() -> None:
    failure, left = cluster._work("0.0", [], b"", b"", None, 0)
    assert failure is not None
    assert failure.final
    assert failure.sentence == f"this node has qccf {__version__}, the command 0.0: install the same."
    assert left == b""


def test_a_job_that_fits_no_node_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(CountingJob, "cores", 4)
    with pytest.raises(QccfError, match=r"takes 4 cores .* largest node of the cluster has 2: lower"):
        run(StandIn(cores=(2.0, 2.0)), [CountingJob("0", tmp_path)])


def test_when_the_only_node_with_room_goes_the_rest_is_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(CountingJob, "cores", 4)
    ray = StandIn(cores=(4.0,))

    def shrink(_: int, result):
        ray.cores = (2.0,)
        return result

    ray.spoil = shrink
    progress = run(ray, [CountingJob(str(k), tmp_path) for k in range(3)])
    assert progress.states == ["done", "failed", "failed"]
    assert "the largest node of the cluster has 2" in progress.failures()[2]


def test_a_fault_without_a_text_has_its_name(tmp_path: Path) -> None:
    def spoil(_: int, __):
        error = RayTaskError()
        error.cause = MemoryError()
        raise error

    progress = run(StandIn(spoil=spoil), [CountingJob("0", tmp_path)])
    assert progress.failures()[0] == "MemoryError: "
