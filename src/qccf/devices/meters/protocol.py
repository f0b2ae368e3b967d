"""What a meter of energy is, and the check of what it says."""

import math
from typing import Any, Protocol

from qccf.core.errors import MeterError


class Meter(Protocol):
    """Counts the energy of this machine.

    Ours are built as ``Class(root)``, with the folder that stands for `/sys`; a user's own as ``Class()``. Building one
    raises `MeterError` where the machine has no such meter.
    """

    def energy_j(self) -> float:
        """Joules since the meter was built. It is called several times per second, so that a counter that starts
        again from 0 and a power that has to be added up over time are followed."""
        ...


class CheckedMeter:
    """A meter whose readings are numbers that never fall."""

    def __init__(self, name: str, meter: Meter) -> None:
        self.name = name
        self._meter = meter
        self._last_j = -math.inf

    def energy_j(self) -> float:
        """Joules since the meter was built. Whatever goes wrong in a user's own meter is a MeterError."""
        try:
            value: Any = self._meter.energy_j()
        except MeterError:
            raise
        except Exception as error:
            raise MeterError(f"meter {self.name!r} fails: {type(error).__name__}: {error}.") from error
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise MeterError(f"meter {self.name!r} gives {value!r} instead of joules.")
        if value < self._last_j:
            raise MeterError(f"meter {self.name!r} goes backwards, from {self._last_j:g} J to {value:g} J.")
        self._last_j = float(value)
        return self._last_j
