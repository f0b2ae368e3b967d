"""Jobs for tests of the queue; worker processes import this module by its name."""

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from qccf.core.errors import QccfError
from qccf.jobs.queue import Job

PATIENCE_S = 600.0
"""Long, for a machine that is busy with other work."""


@dataclass(frozen=True, kw_only=True)
class CountingJob(Job):
    """Writes one file per step and resumes where it stopped. `fault` says how it fails, if it does.

    With `waits` it does not take its second step before the file `continue` exists beside its folder.
    """

    fault: str = ""
    waits: bool = False
    result: ClassVar[str] = "finished"

    def run(self, folder, on_step) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"process-{os.getpid()}").touch()
        try:
            for step in range(len(list(folder.glob("step-*"))), self.steps):
                if step == 1 and self.fault:
                    self._fail(folder)
                if step == 1 and self.waits:
                    wait_for((self.folder.parent / "continue").exists)
                (folder / f"step-{step}").touch()
                on_step(step + 1)
        except KeyboardInterrupt:
            (folder / "interrupted").touch()
            raise
        (folder / "finished").touch()

    def _fail(self, folder) -> None:
        tries = len(list(folder.glob("try-*")))
        (folder / f"try-{tries}").touch()
        if self.fault == "once" and tries:
            return
        if self.fault == "sentence":
            raise QccfError("the cell is empty: add clients.")
        if self.fault in ("bug", "once"):
            raise ZeroDivisionError("by zero")
        os._exit(9)


def counting_job(name: str, out: Path, *, steps: int = 3, cores: int = 1, fault: str = "", waits: bool = False):
    return CountingJob(
        label=f"job {name}",
        folder=out / name,
        steps=steps,
        step_kind="counting",
        cores=cores,
        fault=fault,
        waits=waits,
    )


@dataclass(frozen=True, kw_only=True)
class MemoryJob(Job):
    """Writes whether a large block comes from the pool that the C library keeps, or from the system."""

    result: ClassVar[str] = "large-block.txt"

    def run(self, folder, on_step) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.result).write_text("pool" if large_blocks_come_from_the_pool() else "system")


class _Mallinfo2(ctypes.Structure):
    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def large_blocks_come_from_the_pool() -> bool:
    """Whether glibc serves 64 MiB without a mapping of their own."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.mallinfo2.restype = _Mallinfo2
    before = libc.mallinfo2().hblks
    block = libc.malloc(64 * 2**20)
    after = libc.mallinfo2().hblks
    libc.free(block)
    return after == before


def wait_for(condition, event: str = "the event") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{event} did not happen within {PATIENCE_S:g} s"
        time.sleep(0.02)


def interrupt_third_run(kind, monkeypatch) -> list[int]:
    """The third job of that kind is interrupted; returns a list that grows with every call."""
    run = kind.run
    calls: list[int] = []

    def third_is_interrupted(job, *rest):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        run(job, *rest)

    monkeypatch.setattr(kind, "run", third_is_interrupted)
    return calls
