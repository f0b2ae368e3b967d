"""Size and error of an upload, for any codec, as the policies use them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qccf.core.contracts import MAX_NUM_BITS, Constants, FloatArray, Statistics

RANGE_BITS = 32
"""The range θ_max is sent as one 32-bit float."""


def payload_bits(num_bits: ArrayLike, rows: Any, statistics: Statistics, constants: Constants) -> Any:
    """ℓ, the size of an upload with `num_bits` bits by each client in `rows`. Paper: Section II-B, Zq + Z + 32."""
    if statistics.upload_bits is not None:
        return statistics.upload_bits[rows, np.asarray(num_bits, dtype=np.int64) - 1]
    return np.asarray(num_bits) * slope_bits(constants) + overhead_bits(constants)


def slope_bits(constants: Constants) -> float:
    """Payload bits that one more bit per index costs. Valid only for codecs whose payload is affine in q."""
    return float(constants.num_parameters) if constants.bits_per_index is None else constants.bits_per_index


def overhead_bits(constants: Constants) -> float:
    """The part of ℓ that does not depend on q."""
    if constants.overhead_bits is not None:
        return constants.overhead_bits
    return float(constants.num_parameters + RANGE_BITS + 32 * constants.num_buffers)


def raw_payload_bits(num_values: int) -> float:
    """Size of an upload without a quantizer: one 32-bit float per parameter and buffer value."""
    return 32.0 * num_values


def most_bits(room_bits: FloatArray, statistics: Statistics, constants: Constants) -> FloatArray:
    """The largest q whose payload fits into `room_bits` [client, channel]; 0 where no q fits."""
    rows = np.arange(len(room_bits))[:, None]
    most = np.zeros(room_bits.shape)
    for q in range(1, MAX_NUM_BITS + 1):
        fits = payload_bits(q, rows, statistics, constants) <= room_bits * (1.0 - 1e-12)
        if not fits.any():
            break
        most[fits] = q
    return most


def error_scales(statistics: Statistics, constants: Constants) -> FloatArray:
    """c of each client's upload: the codec's forecast if there is one, else Zθ²/4. Paper: Lemma 1."""
    if statistics.error_scales is not None:
        return statistics.error_scales
    return 0.25 * constants.num_parameters * np.square(statistics.weight_ranges)


def error_bounds(num_bits: ArrayLike, statistics: Statistics, constants: Constants) -> FloatArray:
    """Bound on the expected squared error of each upload. Paper: Lemma 1."""
    levels = np.exp2(np.asarray(num_bits, dtype=float)) - 1.0
    return np.asarray(error_scales(statistics, constants) / np.square(levels))


def expected_errors(statistics: Statistics, constants: Constants) -> FloatArray:
    """Expected squared error of an upload [client, q - 1]: the codec's own where it is known, else the bound."""
    if statistics.upload_errors is not None:
        return statistics.upload_errors
    return error_bound_table(error_scales(statistics, constants)[:, None])


def error_bound_table(error_scale: Any) -> FloatArray:
    """c/(2^q - 1)² for q = 1 … MAX_NUM_BITS, along the last axis."""
    levels = np.exp2(np.arange(1, MAX_NUM_BITS + 1, dtype=float)) - 1.0
    return np.asarray(error_scale / np.square(levels))
