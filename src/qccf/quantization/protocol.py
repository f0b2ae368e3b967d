"""What a codec is: it makes an upload of a vector and a vector of an upload, and forecasts what either costs."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import FloatArray

Buffer = bytes | bytearray | memoryview
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What uploads of a vector like this one would cost and how far they would err.

    ``error_scale`` is c: with q bits the expected squared error is at most c/(2^q - 1)². ``bits`` are the expected
    payload bits for q = 1 … MAX_NUM_BITS, or None where a·q + b says it already.
    """

    error_scale: float
    bits: FloatArray | None


class Codec(Protocol):
    """Encodes at one end and decodes at the other; both ends build it alike and it keeps no state.

    Built as ``Class(num_parameters, layer_sizes, **options)``. A ``relative`` codec is given, and gives back, the
    difference to the global model that the server sent last; the caller subtracts and adds. Where ``affine``, a
    payload has exactly ``bits_per_index``·q + ``overhead_bits`` bits; elsewhere these two describe what it would have
    without entropy coding, and the forecast has the sizes.
    """

    relative: bool
    affine: bool
    bits_per_index: float
    overhead_bits: float

    def forecast(self, vector: Vector) -> Forecast:
        """Costs and errors of such a vector, for each number of bits."""
        ...

    def encode(self, vector: Vector, num_bits: int, key: int) -> bytes:
        """The payload; its rounding is random, and the same for the same 64-bit key."""
        ...

    def size_bits(self, payload: Buffer) -> int:
        """ℓ as it was really sent: the header does not count."""
        ...

    def decode(self, payload: Buffer, num_bits: int) -> Vector:
        """The vector of a payload that was asked for with so many bits. Raises PayloadError for any other bytes."""
        ...

    def accumulate(self, payload: Buffer, num_bits: int, weight: float, total: NDArray[Any]) -> None:
        """Add ``weight`` times the decoded vector to ``total``, or nothing where the payload is refused."""
        ...
