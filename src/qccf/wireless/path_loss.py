"""Large-scale fading: 3GPP TR 38.901 (UMi street canyon, UMa) and the log-distance model of older LTE studies.

Source: 3GPP TR 38.901, Table 7.4.1-1 (path loss, shadow fading) and Table 7.4.2-1 (line-of-sight probability). The
standard states them for 10 m to 5 km (horizontally) and 0.5 to 100 GHz; the configuration keeps to that range, these
functions do not check it. The effective environment height is 1 m, which is exact for clients below 13 m; for taller
ones UMa draws it at random.
"""

import numpy as np
from numpy.typing import ArrayLike

from qccf.core.contracts import BoolArray, FloatArray

PathLossModel = str

LIGHT_SPEED_M_S = 3.0e8
"""The value that the standard's break-point formula prescribes."""

ENVIRONMENT_HEIGHT_M = 1.0
_CERTAIN_SIGHT_M = 18.0

_SHADOWING_STD_DB = {"umi": (4.0, 7.82), "uma": (4.0, 6.0), "log-distance": (8.0, 8.0)}
"""With and without line of sight."""


def path_loss_db(
    scenario: PathLossModel,
    *,
    line_of_sight: bool | BoolArray,
    distance_2d_m: ArrayLike,
    carrier_hz: ArrayLike,
    base_height_m: ArrayLike,
    client_height_m: ArrayLike,
) -> FloatArray:
    """Path loss between a base station and a client; arguments broadcast.

    `distance_2d_m` is horizontal. `log-distance` is 128.1 + 37.6·log10(d in km) and uses nothing but the distance.
    """
    distance_2d = np.asarray(distance_2d_m, dtype=float)
    if scenario == "log-distance":
        return np.asarray(128.1 + 37.6 * np.log10(distance_2d / 1e3))
    if scenario not in ("umi", "uma"):
        raise ValueError(f"path-loss scenario {scenario!r} is not one of 'umi', 'uma', 'log-distance'")
    carrier = np.asarray(carrier_hz, dtype=float)
    base_height, client_height = np.asarray(base_height_m, dtype=float), np.asarray(client_height_m, dtype=float)
    distance_3d = np.hypot(distance_2d, base_height - client_height)
    carrier_log = np.log10(carrier / 1e9)
    break_point = (
        4.0 * (base_height - ENVIRONMENT_HEIGHT_M) * (client_height - ENVIRONMENT_HEIGHT_M) * carrier / LIGHT_SPEED_M_S
    )
    turn = np.square(break_point) + np.square(base_height - client_height)
    distance_log, turn_log = np.log10(distance_3d), np.log10(turn)
    if scenario == "umi":
        near = 32.4 + 21.0 * distance_log + 20.0 * carrier_log
        far = 32.4 + 40.0 * distance_log + 20.0 * carrier_log - 9.5 * turn_log
        blocked = 22.4 + 35.3 * distance_log + 21.3 * carrier_log - 0.3 * (client_height - 1.5)
    else:
        near = 28.0 + 22.0 * distance_log + 20.0 * carrier_log
        far = 28.0 + 40.0 * distance_log + 20.0 * carrier_log - 9.0 * turn_log
        blocked = 13.54 + 39.08 * distance_log + 20.0 * carrier_log - 0.6 * (client_height - 1.5)
    in_sight = np.where(distance_2d <= break_point, near, far)
    return np.where(line_of_sight, in_sight, np.maximum(in_sight, blocked))


def line_of_sight_probability(
    scenario: PathLossModel, *, distance_2d_m: ArrayLike, client_height_m: ArrayLike
) -> FloatArray:
    """How likely a client at that distance sees the base station; 1 for `log-distance`, which makes no difference.

    The UMa formula slightly exceeds 1 just beyond 18 m for clients above 13 m and is cut there.
    """
    distance = np.asarray(distance_2d_m, dtype=float)
    height = np.asarray(client_height_m, dtype=float)
    if scenario == "log-distance":
        return np.ones_like(distance + height)
    ratio = _CERTAIN_SIGHT_M / np.maximum(distance, _CERTAIN_SIGHT_M)
    if scenario == "umi":
        return np.asarray(ratio + np.exp(-distance / 36.0) * (1.0 - ratio) + 0.0 * height)
    tallness = np.where(height > 13.0, (np.maximum(height - 13.0, 0.0) / 10.0) ** 1.5, 0.0)
    over_roofs = 1.0 + tallness * 1.25 * (distance / 100.0) ** 3 * np.exp(-distance / 150.0)
    outside = (ratio + np.exp(-distance / 63.0) * (1.0 - ratio)) * over_roofs
    return np.where(distance <= _CERTAIN_SIGHT_M, 1.0, np.minimum(outside, 1.0))


def shadowing_std_db(scenario: PathLossModel, *, line_of_sight: bool | BoolArray) -> FloatArray:
    """Standard deviation of the log-normal shadow fading."""
    with_sight, without_sight = _SHADOWING_STD_DB[scenario]
    return np.where(line_of_sight, with_sight, without_sight)
