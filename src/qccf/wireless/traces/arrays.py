"""Arrays from .npz and .npy files of others: header and size are checked before memory is allocated."""

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from qccf.core.errors import TraceError
from qccf.core.files import opened_regular
from qccf.wireless.traces.trace import MAX_BYTES, require_count

HEADERS: dict[tuple[int, int], Any] = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(path: Path) -> dict[str, Any]:
    """All arrays of an .npz file by name, or the one of an .npy file under the file's name."""
    try:
        if path.suffix == ".npy":
            with opened_regular(path) as file:
                return {path.stem: _array(file, path.stat().st_size)}
        with opened_regular(path) as opened, zipfile.ZipFile(opened) as archive:
            members = archive.infolist()
            if sum(one.file_size for one in members) > MAX_BYTES:
                raise TraceError(f"unpacks to more than {MAX_BYTES:,} bytes: cut it into smaller parts.")
            arrays = {}
            for one in members:
                with archive.open(one) as file:
                    arrays[one.filename.removesuffix(".npy")] = _array(file, one.file_size)
            return arrays
    except (ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"is not a whole file of NumPy arrays ({str(error).splitlines()[0]}).") from None


def _array(file: IO[bytes], size_bytes: int) -> Any:
    version = npy.read_magic(file)
    if version not in HEADERS:
        raise ValueError(f"unknown version {version}")
    shape, fortran, dtype = HEADERS[version](file)
    if dtype.hasobject or dtype.kind not in "fiuc":
        raise TraceError(f"holds an array of type {dtype}, but needs numbers.")
    count = int(np.prod([float(length) for length in shape])) if shape else 1
    require_count(count)
    if count * dtype.itemsize > size_bytes:
        raise ValueError("it ends too early")
    values = np.frombuffer(file.read(count * dtype.itemsize), dtype=dtype)
    if len(values) != count:
        raise ValueError("it ends too early")
    return values.reshape(shape, order="F" if fortran else "C")
