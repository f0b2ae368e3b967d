"""Log-distance model of older LTE studies: 128.1 + 37.6·log10(distance in km) dB."""

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray


class LogDistance:
    """Depends only on the distance, so every client counts as in line of sight."""

    distances_m = (10.0, 5000.0)

    def __init__(self, *, carrier_hz: float, base_height_m: float, client_height_m: float) -> None:
        """The model uses none of these; all models are built with the same arguments."""

    def loss_db(self, distances_m: FloatArray, line_of_sight: BoolArray) -> FloatArray:
        return np.asarray(128.1 + 37.6 * np.log10(np.asarray(distances_m) / 1e3))

    def line_of_sight_probability(self, distances_m: FloatArray) -> FloatArray:
        return np.ones_like(distances_m)

    def shadowing_std_db(self, line_of_sight: BoolArray) -> FloatArray:
        return np.full(np.shape(line_of_sight), 8.0)
