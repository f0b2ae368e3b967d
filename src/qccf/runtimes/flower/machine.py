"""What training takes on a node: its seconds, its joules where the machine has a meter, and its CPU frequency.

The node config says what may be used: `meter` (auto, none, powercap, battery, or module:Class; auto by default) and
`set-frequency=true`, which lets qccf set the CPU to the frequency that the server decided while it trains. Both are of
the node's own, so a server cannot switch them on.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.common.logger import log

from qccf.core.errors import FrequencyError, MeterError, QccfError
from qccf.devices.cpufreq import Cpufreq
from qccf.devices.meters.protocol import CheckedMeter
from qccf.devices.meters.registry import SYSTEM, first_meter, open_meter

WARNING = 30
READ_EVERY_S = 0.2


@dataclass
class Taken:
    """Seconds and joules of the block that was measured; NaN where nothing tells."""

    seconds: float = math.nan
    joules: float = math.nan


@contextmanager
def measured(node_config: Any, frequency_hz: float, root: Path = SYSTEM) -> Iterator[Taken]:
    """Measure the block inside, at the frequency that was decided where this node allows setting it."""
    taken = Taken()
    with ExitStack() as stack:
        if frequency_hz > 0.0 and node_config.get("set-frequency") is True:
            try:
                stack.enter_context(Cpufreq(root).held(frequency_hz))
            except FrequencyError as error:
                log(WARNING, "qccf: the CPU frequency was not set: %s", error)
        reader = _Reader(_node_meter(str(node_config.get("meter", "auto")), root))
        start_s = time.perf_counter()
        try:
            yield taken
        finally:
            taken.seconds = time.perf_counter() - start_s
            taken.joules = reader.stop()


def _node_meter(name: str, root: Path) -> CheckedMeter | None:
    """The meter that a node names, or the first that it has. One that cannot be used is a warning: training goes on."""
    try:
        return None if name == "none" else first_meter(root)[0] if name == "auto" else open_meter(name, root)
    except QccfError as error:
        reason = str(error)
    except Exception as error:  # a meter of the node's own may fail in any way
        reason = f"meter {name!r}: {type(error).__name__}: {error}"
    log(WARNING, "qccf: the energy is not measured: %s", reason)
    return None


class _Reader:
    """Reads a meter several times per second in a thread, so that no counter starts again unnoticed."""

    def __init__(self, meter: CheckedMeter | None) -> None:
        self._meter, self._joules, self._start_j = meter, math.nan, math.nan
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        if meter is not None and self._read():
            self._start_j = self._joules
            self._thread.start()

    def _read(self) -> bool:
        """Whether the meter can still be used."""
        try:
            self._joules = self._meter.energy_j() if self._meter is not None else math.nan
        except MeterError as error:
            log(WARNING, "qccf: the energy is not measured: %s", error)
            self._joules = math.nan
        return math.isfinite(self._joules)

    def _follow(self) -> None:
        while not self._ended.wait(READ_EVERY_S):
            if not self._read():
                return
        self._read()

    def stop(self) -> float:
        """Joules since the beginning; NaN without a meter, or with one that failed or did not advance."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        joules = self._joules - self._start_j
        return joules if joules > 0.0 else math.nan
