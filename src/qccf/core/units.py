"""Conversions between decibels, which only settings and tables use, and the linear SI units of the core."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def db_to_linear(value_db: ArrayLike) -> NDArray[np.float64]:
    """Power ratio of a value in decibels."""
    return np.asarray(np.power(10.0, np.asarray(value_db, dtype=float) / 10.0))


def linear_to_db(ratio: ArrayLike) -> NDArray[np.float64]:
    """Decibels of a power ratio."""
    return 10.0 * np.log10(np.asarray(ratio, dtype=float))


def dbm_to_w(value_dbm: ArrayLike) -> NDArray[np.float64]:
    """Watts of a power in dBm (or W/Hz of a density in dBm/Hz)."""
    return db_to_linear(value_dbm) * 1e-3
