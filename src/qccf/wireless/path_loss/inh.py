"""Indoor office (InH) of 3GPP TR 38.901, with the line of sight of a mixed or an open office.

Source: Table 7.4.1-1 (path loss, shadowing) and Table 7.4.2-1 (line-of-sight probability). The standard states them for
distances of 1 to 150 m, and evaluates them with base stations at 3 m and clients at 1 m.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedOffice:
    """Rooms, corridors and open areas."""

    distances_m: ClassVar[tuple[float, float]] = (1.0, 150.0)

    carrier_hz: float
    base_height_m: float
    client_height_m: float

    def loss_db(self, distances_m: FloatArray, line_of_sight: BoolArray) -> FloatArray:
        distance_log = np.log10(np.hypot(distances_m, np.subtract(self.base_height_m, self.client_height_m)))
        carrier_log = np.log10(np.divide(self.carrier_hz, 1e9))
        in_sight = 32.4 + 17.3 * distance_log + 20.0 * carrier_log
        blocked = 17.3 + 38.3 * distance_log + 24.9 * carrier_log
        return np.where(line_of_sight, in_sight, np.maximum(in_sight, blocked))

    def line_of_sight_probability(self, distances_m: FloatArray) -> FloatArray:
        return _sight_probability(distances_m, certain_m=1.2, near_decay_m=4.7, far_m=6.5, far_decay_m=32.6, far=0.32)

    def shadowing_std_db(self, line_of_sight: BoolArray) -> FloatArray:
        return np.where(line_of_sight, 3.0, 8.03)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOffice(MixedOffice):
    """Few walls: the same losses, but line of sight is more likely."""

    def line_of_sight_probability(self, distances_m: FloatArray) -> FloatArray:
        return _sight_probability(
            distances_m, certain_m=5.0, near_decay_m=70.8, far_m=49.0, far_decay_m=211.7, far=0.54
        )


def _sight_probability(
    distances_m: FloatArray, *, certain_m: float, near_decay_m: float, far_m: float, far_decay_m: float, far: float
) -> FloatArray:
    """1 up to `certain_m`, then two exponentials that meet at `far_m`, up to rounding in the standard."""
    distances_m = np.asarray(distances_m, dtype=float)
    near = np.exp(-(np.maximum(distances_m, certain_m) - certain_m) / near_decay_m)
    beyond = far * np.exp(-(distances_m - far_m) / far_decay_m)
    return np.where(distances_m <= far_m, near, beyond)
