"""Jobs for tests of the batch; worker processes import this module by its name."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from qccf.errors import QccfError


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

    def is_finished(self) -> bool:
        return (self.folder / "finished").exists()

    def run(self, tell) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"process-{os.getpid()}").touch()
        for step in range(len(list(self.folder.glob("step-*"))), self.steps):
            if step == 1 and self.fault:
                self._fail()
            try:
                time.sleep(self.pause_s)
            except KeyboardInterrupt:
                (self.folder / "interrupted").touch()
                raise
            (self.folder / f"step-{step}").touch()
            tell(step + 1)
        (self.folder / "finished").touch()

    def _fail(self) -> None:
        if self.fault == "sentence":
            raise QccfError("the cell is empty: add clients.")
        if self.fault == "bug":
            raise ZeroDivisionError("by zero")
        os._exit(9)
