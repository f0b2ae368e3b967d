"""The codec protocol: encode a vector, decode a payload, forecast the size and the error of an upload."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import FloatArray

Buffer = bytes | bytearray | memoryview
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected error and size of an upload of a similar vector.

    ``error_scale`` is c: with q bits the expected squared error is at most c/(2^q - 1)². ``bits`` are the expected
    payload bits for q = 1 … MAX_NUM_BITS, or None for an affine codec, whose size is known exactly. ``errors`` are the
    expected squared errors themselves for the same q, never rising, or None where only the bound is known.
    """

    error_scale: float
    bits: FloatArray | None
    errors: FloatArray | None = None


class Codec(Protocol):
    """Encodes on the client and decodes on the server. Both build it with the same arguments; it keeps no state.

    Built as ``Class(num_parameters, layer_sizes, **options)``. A ``relative`` codec encodes the difference to the
    global model that the server sent last; the caller subtracts and adds the global model. If ``affine``, a payload
    has exactly ``bits_per_index``·q + ``overhead_bits`` bits. Otherwise these two give the size without entropy
    coding, and the forecast gives the expected sizes. Such a codec may state ``least_upload_bits``, the size of its
    smallest payload: a run in which no client can ever upload even that is then refused before it starts.
    """

    relative: bool
    affine: bool
    bits_per_index: float
    overhead_bits: float

    def forecast(self, vector: Vector) -> Forecast:
        """Expected size and error of an upload of this vector, for each number of bits."""
        ...

    def encode(self, vector: Vector, num_bits: int, key: int) -> bytes:
        """The payload. Rounding is random and depends only on the 64-bit key."""
        ...

    def size_bits(self, payload: Buffer) -> int:
        """ℓ of this payload, without the header."""
        ...

    def decode(self, payload: Buffer, num_bits: int) -> Vector:
        """The vector of a payload with ``num_bits`` bits per index. Raises PayloadError for any other bytes."""
        ...

    def accumulate(self, payload: Buffer, num_bits: int, weight: float, total: NDArray[Any]) -> None:
        """Add ``weight`` times the decoded vector to ``total``. A refused payload leaves ``total`` unchanged."""
        ...
