"""A policy that takes its time and says where it runs, for tests that end a process in the middle of a run."""

import os
import time
from pathlib import Path

from qccf.policies.qccf import Qccf


class Slow(Qccf):
    """QCCF, half a second late; it leaves a file for the session of its process."""

    def __init__(self, constants, *, rounds, folder):
        super().__init__(constants, rounds=rounds)
        self._folder = Path(folder)

    def decide(self, state, observation, rng):
        (self._folder / f"session-{os.getsid(0)}").touch()
        time.sleep(0.5)
        return super().decide(state, observation, rng)
