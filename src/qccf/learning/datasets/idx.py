"""Reader for the idx format of MNIST, plain or gzipped. Files are treated as hostile."""

import gzip
import hashlib
import io
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.learning.datasets.base import SAMPLES_MAX, reading

_UNSIGNED_BYTE = 0x08
_SIDE_MAX = 1024
_BYTES_MAX = 2 * 1024**3


def read_idx(path: Path, num_axes: int) -> NDArray[np.uint8]:
    """The unsigned bytes of an idx file with ``num_axes`` axes (1 for labels, 3 for images).

    The header states every length, and the file must have exactly this size: a shorter file is a broken download, a
    longer one has another format or is a gzip bomb. At most one byte more than the stated length is decompressed.
    """
    with reading(path), path.open("rb") as raw:
        if path.suffix != ".gz":
            return _read_stream(path, raw, num_axes)
        try:
            with gzip.open(raw) as packed:
                return _read_stream(path, packed, num_axes)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{path}: its gzip data is broken ({error}); download the file again.") from error


def _read_stream(path: Path, stream: io.BufferedIOBase, num_axes: int) -> NDArray[np.uint8]:
    """The values after the header. Raises unless the stream contains exactly as many as stated."""
    shape = _read_header(path, stream, num_axes)
    stated = math.prod(shape)
    values = np.empty(stated, dtype=np.uint8)
    view = values.data
    filled = 0
    while filled < stated and (count := stream.readinto(view[filled:])):
        filled += count
    if filled < stated:
        raise DataError(f"{path}: its header states {stated} bytes of data but {filled} follow; download it again.")
    if stream.read(1):
        raise DataError(f"{path}: its header states {stated} bytes of data but more follow; download it again.")
    return values.reshape(shape)


def _read_header(path: Path, stream: io.BufferedIOBase, num_axes: int) -> tuple[int, ...]:
    """The lengths of the axes, checked before memory is allocated for them."""
    header = stream.read(4 + 4 * num_axes)
    expected_magic = bytes([0, 0, _UNSIGNED_BYTE, num_axes])
    if header[:4] != expected_magic:
        raise DataError(
            f"{path}: starts with {header[:4].hex() or 'nothing'}, but idx bytes with {num_axes} axes start with"
            f" {expected_magic.hex()}; replace the file."
        )
    if len(header) < 4 + 4 * num_axes:
        raise DataError(f"{path}: ends within its header after {len(header)} bytes; download the file again.")
    shape = struct.unpack(f">{num_axes}I", header[4:])
    if shape[0] > SAMPLES_MAX or any(not 1 <= side <= _SIDE_MAX for side in shape[1:]) or math.prod(shape) > _BYTES_MAX:
        raise DataError(
            f"{path}: its header states the shape {shape}, beyond {SAMPLES_MAX} samples, {_SIDE_MAX} pixels per side or"
            f" {_BYTES_MAX} bytes; download the file again."
        )
    return shape


def idx_sha256(values: NDArray[np.uint8]) -> str:
    """SHA-256 of the unpacked idx file with these values. It does not depend on how the file is compressed."""
    header = bytes([0, 0, _UNSIGNED_BYTE, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return hashlib.sha256(header + np.ascontiguousarray(values).tobytes()).hexdigest()
