"""The paper's quantizer: a range, and a sign and an index of q bits for each value, rounded at random without bias.

Paper: Section II-B, Lemma 1. Deviates: E9.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qccf.contracts import MAX_NUM_BITS
from qccf.errors import DivergedError


@dataclass(frozen=True, slots=True)
class Quantized:
    """What an upload says: the range, and for each value whether it is negative and which knob it sits on."""

    num_bits: int
    value_range: float
    negative: NDArray[np.bool_]
    indexes: NDArray[np.uint32]

    def values(self) -> NDArray[np.float32]:
        """The values that the receiver works with. The scale is float64: float32 is off by a step at 16 bits."""
        magnitudes = self.indexes * (self.value_range / (2.0**self.num_bits - 1.0))
        return np.where(self.negative, -magnitudes, magnitudes).astype(np.float32)


def quantize(values: NDArray[np.float32], num_bits: int, rng: np.random.Generator) -> Quantized:
    """Round each magnitude to one of its two neighbouring knobs, up with the probability that makes the mean right.

    The largest magnitude is exactly the top knob, and a vector of zeros stays one. NaN and infinity are refused.
    """
    if not 1 <= num_bits <= MAX_NUM_BITS:
        raise ValueError(f"num_bits = {num_bits} is out of range: a value takes 1 to {MAX_NUM_BITS} bits")
    magnitudes = np.abs(values, dtype=np.float64)
    value_range = float(magnitudes.max(initial=0.0))
    if not np.isfinite(value_range):
        raise DivergedError(
            "a model with NaN or infinite weights cannot be quantized, for the training diverged: lower "
            "learning.learning_rate."
        )
    top = 2.0**num_bits - 1.0
    if value_range > 0.0:
        magnitudes *= top / value_range
    lower = np.floor(magnitudes)
    lower += rng.random(len(lower)) < magnitudes - lower
    indexes = np.minimum(lower, top).astype(np.uint32)
    return Quantized(num_bits, value_range, np.signbit(values), indexes)
