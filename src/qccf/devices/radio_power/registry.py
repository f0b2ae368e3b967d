"""All models of a radio's power by name. To add one, write a file and add a line here."""

import math
from typing import Any

from qccf.core.errors import ConfigError
from qccf.core.registry import Registry
from qccf.devices.radio_power.protocol import RadioPower
from qccf.devices.radio_power.radiated import Radiated
from qccf.devices.radio_power.ue import UserEquipment

RADIO_POWERS: Registry[type[RadioPower]] = Registry(
    "radio power", {"radiated": Radiated, "ue": UserEquipment}, call="Class(**options)"
)
"""A model with options is a frozen dataclass of them; `section` names their section in the settings' `radio`."""


def build_radio_power(name: str, options: dict[str, Any]) -> RadioPower:
    """The model of that name, or a user's own as `module:Class`, with values that can be."""
    model: RadioPower = RADIO_POWERS.build(name, **options)
    for words, low in (("slope", 1e-6), ("constant_w", 0.0), ("wake_energy_j", 0.0), ("sleep_w", 0.0)):
        found: Any = getattr(model, words, None)
        number = isinstance(found, int | float) and not isinstance(found, bool)
        if not number or not (low <= found and math.isfinite(found)):
            raise ConfigError(
                f"radio power {name!r} has {words} = {found!r}: give a number of at least {low:g}; its power while it "
                "sends is constant_w + slope·(radiated watts)."
            )
    if not isinstance(getattr(model, "replaces_circuits", None), bool):
        raise ConfigError(
            f"radio power {name!r} does not say with replaces_circuits = True or False what constant_w is."
        )
    if model.sleep_w > model.constant_w:
        raise ConfigError(
            f"radio power {name!r} takes {model.sleep_w:g} W asleep, more than the {model.constant_w:g} W with which "
            "it sends: lower sleep_w."
        )
    return model
