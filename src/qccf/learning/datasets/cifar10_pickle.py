"""Safe reader for the official Python batches of CIFAR-10. They are pickles, and a pickle can run any code.

Three restrictions make it safe. Only the opcodes that occur in these files are allowed. Only the names that pickled
NumPy arrays use are allowed, and each stands for a class of this module that only records its arguments, so no code
outside this module runs. The recorded arguments must then describe plain bytes of the right shape.
"""

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import DataError

_ROW_BYTES = 3072

# Opcodes of Python 2 and 3 at protocol 2 for dict, list, tuple, str, bytes, int, bool, None and NumPy arrays.
_ALLOWED_OPCODES = {
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "BININT", "BININT1",
    "BININT2", "LONG1", "NONE", "NEWTRUE", "NEWFALSE", "SHORT_BINSTRING", "BINSTRING", "BINUNICODE", "SHORT_BINBYTES",
    "BINBYTES", "GLOBAL", "REDUCE", "BUILD",
}  # fmt: skip
_MEMO_MAX = 1_000_000


class _RecordedArray:
    """Stands for an array and records its state."""

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _RecordedDtype:
    """Stands for an element type and records its name. Its state is only the byte order, which bytes do not have."""

    def __init__(self, *arguments: object) -> None:
        self.name = arguments[0] if arguments else None

    def __setstate__(self, state: object) -> None:
        return None


class _NdarrayName:
    """Stands for the class `ndarray`, which the files pass to `_reconstruct`. It cannot be called or changed."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a changed ndarray")


class _Latin1Codec:
    """Stands for `codecs.encode`, with which Python 3 writes bytes at protocol 2. Other encodings are refused."""

    __slots__ = ()

    def __call__(self, text: object, encoding: object) -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("a text codec other than latin1")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a changed codec")


_ALLOWED_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _RecordedArray,
    ("numpy._core.multiarray", "_reconstruct"): _RecordedArray,
    ("numpy", "ndarray"): _NdarrayName(),
    ("numpy", "dtype"): _RecordedDtype,
    ("_codecs", "encode"): _Latin1Codec(),
}


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED_NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the name {module + '.' + name!r}") from None


def read_python_batch(path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows of 3072 bytes (red, green, blue plane) and labels of one batch."""
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name not in _ALLOWED_OPCODES:
                raise pickle.UnpicklingError(f"the opcode {opcode.name}")
            # The unpickler would allocate a table of this size.
            if opcode.name == "LONG_BINPUT" and isinstance(argument, int) and argument > _MEMO_MAX:
                raise pickle.UnpicklingError(f"a memo of {argument} entries")
        batch = _RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken pickle can raise any exception
        raise DataError(f"{path}: is not a CIFAR-10 batch ({error}); download the official file.") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path}: contains a {type(batch).__name__}, not a dictionary; download it again.")
    entries = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    labels = entries.get("labels")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise DataError(f"{path}: its 'labels' are not a list of 0..9; download the file again.")
    rows = _rows(path, entries.get("data"), len(labels))
    return rows, np.array(labels, dtype=np.int64)


def _rows(path: Path, recorded: object, num_samples: int) -> NDArray[np.uint8]:
    """The array from its recorded state: version, shape, element type, order, bytes."""
    match recorded:
        case _RecordedArray(
            state=(
                _,
                (int(count), int(width)),
                _RecordedDtype(name=str() | bytes() as dtype),
                column_order,
                bytes(content),
            )
        ):
            pass
        case _:
            raise DataError(f"{path}: its 'data' is not an array with two axes; download the file again.")
    if dtype not in ("u1", b"u1") or (count, width) != (num_samples, _ROW_BYTES):
        raise DataError(
            f"{path}: its 'data' is {dtype!r:.9} of ({count}, {width}), not bytes of ({num_samples}, {_ROW_BYTES});"
            " download the file again."
        )
    if len(content) != num_samples * _ROW_BYTES or num_samples == 0:
        raise DataError(
            f"{path}: its 'data' has {len(content)} bytes for {num_samples} photographs of {_ROW_BYTES};"
            " download the file again."
        )
    return np.frombuffer(content, dtype=np.uint8).reshape((count, width), order="F" if column_order else "C")
