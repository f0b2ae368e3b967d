"""The idx format of MNIST and its relatives, plain or gzipped, read as if the file wished us harm."""

import gzip
import hashlib
import io
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.learning.datasets.base import SAMPLES_MAX, DataError

_UNSIGNED_BYTE = 0x08
_SIDE_MAX = 1024
_BYTES_MAX = 2 * 1024**3


def read_idx(path: Path, num_axes: int) -> NDArray[np.uint8]:
    """The unsigned bytes of an idx file with ``num_axes`` axes (1 for labels, 3 for images).

    The header states every length, so the file must hold exactly that much: less is a broken download, and more is
    either another format or a gzip bomb. No more than the stated length (and one byte) is ever decompressed.
    """
    try:
        with path.open("rb") as raw:
            if path.suffix == ".gz":
                with gzip.open(raw) as packed:
                    return _read_stream(path, packed, num_axes)
            return _read_stream(path, raw, num_axes)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: its gzip data is broken ({error}); fetch the file again.") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); check the file and its rights."
        ) from error


def _read_stream(path: Path, stream: io.BufferedIOBase, num_axes: int) -> NDArray[np.uint8]:
    """Header, body, and the proof that nothing follows."""
    shape = _read_header(path, stream, num_axes)
    stated = math.prod(shape)
    values = np.empty(stated, dtype=np.uint8)
    view = values.data
    filled = 0
    while filled < stated and (count := stream.readinto(view[filled:])):
        filled += count
    if filled < stated:
        raise DataError(f"{path}: its header states {stated} bytes of data but only {filled} follow; fetch it again.")
    if stream.read(1):
        raise DataError(f"{path}: its header states {stated} bytes of data but more follow; fetch the file again.")
    return values.reshape(shape)


def _read_header(path: Path, stream: io.BufferedIOBase, num_axes: int) -> tuple[int, ...]:
    """The lengths of the axes, refused before anything is allocated by them."""
    header = stream.read(4 + 4 * num_axes)
    expected_magic = bytes([0, 0, _UNSIGNED_BYTE, num_axes])
    if header[:4] != expected_magic:
        raise DataError(
            f"{path}: begins with {header[:4].hex() or 'nothing'}, not {expected_magic.hex()} as idx bytes with"
            f" {num_axes} axes do; put the right file there."
        )
    if len(header) < 4 + 4 * num_axes:
        raise DataError(f"{path}: ends within its header after {len(header)} bytes; fetch the file again.")
    shape = struct.unpack(f">{num_axes}I", header[4:])
    if shape[0] > SAMPLES_MAX or any(not 1 <= side <= _SIDE_MAX for side in shape[1:]) or math.prod(shape) > _BYTES_MAX:
        raise DataError(
            f"{path}: its header states the shape {shape}, beyond {SAMPLES_MAX} samples, {_SIDE_MAX} pixels a side or"
            f" {_BYTES_MAX} bytes; fetch the file again."
        )
    return shape


def idx_sha256(values: NDArray[np.uint8]) -> str:
    """SHA-256 of the idx file that holds exactly these values.

    `read_idx` admits only files that are a header and these bytes, so this is the checksum of the unpacked file
    however it was compressed: a repacked gzip still matches.
    """
    header = bytes([0, 0, _UNSIGNED_BYTE, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return hashlib.sha256(header + np.ascontiguousarray(values).tobytes()).hexdigest()
