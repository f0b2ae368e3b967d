"""Reader for NumPy archives. Files are treated as hostile: sizes are checked before unpacking; pickles are refused."""

import math
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError
from qccf.learning.datasets.base import reading

_BYTES_MAX = 2 * 1024**3


def read_npz(path: Path, *keys: str) -> list[NDArray[np.generic]]:
    """The arrays named ``keys``, each with as many bytes as its header states, and together at most 2 GiB."""
    try:
        with reading(path), zipfile.ZipFile(path) as archive:
            stated = sum(_stated_bytes(path, archive, key) for key in keys)
            if stated > _BYTES_MAX:
                raise DataError(
                    f"{path}: states {stated} bytes of arrays, above the limit of {_BYTES_MAX}; download it again."
                )
            with np.load(path, allow_pickle=False) as arrays:
                return [np.asarray(arrays[key]) for key in keys]
    except KeyError as error:
        raise DataError(f"{path}: has no {error}; it must have {', '.join(keys)}.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: is not a complete npz archive ({error}); download it again.") from error


def _stated_bytes(path: Path, archive: zipfile.ZipFile, key: str) -> int:
    """Size of one array. Raises if its header and the archive's directory state different sizes.

    NumPy allocates memory by the header and zipfile unpacks by the directory, so both must be right.
    """
    try:
        member = archive.getinfo(f"{key}.npy")
    except KeyError:
        raise KeyError(key) from None
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise DataError(f"{path}: array {key} has the unknown npy version {version}; save it again with NumPy.")
        shape, _, dtype = read_header(stream)
        header_bytes = stream.tell()
    if dtype.hasobject or dtype.kind not in "uiU":
        raise DataError(f"{path}: array {key} contains {dtype}, not integers or text; download the file again.")
    stated = math.prod(shape) * dtype.itemsize
    if stated != member.file_size - header_bytes:
        raise DataError(
            f"{path}: array {key} states {stated} bytes but has {member.file_size - header_bytes}; download it again."
        )
    return stated


def grey_images(path: Path, array: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The array as grey images. Raises if its type or shape is another."""
    if array.dtype != np.uint8 or array.ndim != 3:
        raise DataError(f"{path}: images are {array.dtype} of shape {array.shape}, not uint8 [sample, height, width].")
    return array.view(np.uint8)


def integers(path: Path, array: NDArray[np.generic]) -> NDArray[np.int64]:
    """The array as one integer per sample. Raises if its type or shape is another."""
    if array.dtype.kind not in "ui" or array.ndim != 1:
        raise DataError(f"{path}: labels or writers are {array.dtype} of shape {array.shape}, not integers [sample].")
    return array.astype(np.int64)
