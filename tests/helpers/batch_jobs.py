"""Jobs for tests of the batch; worker processes import this module by its name."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from qccf.core.errors import QccfError


@dataclass(frozen=True)
class CountingJob:
    """Counts to `steps`, a file for each step; goes on where it stopped. `fault` says how it goes wrong, if it does."""

    name: str
    out: Path
    steps: int = 3
    fault: str = ""
    pause_s: float = 0.0

    @property
    def label(self) -> str:
        return f"job {self.name}"

    @property
    def folder(self) -> Path:
        return self.out / self.name

    @property
    def pace(self) -> str:
        return "counting"

    @property
    def cores(self) -> int:
        return 1

    def is_finished(self) -> bool:
        return (self.folder / "finished").exists()

    def run(self, folder, tell) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"process-{os.getpid()}").touch()
        for step in range(len(list(folder.glob("step-*"))), self.steps):
            if step == 1 and self.fault:
                self._fail(folder)
            try:
                time.sleep(self.pause_s)
            except KeyboardInterrupt:
                (folder / "interrupted").touch()
                raise
            (folder / f"step-{step}").touch()
            tell(step + 1)
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


def interrupt_third_run(kind, monkeypatch) -> list[int]:
    """The third job of that kind is interrupted; returns what counts the calls."""
    run = kind.run
    calls: list[int] = []

    def third_is_interrupted(job, *rest):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        run(job, *rest)

    monkeypatch.setattr(kind, "run", third_is_interrupted)
    return calls
