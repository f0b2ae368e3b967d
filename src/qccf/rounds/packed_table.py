"""A table that grows by one round at a time and keeps what differs from the round before.

A client that sat out repeats its row, so the memory of a long run with many clients grows with its participants.
"""

import math
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
Layout = list[tuple[str, str, tuple[int, ...]]]
"""Name, type and shape of each column of one round."""

LEVEL = 1
"""Of zlib: most bytes are zeros, and higher levels save little."""

MOST_ROW_BYTES = 16_384
"""Of a row that is unpacked: a few times what a row can have, so that a damaged or hostile file cannot ask for more."""

PART_ROWS = 100_000
"""Rows that `parts` unpacks at a time."""


class PackedTable(Mapping[str, NDArray[Any]]):
    """The columns of all rounds by name, to the bit; a column is unpacked each time that it is asked for.

    A round is kept as the exclusive or of its bytes with those of the round before, compressed.
    """

    def __init__(self) -> None:
        self._layout: Layout = []
        self._rounds: list[bytes] = []
        self._last = np.zeros(0, dtype=np.uint8)

    def append(self, columns: Columns, before: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Add the rows of a round, as many as in the first.

        A column that begins with this round has the value in `before` in the rounds before. Texts may be longer than
        those before.
        """
        if not self._rounds:
            self._layout = _layout_of(columns)
        elif _layout_of(columns) != self._layout:
            columns = self._widened(columns, before)
        content = np.frombuffer(b"".join(column.tobytes() for column in columns.values()), dtype=np.uint8)
        difference = content ^ self._last if self._rounds else content
        self._rounds.append(zlib.compress(difference.data, LEVEL))
        self._last = content

    def _widened(self, columns: Columns, before: Mapping[str, Any]) -> Columns:
        """These columns with types that hold the rounds before, too, which are packed again if their layout differs."""
        known = {name: (np.dtype(kind), shape) for name, kind, shape in self._layout}
        made, filled = {}, {}
        for name, column in columns.items():
            kind, shape = known.get(name, (np.asarray(before[name]).dtype if name in before else None, column.shape))
            if kind is None or shape != column.shape or kind.kind != column.dtype.kind:
                raise ValueError(f"the column {name} of a round differs from the rounds before: {self._layout}.")
            made[name] = column.astype(np.promote_types(kind, column.dtype))
            if name not in known:
                filled[name] = np.full(shape, before[name])
        if len(made) < len(known) + len(filled):
            raise ValueError(f"a round has the columns {list(columns)}, and those before have {list(known)}.")
        if _layout_of(made) != self._layout:
            again = PackedTable()
            for content in self._contents():
                old = {**self._columns_of(content), **filled}
                again.append({name: old[name].astype(column.dtype) for name, column in made.items()})
            self._layout, self._rounds, self._last = again._layout, again._rounds, again._last
        return made

    def truncate(self, rounds: int) -> None:
        """Drop all rounds but the first ones."""
        if rounds < len(self._rounds):
            del self._rounds[rounds:]
            self._last = self._last_content()

    @property
    def num_rounds(self) -> int:
        return len(self._rounds)

    @property
    def last(self) -> Columns:
        """The rows of the last round."""
        return self._columns_of(self._last)

    @property
    def nbytes(self) -> int:
        """The bytes that the packed rounds take."""
        return sum(map(len, self._rounds))

    def columns(self, *names: str) -> Columns:
        """These columns of all rounds; all columns by default."""
        (part,) = self._unpacked(max(self.num_rounds, 1), names)
        return part

    def parts(self) -> Iterator[Columns]:
        """The whole table, some rounds at a time."""
        rows = self._layout[0][2][0] if self._layout else 0
        return self._unpacked(max(1, PART_ROWS // max(rows, 1)), ())

    def packed(self) -> tuple[Layout, Columns]:
        """What `unpacked` makes the same table of."""
        sizes = np.array([len(part) for part in self._rounds], dtype=np.int64)
        return self._layout, {"sizes": sizes, "content": np.frombuffer(b"".join(self._rounds), dtype=np.uint8)}

    @classmethod
    def unpacked(cls, layout: Any, arrays: Columns, rows: int) -> "PackedTable":
        """The table with this layout, these packed rounds and this number of rows per round; refuses any other."""
        table, content, sizes, start = cls(), arrays["content"], arrays["sizes"], 0
        table._layout = [(name, kind, tuple(shape)) for name, kind, shape in layout]
        fits = all(_is_column(one, rows) for one in table._layout) and (layout or not len(sizes))
        if not fits or table._round_bytes() > rows * MOST_ROW_BYTES:
            raise ValueError(f"the columns are not those of {rows} clients.")
        whole = content.dtype == np.uint8 and sizes.dtype.kind in "iu" and (sizes > 0).all()
        if not whole or content.shape != (sizes.sum(),):
            raise ValueError(f"the sizes of {len(sizes)} packed rounds do not add up to {content.size} bytes.")
        for size in sizes.tolist():
            table._rounds.append(content[start : start + size].tobytes())
            start += size
        table._last = table._last_content()
        return table

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in (known for known, _, _ in self._layout):
            raise KeyError(name)
        return self.columns(name)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _, _ in self._layout)

    def __len__(self) -> int:
        return len(self._layout)

    def _contents(self) -> Iterator[NDArray[np.uint8]]:
        """The bytes of each round."""
        content: NDArray[np.uint8] | None = None
        size = self._round_bytes()
        for packed in self._rounds:
            unpacked = _decompressed(packed, size)
            difference = np.frombuffer(unpacked, dtype=np.uint8)
            content = difference if content is None else content ^ difference
            yield content

    def _last_content(self) -> NDArray[np.uint8]:
        last = deque(self._contents(), maxlen=1)
        return last[0] if last else np.zeros(0, dtype=np.uint8)

    def _unpacked(self, rounds: int, names: tuple[str, ...]) -> Iterator[Columns]:
        """The columns of a number of rounds at a time, the last time of what is left."""
        contents = self._contents()
        for start in range(0, max(self.num_rounds, 1), rounds):
            count = min(rounds, self.num_rounds - start)
            made = {
                name: np.empty((count, *shape), dtype=kind)
                for name, kind, shape in self._layout
                if name in names or not names
            }
            for index in range(count):
                for name, values in self._columns_of(next(contents)).items():
                    if name in made:
                        made[name][index] = values
            yield {name: column.reshape(-1, *column.shape[2:]) for name, column in made.items()}

    def _round_bytes(self) -> int:
        return sum(_size(kind, shape) for _, kind, shape in self._layout)

    def _columns_of(self, content: NDArray[np.uint8]) -> Columns:
        columns, start = {}, 0
        for name, kind, shape in self._layout:
            size = _size(kind, shape)
            columns[name] = content[start : start + size].view(kind).reshape(shape)
            start += size
        return columns


def _layout_of(columns: Columns) -> Layout:
    return [(name, column.dtype.str, column.shape) for name, column in columns.items()]


def _size(kind: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * np.dtype(kind).itemsize


def _is_column(column: tuple[str, str, tuple[int, ...]], rows: int) -> bool:
    """Whether a column of a file can be one of this many clients. Each has bytes, so that sizes cannot cancel."""
    name, kind, shape = column
    lengths = all(type(length) is int and length > 0 for length in shape)
    dtype = np.dtype(kind)
    return isinstance(name, str) and shape[:1] == (rows,) and lengths and dtype.kind in "biufU" and dtype.itemsize > 0


def _decompressed(packed: bytes, size: int) -> bytes:
    """The bytes of a round, exactly `size`. One more is asked for, because 0 would mean any number."""
    stream = zlib.decompressobj()
    unpacked = stream.decompress(packed, size + 1)
    if len(unpacked) != size or not stream.eof or stream.unused_data:
        raise ValueError(f"a round of {size} bytes is packed as something else.")
    return unpacked
