"""Workers of this machine: an interrupt that Python drops."""

import subprocess
import sys

INTERRUPTED_WHILE_COLLECTED = """
import os, signal, time
from qccf.jobs.local import interrupt_on_sigterm

class Collected:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass  # the handler runs here, and what it raises is dropped

interrupt_on_sigterm()
try:
    Collected()
    print("dropped", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_that_python_drops_is_raised_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_COLLECTED], capture_output=True, text=True, timeout=50
    )
    assert done.stdout.split() == ["dropped", "interrupted"], done.stderr
    assert done.stderr == ""
