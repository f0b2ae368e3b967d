"""Our own form of a trace: a table (CSV, Parquet) with one row per round and client, or an array (NPZ).

A table has the columns `round`, `client`, perhaps `channel`, and either `rate_bps` or `gain_db`. Every round from 0 on
has one row for every client, and for every channel if there is that column. An NPZ file has one array `rates_bps` or
`gains` (linear power gains) of the shape [round, client, channel] or [round, client].
"""

import csv
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.csv_tables import csv_table
from qccf.core.errors import TraceError
from qccf.core.files import opened_regular
from qccf.core.units import db_to_linear
from qccf.wireless.traces.arrays import read_arrays
from qccf.wireless.traces.trace import Trace, require_count

KEYS = ("round", "client", "channel")
VALUES = ("rate_bps", "gain_db")
MAX_INDEX = 10_000_000
NUMBER_TYPES = ("float", "double", *(f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)))
"""What Parquet's columns of numbers are called."""

PANDAS_INDEX = "__index_level_"
"""What pandas calls the row labels that it stores beside the columns."""


def read_table(path: Path, *, num_clients: int, num_channels: int) -> Trace:  # noqa: ARG001 (one signature)
    """A trace in our own form; the ending of the file's name tells which."""
    readers = {".csv": _csv_columns, ".parquet": _parquet_columns}
    if path.suffix == ".npz":
        return _from_arrays(read_arrays(path))
    if path.suffix not in readers:
        raise TraceError("does not end in .csv, .parquet or .npz; for other forms set radio.trace_form.")
    return _from_columns(readers[path.suffix](path))


def _from_arrays(arrays: dict[str, FloatArray]) -> Trace:
    known = [name for name in ("rates_bps", "gains") if name in arrays]
    if len(known) != 1 or len(arrays) != 1:
        raise TraceError(f"holds {', '.join(arrays) or 'nothing'}, but needs one array, rates_bps or gains.")
    values = arrays[known[0]]
    if values.dtype.kind not in "fiu":
        raise TraceError(f"holds {known[0]} of type {values.dtype}, but needs real numbers.")
    values = values.astype(np.float64)
    values = values[:, :, None] if values.ndim == 2 else values
    return Trace(**{known[0]: values})


def _from_columns(columns: dict[str, Any]) -> Trace:
    kinds = [name for name in VALUES if name in columns]
    unknown = sorted(set(columns) - {*KEYS, *VALUES})
    if "round" not in columns or "client" not in columns or len(kinds) != 1 or unknown:
        raise TraceError(
            f"has the columns {', '.join(columns) or '(none)'}, but needs round, client, perhaps channel, and either "
            "rate_bps or gain_db."
        )
    keys = [_index_column(name, columns[name]) for name in KEYS if name in columns]
    if not len(keys[0]):
        raise TraceError("has no rows.")
    shape = tuple(int(column.max()) + 1 for column in keys)
    count = int(np.prod([float(size) for size in shape]))
    require_count(count)
    if count != len(keys[0]) or len(np.unique(np.ravel_multi_index(keys, shape))) != count:
        raise TraceError(
            f"has {len(keys[0])} rows, but {' × '.join(map(str, shape))} = {count} combinations of "
            f"{', '.join(name for name in KEYS if name in columns)} up to the largest: give each exactly one row."
        )
    values = np.empty(shape)
    values[tuple(keys)] = _number_column(kinds[0], columns[kinds[0]])
    values = values[:, :, None] if values.ndim == 2 else values
    return Trace(rates_bps=values) if kinds[0] == "rate_bps" else Trace(gains=db_to_linear(values))


def _number_column(name: str, column: Any) -> FloatArray:
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise TraceError(f"has a value in the column {name} that is not a number.") from None


def _index_column(name: str, column: Any) -> Any:
    numbers = _number_column(name, column)
    if not (np.isfinite(numbers) & (numbers >= 0) & (numbers <= MAX_INDEX) & (numbers == np.floor(numbers))).all():
        raise TraceError(f"has a value in the column {name} that is not a whole number from 0 to {MAX_INDEX:,}.")
    return numbers.astype(np.int64)


def _csv_columns(path: Path) -> dict[str, list[str]]:
    try:
        with opened_regular(path) as opened, TextIOWrapper(opened, encoding="utf-8", newline="") as file:
            names, rows = csv_table(file)
    except (UnicodeDecodeError, csv.Error):
        raise TraceError("is not a CSV file in UTF-8.") from None
    if len(set(names)) < len(names):
        raise TraceError("has a column twice.")
    require_count(len(rows))
    for line, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise TraceError(f"has {len(row)} cells in row {line}, but {len(names)} columns.")
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def _parquet_columns(path: Path) -> dict[str, Any]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise TraceError("needs pyarrow to be read: pip install 'qccf[sim]', or write it as CSV or NPZ.") from None
    try:
        with opened_regular(path) as opened, parquet.ParquetFile(opened) as file:
            schema = file.schema_arrow
            names = [name for name in schema.names if not name.startswith(PANDAS_INDEX)]
            require_count(file.metadata.num_rows * len(names))
            for name in names:
                if str(schema.field(name).type) not in NUMBER_TYPES:
                    raise TraceError(f"has a column {name} of type {schema.field(name).type}, but needs numbers.")
            table = file.read(columns=names)
            return {name: table.column(name).to_numpy() for name in names}
    except TraceError:
        raise
    except Exception as error:  # pyarrow raises several kinds for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TraceError(f"is not a whole Parquet file ({reason}).") from None
