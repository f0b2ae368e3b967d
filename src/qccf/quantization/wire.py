"""The format of a payload: a header of 16 bytes, then the codec's body. Received bytes are treated as hostile.

Header, little-endian: magic (4 bytes), version (1), codec (1), q (2), Z (4), checksum (4). The checksum is the low half
of the body's XXH3-64. Its seed is the eight bytes between magic and checksum, so that it covers these as well.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import MAX_NUM_BITS
from qccf.core.errors import (
    ChecksumError,
    CodecError,
    CountError,
    MagicError,
    NumBitsError,
    OversizeError,
    PaddingError,
    RangeError,
    ShortPayloadError,
    TrailingBytesError,
    VersionError,
)
from qccf.quantization.protocol import Buffer

MAGIC = b"QCCF"
VERSION = 1
HEADER = struct.Struct("<4sBBHII")
HEADER_BYTES = HEADER.size
LARGEST_RANGE = 0x7F7FFFFF
"""The bits of the largest finite float32. The bits of infinity, NaN and negative numbers are larger integers."""

Bytes = NDArray[np.uint8]


def frame(body_bytes: int) -> tuple[Bytes, Bytes]:
    """An empty payload, and a view of the part for the body."""
    whole = np.empty(HEADER_BYTES + body_bytes, dtype=np.uint8)
    return whole, whole[HEADER_BYTES:]


def seal(whole: Bytes, codec_id: int, num_bits: int, num_parameters: int) -> bytes:
    """Write the header in front of the body."""
    HEADER.pack_into(whole.data, 0, MAGIC, VERSION, codec_id, num_bits, num_parameters, 0)
    whole[12:16] = np.frombuffer(checksum(whole.data).to_bytes(4, "little"), dtype=np.uint8)
    return whole.tobytes()


def checksum(payload: Buffer) -> int:
    """The checksum that the header of this payload must contain."""
    return short_hash(payload[HEADER_BYTES:], int.from_bytes(payload[4:12], "little"))


def short_hash(data: Buffer, seed: int = 0) -> int:
    """The low half of the XXH3-64 of some bytes."""
    import xxhash  # imported here because the policies run without it

    return int(xxhash.xxh3_64_intdigest(data, seed=seed)) & 0xFFFFFFFF


def unseal(
    payload: Buffer, codec_id: int, num_bits: int, num_parameters: int, *, least_bytes: int, most_bytes: int
) -> Bytes:
    """The body of an intact payload with this codec, q and Z, of `least_bytes` to `most_bytes` bytes."""
    view = flat(payload)
    codec, bits, count, stated = _read_header(view)
    if codec != codec_id:
        raise CodecError(f"the payload is of codec {codec}, but codec {codec_id} was requested.")
    if bits != num_bits:
        raise NumBitsError(f"the payload has {bits} bits per index, but {num_bits} were requested.")
    if count > num_parameters:
        raise OversizeError(f"the payload claims {count:,} values, but the model has {num_parameters:,}.")
    if count < num_parameters:
        raise CountError(f"the payload has {count:,} values, but the model has {num_parameters:,}.")
    body = len(view) - HEADER_BYTES
    if body < least_bytes:
        raise ShortPayloadError(f"the payload's body has {body:,} bytes, but at least {least_bytes:,} are needed.")
    if body > most_bytes:
        raise TrailingBytesError(f"the payload's body has {body:,} bytes, but at most {most_bytes:,} are possible.")
    found = checksum(view)
    if stated != found:
        raise ChecksumError(f"the payload's checksum is {stated:08x}, but its bytes give {found:08x}.")
    return readonly(np.frombuffer(view, dtype=np.uint8, offset=HEADER_BYTES))


def stated_num_bits(payload: Buffer) -> int:
    """q as stated in the header."""
    return _read_header(flat(payload))[1]


def _read_header(view: memoryview) -> tuple[int, int, int, int]:
    """Codec, q, Z and checksum from the header."""
    if len(view) < HEADER_BYTES:
        raise ShortPayloadError(f"the payload has {len(view)} bytes, less than its header of {HEADER_BYTES}.")
    magic, version, codec, bits, count, stated = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise MagicError(f"the payload begins with {magic!r}, not with {MAGIC!r}.")
    if version != VERSION:
        raise VersionError(f"the payload has version {version}, but only version {VERSION} is supported.")
    if not 1 <= bits <= MAX_NUM_BITS:
        raise NumBitsError(f"the payload has {bits} bits per index, but 1 to {MAX_NUM_BITS} are possible.")
    return codec, bits, count, stated


def flat(payload: Buffer) -> memoryview:
    """The same bytes as one contiguous view."""
    view = memoryview(payload)
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


def readonly(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view. Numba compiles a kernel again for each kind of array, so all inputs are made read-only."""
    view = array.view()
    view.flags.writeable = False
    return view


def read_ranges(body: Bytes, count: int) -> NDArray[np.float32]:
    """The ranges at the start of the body. The caller has checked that the body is long enough."""
    bits = np.frombuffer(body[: 4 * count].tobytes(), dtype="<u4")
    wrong = np.flatnonzero(bits > LARGEST_RANGE)
    if len(wrong):
        value = bits.view("<f4")[wrong[0]]
        raise RangeError(f"range {wrong[0]} of the payload is {value}, but a range is finite and not negative.")
    return bits.view("<f4")


def check_padding(body: Bytes, num_bits: int) -> None:
    """Refuse a body of `num_bits` bits if the unused bits of its last byte are not zero."""
    spare = -num_bits % 8
    if spare and body[-1] >> (8 - spare):
        raise PaddingError(f"the last byte of the payload is {body[-1]:#04x}, but its {spare} unused bits must be 0.")
