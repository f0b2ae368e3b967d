"""The official Python batches of CIFAR-10 are pickles, and a pickle is a program: this runs only the harmless part.

Three fences. Only the instructions that those files are made of are admitted. Only NumPy's three names for rebuilding
an array are admitted, and even those stand for note-takers of ours, so no code of NumPy or of anybody runs on behalf
of the file. What the note-takers wrote down must then describe plain bytes of the right shape.
"""

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.learning.datasets.base import DataError

_ROW_BYTES = 3072

# What Python 2 and 3 write at protocol 2 for dict, list, tuple, str, bytes, int, bool and None, and for arrays of them.
_ADMITTED_OPCODES = {
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "BININT", "BININT1",
    "BININT2", "LONG1", "NONE", "NEWTRUE", "NEWFALSE", "SHORT_BINSTRING", "BINSTRING", "BINUNICODE", "SHORT_BINBYTES",
    "BINBYTES", "GLOBAL", "REDUCE", "BUILD",
}  # fmt: skip
_MEMO_MAX = 1_000_000


class _ArrayNote:
    """Stands for an array: keeps the state that the file would have set."""

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _DtypeNote:
    """Stands for an element type: keeps its name; the state adds only byte order, which single bytes have not."""

    def __init__(self, *arguments: object) -> None:
        self.name = arguments[0] if arguments else None

    def __setstate__(self, state: object) -> None:
        return None


class _NdarrayName:
    """Stands for the class `ndarray`, which the files hand to the reconstructor; neither to be called nor changed."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a changed ndarray")


class _Latin1Codec:
    """How Python 3 spells bytes at protocol 2; any other use of a codec is refused."""

    __slots__ = ()

    def __call__(self, text: object, encoding: object) -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("a text codec other than latin1")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a changed codec")


_ADMITTED_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _ArrayNote,
    ("numpy._core.multiarray", "_reconstruct"): _ArrayNote,
    ("numpy", "ndarray"): _NdarrayName(),
    ("numpy", "dtype"): _DtypeNote,
    ("_codecs", "encode"): _Latin1Codec(),
}


class _Fenced(pickle.Unpickler):
    """An unpickler that knows five names."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for an admitted name."""
        try:
            return _ADMITTED_NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the name {module + '.' + name!r}") from None


def read_python_batch(path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows of 3072 bytes (red, green, blue plane) and labels of one batch."""
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name not in _ADMITTED_OPCODES:
                raise pickle.UnpicklingError(f"the instruction {opcode.name}")
            # The unpickler would allocate a table up to this number.
            if opcode.name == "LONG_BINPUT" and isinstance(argument, int) and argument > _MEMO_MAX:
                raise pickle.UnpicklingError(f"a memo of {argument} places")
        batch = _Fenced(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken pickle can raise anything at all; nothing of it was run
        raise DataError(f"{path}: is no CIFAR-10 batch ({error}); fetch the official file.") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path}: holds a {type(batch).__name__}, not a dictionary; fetch the file again.")
    entries = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    labels = entries.get("labels")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise DataError(f"{path}: its 'labels' are no list of 0..9; fetch the file again.")
    rows = _rows(path, entries.get("data"), len(labels))
    return rows, np.array(labels, dtype=np.int64)


def _rows(path: Path, note: object, num_samples: int) -> NDArray[np.uint8]:
    """The array that the file described, built by us: version, shape, element type, order, bytes."""
    match note:
        case _ArrayNote(
            state=(_, (int(count), int(width)), _DtypeNote(name=str() | bytes() as dtype), column_order, bytes(content))
        ):
            pass
        case _:
            raise DataError(f"{path}: its 'data' is no array of two axes; fetch the file again.")
    if dtype not in ("u1", b"u1") or (count, width) != (num_samples, _ROW_BYTES):
        raise DataError(
            f"{path}: its 'data' is {dtype!r:.9} of ({count}, {width}), not bytes of ({num_samples}, {_ROW_BYTES});"
            " fetch the file again."
        )
    if len(content) != num_samples * _ROW_BYTES or num_samples == 0:
        raise DataError(
            f"{path}: its 'data' has {len(content)} bytes for {num_samples} photographs of {_ROW_BYTES};"
            " fetch the file again."
        )
    return np.frombuffer(content, dtype=np.uint8).reshape((count, width), order="F" if column_order else "C")
