"""The parts that the UMi and UMa models of 3GPP TR 38.901 share.

Source: Table 7.4.1-1 (path loss, shadowing) and Table 7.4.2-1 (line-of-sight probability). The standard states them for
horizontal distances of 10 m to 5 km and carriers of 0.5 to 100 GHz. The settings enforce these limits; the functions do
not check them. The effective environment height is 1 m, which is exact for clients below 13 m. For taller clients the
UMa model of the standard draws it at random.
"""

from typing import NamedTuple

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray

LIGHT_SPEED_M_S = 3.0e8
"""The value that the standard prescribes for the break point."""

STATED_DISTANCES_M = (10.0, 5000.0)
"""The horizontal distances for which the standard states both models."""

ENVIRONMENT_HEIGHT_M = 1.0
CERTAIN_SIGHT_M = 18.0
"""Up to this distance a client always has line of sight."""


class LossTerms(NamedTuple):
    """The quantities in which the loss formulas are written.

    `before_break_point` tells where the loss still has its smaller slope; `turn_log` moves the steeper line so that
    both meet at the break point.
    """

    distance_log: FloatArray
    carrier_log: FloatArray
    turn_log: FloatArray
    before_break_point: BoolArray


def loss_terms(
    distances_m: FloatArray, *, carrier_hz: float, base_height_m: float, client_height_m: float
) -> LossTerms:
    distances_m = np.asarray(distances_m, dtype=float)
    height_difference_m = np.subtract(base_height_m, client_height_m)
    effective_heights = (base_height_m - ENVIRONMENT_HEIGHT_M) * (client_height_m - ENVIRONMENT_HEIGHT_M)
    break_point_m = 4.0 * effective_heights * carrier_hz / LIGHT_SPEED_M_S
    return LossTerms(
        distance_log=np.log10(np.hypot(distances_m, height_difference_m)),
        carrier_log=np.log10(np.divide(carrier_hz, 1e9)),
        turn_log=np.log10(np.square(break_point_m) + np.square(height_difference_m)),
        before_break_point=distances_m <= break_point_m,
    )


def in_sight_loss_db(terms: LossTerms, *, offset_db: float, slope_db: float, turn_db: float) -> FloatArray:
    """Loss with line of sight: `slope_db` per decade before the break point, 40 dB after it."""
    near = offset_db + slope_db * terms.distance_log + 20.0 * terms.carrier_log
    far = offset_db + 40.0 * terms.distance_log + 20.0 * terms.carrier_log - turn_db * terms.turn_log
    return np.where(terms.before_break_point, near, far)


def sight_probability(distances_m: FloatArray, decay_m: float) -> FloatArray:
    """Line-of-sight probability of a client at street level."""
    ratio = CERTAIN_SIGHT_M / np.maximum(distances_m, CERTAIN_SIGHT_M)
    return np.asarray(ratio + np.exp(-np.asarray(distances_m) / decay_m) * (1.0 - ratio))
