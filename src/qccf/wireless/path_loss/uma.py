"""Urban macro cell (UMa) of 3GPP TR 38.901."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray
from qccf.wireless.path_loss.tr38901 import (
    CERTAIN_SIGHT_M,
    STATED_DISTANCES_M,
    in_sight_loss_db,
    loss_terms,
    sight_probability,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UrbanMacro:
    distances_m: ClassVar[tuple[float, float]] = STATED_DISTANCES_M

    carrier_hz: float
    base_height_m: float
    client_height_m: float

    def loss_db(self, distances_m: FloatArray, line_of_sight: BoolArray) -> FloatArray:
        terms = loss_terms(
            distances_m,
            carrier_hz=self.carrier_hz,
            base_height_m=self.base_height_m,
            client_height_m=self.client_height_m,
        )
        in_sight = in_sight_loss_db(terms, offset_db=28.0, slope_db=22.0, turn_db=9.0)
        blocked = 13.54 + 39.08 * terms.distance_log + 20.0 * terms.carrier_log - 0.6 * (self.client_height_m - 1.5)
        return np.where(line_of_sight, in_sight, np.maximum(in_sight, blocked))

    def line_of_sight_probability(self, distances_m: FloatArray) -> FloatArray:
        """Limited to 1: just beyond 18 m the formula slightly exceeds 1 for clients above 13 m."""
        distances_m = np.asarray(distances_m)
        height_gain = (np.maximum(self.client_height_m - 13.0, 0.0) / 10.0) ** 1.5
        over_roofs = 1.0 + height_gain * 1.25 * (distances_m / 100.0) ** 3 * np.exp(-distances_m / 150.0)
        probability = sight_probability(distances_m, decay_m=63.0) * over_roofs
        return np.where(distances_m <= CERTAIN_SIGHT_M, 1.0, np.minimum(probability, 1.0))

    def shadowing_std_db(self, line_of_sight: BoolArray) -> FloatArray:
        return np.where(line_of_sight, 4.0, 6.0)
