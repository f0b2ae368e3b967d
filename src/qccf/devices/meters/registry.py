"""All energy meters by name. To add one, write a file and add a line here."""

from pathlib import Path
from typing import Any

from qccf.core.errors import MeterError
from qccf.core.registry import Registry
from qccf.devices.meters.battery import Battery
from qccf.devices.meters.powercap import Powercap
from qccf.devices.meters.protocol import CheckedMeter, Meter

METERS: Registry[type[Meter]] = Registry(
    "meter", {"powercap": Powercap, "battery": Battery}, methods=("energy_j",), call="Class()"
)
"""In the order in which they are tried."""

SYSTEM = Path("/sys")


def open_meter(name: str, root: Path = SYSTEM) -> CheckedMeter:
    """The meter of that name, or a user's own as `module:Class`."""
    options: dict[str, Any] = {"root": root} if name in METERS else {}
    meter = CheckedMeter(name, METERS.build(name, **options))
    meter.energy_j()
    return meter


def first_meter(root: Path = SYSTEM) -> tuple[CheckedMeter | None, list[str]]:
    """The first meter that this machine has, and why those before it cannot be used."""
    reasons: list[str] = []
    for name in METERS:
        try:
            return open_meter(name, root), reasons
        except MeterError as error:
            reasons.append(str(error))
    return None, reasons
