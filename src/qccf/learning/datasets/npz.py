"""NumPy archives from strangers: sizes are checked before anything is unpacked, and nothing is ever unpickled."""

import math
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qccf.learning.datasets.base import DataError

_BYTES_MAX = 2 * 1024**3


def read_npz(path: Path, *keys: str) -> list[NDArray[np.generic]]:
    """The arrays named ``keys``, each with as many bytes as its header states, and together below 2 GiB."""
    try:
        with zipfile.ZipFile(path) as archive:
            stated = sum(_stated_bytes(path, archive, key) for key in keys)
        if stated > _BYTES_MAX:
            raise DataError(
                f"{path}: states {stated} bytes of arrays, above the limit of {_BYTES_MAX}; fetch it again."
            )
        with np.load(path, allow_pickle=False) as arrays:
            return [np.asarray(arrays[key]) for key in keys]
    except KeyError as error:
        raise DataError(f"{path}: holds no {error}; it must hold {', '.join(keys)}.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: is no whole npz archive ({error}); fetch the file again.") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); check the file and its rights."
        ) from error


def _stated_bytes(path: Path, archive: zipfile.ZipFile, key: str) -> int:
    """Bytes of one array, once its header and the archive's directory agree on them.

    NumPy allocates by the header, zipfile unpacks by the directory: a hostile file could lie in either.
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
            raise DataError(f"{path}: array {key} has the unknown npy version {version}; save it with NumPy again.")
        shape, _, dtype = read_header(stream)
        header_bytes = stream.tell()
    if dtype.hasobject or dtype.kind not in "uiU":
        raise DataError(f"{path}: array {key} holds {dtype}, not integers or text; fetch the file again.")
    stated = math.prod(shape) * dtype.itemsize
    if stated != member.file_size - header_bytes:
        raise DataError(
            f"{path}: array {key} states {stated} bytes but {member.file_size - header_bytes} follow; fetch it again."
        )
    return stated


def grey_images(path: Path, array: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The array as grey images, if that is what it is."""
    if array.dtype != np.uint8 or array.ndim != 3:
        raise DataError(f"{path}: images are {array.dtype} of shape {array.shape}, not uint8 [sample, height, width].")
    return array.view(np.uint8)


def integers(path: Path, array: NDArray[np.generic]) -> NDArray[np.int64]:
    """The array as one integer a sample, if that is what it is."""
    if array.dtype.kind not in "ui" or array.ndim != 1:
        raise DataError(f"{path}: labels or writers are {array.dtype} of shape {array.shape}, not integers [sample].")
    return array.astype(np.int64)
