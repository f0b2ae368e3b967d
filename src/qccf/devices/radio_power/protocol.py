"""What a model of a radio's power is, and how it enters the constants of a run."""

from dataclasses import replace
from typing import Any, Protocol

from qccf.core.contracts import Constants, PerClient


class RadioPower(Protocol):
    """The power of a radio while it sends is affine in what it radiates: `sending_w(p) = constant + slope·p`.

    So the energy of an upload stays convex in its time where transmit power is a decision (`qccf.devices.power`), and
    the decisions stay exact. A user's own is built as ``Class(**options)``.
    """

    @property
    def slope(self) -> float:
        """Watts that the radio takes for each watt that it radiates; above 0."""
        ...

    @property
    def replaces_circuits(self) -> bool:
        """Whether `constant_w` takes the place of the circuit power that settings and profiles state, or adds to it."""
        ...

    @property
    def constant_w(self) -> float:
        """Watts that it takes besides, while it sends; 0 or more."""
        ...

    @property
    def wake_energy_j(self) -> float:
        """Joules of waking it for an upload; 0 or more."""
        ...

    @property
    def sleep_w(self) -> float:
        """Watts that it takes while it does not send; 0 or more, and at most `constant_w`."""
        ...


def with_radio_power(constants: Constants, radio: RadioPower, *, rests: bool) -> Constants:
    """The constants with this radio. `rests` says whether a run charges for resting; then a radio that sends adds
    only what it takes above its sleep."""
    asleep_w = radio.sleep_w if rests else 0.0
    besides_w: PerClient = 0.0 if radio.replaces_circuits else constants.circuit_power_w
    circuit_power_w: PerClient = radio.constant_w - asleep_w + besides_w
    changed: dict[str, Any] = {
        "circuit_power_w": circuit_power_w,
        "power_per_radiated": radio.slope,
        "wake_energy_j": radio.wake_energy_j,
        "idle_power_w": constants.idle_power_w + asleep_w,
    }
    return replace(constants, **changed)
