"""What the paper's quantizer charges: bits that are affine in q, and an error bound c/(2^q - 1)²."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qccf.contracts import FloatArray

RANGE_BITS = 32
"""The range θ_max travels as one 32-bit float."""


def payload_bits(num_bits: ArrayLike, num_parameters: int) -> Any:
    """ℓ: index bits and one sign for each parameter, and the range. Paper: Section II-B."""
    return np.asarray(num_bits) * float(num_parameters) + payload_overhead_bits(num_parameters)


def payload_overhead_bits(num_parameters: int) -> float:
    """The part of ℓ that does not depend on q."""
    return float(num_parameters + RANGE_BITS)


def raw_payload_bits(num_parameters: int) -> float:
    """An upload with no quantizer: 32-bit floats."""
    return 32.0 * num_parameters


def error_scales(weight_ranges: FloatArray, num_parameters: int) -> FloatArray:
    """c = Zθ²/4, so that the expected squared error is at most c/(2^q - 1)². Paper: Lemma 1."""
    return 0.25 * num_parameters * np.square(weight_ranges)


def error_bounds(num_bits: ArrayLike, weight_ranges: FloatArray, num_parameters: int) -> FloatArray:
    """Bound on the expected squared error of each upload. Paper: Lemma 1."""
    levels = np.exp2(np.asarray(num_bits, dtype=float)) - 1.0
    return np.asarray(error_scales(weight_ranges, num_parameters) / np.square(levels))
