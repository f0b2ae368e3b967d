"""Urban micro cell (UMi, street canyon) of 3GPP TR 38.901."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray
from qccf.wireless.path_loss.tr38901 import STATED_DISTANCES_M, in_sight_loss_db, loss_terms, sight_probability


@dataclass(frozen=True, slots=True, kw_only=True)
class UrbanMicro:
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
        in_sight = in_sight_loss_db(terms, offset_db=32.4, slope_db=21.0, turn_db=9.5)
        blocked = 22.4 + 35.3 * terms.distance_log + 21.3 * terms.carrier_log - 0.3 * (self.client_height_m - 1.5)
        return np.where(line_of_sight, in_sight, np.maximum(in_sight, blocked))

    def line_of_sight_probability(self, distances_m: FloatArray) -> FloatArray:
        return sight_probability(distances_m, decay_m=36.0)

    def shadowing_std_db(self, line_of_sight: BoolArray) -> FloatArray:
        return np.where(line_of_sight, 4.0, 7.82)
