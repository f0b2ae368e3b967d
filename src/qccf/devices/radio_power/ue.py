"""A phone's whole radio by 3GPP TR 38.840 (Release 16), clause 8.1, for frequency range 1.

The report states powers in units of the power in deep sleep, for subcarriers of 30 kHz, 100 MHz, four receiving and one
sending antenna:

    deep sleep 1, light sleep 20, micro sleep 45, listening (PDCCH only) 100, sending 250 at 0 dBm and 700 at 23 dBm

and the additional energy of falling asleep and waking, in units times milliseconds: deep sleep 450, light sleep 100,
micro sleep 0. Sending does not depend on the bandwidth. The time of waking (20 ms and 6 ms) is not charged.

*Assumed*, because the report does not say: between and beyond the two powers, what sending takes is linear in the power
that is radiated in watts, as for an amplifier whose losses grow with its output; and one unit is 5 mW. Sending at
23 dBm then takes 3.5 W. A 5G module that was measured in a public network took about 6.5 mW per unit above deep sleep:
142 mA at 4.2 V for 91.5 units (repository bjoluc/5g-handover-optimization, section "Measurement-Based Validation").
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from qccf.core.options import option
from qccf.core.units import dbm_to_w

SLEEP_UNITS = {"deep": 1.0, "light": 20.0, "micro": 45.0}
WAKE_UNITS_S = {"deep": 0.450, "light": 0.100, "micro": 0.0}
SENDING_UNITS = ((0.0, 250.0), (23.0, 700.0))
"""dBm radiated, and units taken."""

(_LOW_W, _LOW_UNITS), (_HIGH_W, _HIGH_UNITS) = ((float(dbm_to_w(dbm)), units) for dbm, units in SENDING_UNITS)
UNITS_PER_W = (_HIGH_UNITS - _LOW_UNITS) / (_HIGH_W - _LOW_W)
CONSTANT_UNITS = _LOW_UNITS - UNITS_PER_W * _LOW_W


@dataclass(frozen=True)
class UserEquipment:
    """The radio of a phone: what it takes while it sends, wakes and sleeps."""

    section: ClassVar[str] = "ue"
    replaces_circuits: ClassVar[bool] = True

    watts_per_unit: float = option(
        5e-3, "power of a unit of TR 38.840, which is the power in deep sleep", unit="W", ge=1e-6, le=1
    )
    sleep: Literal["deep", "light", "micro"] = option("deep", "how the radio sleeps until it sends")

    @property
    def slope(self) -> float:
        return UNITS_PER_W * self.watts_per_unit

    @property
    def constant_w(self) -> float:
        return CONSTANT_UNITS * self.watts_per_unit

    @property
    def wake_energy_j(self) -> float:
        return WAKE_UNITS_S[self.sleep] * self.watts_per_unit

    @property
    def sleep_w(self) -> float:
        return SLEEP_UNITS[self.sleep] * self.watts_per_unit
