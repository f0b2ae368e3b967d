"""A table of clients, as CSV or Parquet: one row for each, with the figures in which it differs from its profile.

Columns are `profile`, any figure of a profile, and `dataset_size`, `x_m`, `y_m`. A cell of `steps` has pairs of hertz
and watts: `6e8:0.9 1e9:1.6`. A column that is missing, or a cell
that is empty, leaves the figure to the profile. The first row is client 0.
"""

import csv
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from qccf.core.csv_tables import csv_table
from qccf.core.errors import ConfigError
from qccf.core.files import opened_regular, require_regular
from qccf.core.suggest import hint
from qccf.devices.profile import FIGURES, checked_steps, require_figure

PLACES = {"dataset_size": (1.0, 1e8, "samples"), "x_m": (-5e4, 5e4, "metres"), "y_m": (-5e4, 5e4, "metres")}
COLUMNS = ("profile", *FIGURES, "steps", *PLACES)
MAX_CLIENTS = 100_000
MAX_BYTES = 1 << 26


@dataclass(frozen=True)
class ClientsTable:
    """The rows of a table, each with what it states."""

    rows: tuple[Mapping[str, Any], ...]

    def column(self, name: str) -> list[float] | None:
        """A column that is stated for every client, or for none."""
        values = [row.get(name) for row in self.rows]
        missing = [index for index, value in enumerate(values) if value is None]
        if len(missing) == len(values):
            return None
        if missing:
            raise ConfigError(f"{name} is missing in row {missing[0] + 1}: state it for every client, or for none.")
        return [float(value) for value in values]  # type: ignore[arg-type]


def read_clients(path: str) -> ClientsTable:
    """Read and check a table of clients."""
    place = Path(path)
    try:
        require_regular(place)
        stat = place.stat()
        if stat.st_size > MAX_BYTES:
            raise ConfigError(f"has {stat.st_size:,} bytes, more than {MAX_BYTES:,}: leave out columns.")
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise ConfigError(f"devices.table = {path!r} cannot be read: {error.strerror or 'it is no file'}.") from None
    except ConfigError as error:
        raise ConfigError(f"devices.table = {path!r}: {error}") from None


def files_digest(paths: Sequence[str]) -> str:
    """SHA-256 of the content of these files; empty where there are none, or one cannot be read."""
    total = hashlib.sha256()
    try:
        for path in paths:
            with opened_regular(Path(path)) as file:
                if os.fstat(file.fileno()).st_size > MAX_BYTES:
                    return ""  # it is refused where it is read
                total.update(hashlib.file_digest(file, "sha256").digest())
    except OSError:
        return ""
    return total.hexdigest() if paths else ""


@lru_cache(maxsize=4)
def _read(path: str, _changed: int, _size: int) -> ClientsTable:
    readers = {".csv": _csv_rows, ".parquet": _parquet_rows}
    place = Path(path)
    if place.suffix not in readers:
        raise ConfigError("it does not end in .csv or .parquet.")
    names, rows = readers[place.suffix](place)
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(f"{name!r} is not a column of clients; {hint(name, COLUMNS)}")
    if len(set(names)) < len(names):
        raise ConfigError("it has a column twice.")
    if ("x_m" in names) != ("y_m" in names):
        raise ConfigError("x_m and y_m are a position together: give both columns, or none.")
    if not 0 < len(rows) <= MAX_CLIENTS:
        raise ConfigError(f"it has {len(rows):,} rows: give one for each client, at most {MAX_CLIENTS:,}.")
    return ClientsTable(tuple(_checked(dict(zip(names, row, strict=True)), index) for index, row in enumerate(rows)))


def _checked(cells: dict[str, Any], index: int) -> Mapping[str, Any]:
    try:
        return {name: _value(name, cell) for name, cell in cells.items() if not _is_empty(cell)}
    except ConfigError as error:
        raise ConfigError(f"row {index + 1}: {error}") from None


def _is_empty(cell: Any) -> bool:
    return (
        cell is None or (isinstance(cell, str) and not cell.strip()) or (isinstance(cell, float) and math.isnan(cell))
    )


def _value(name: str, cell: Any) -> Any:
    if name == "profile":
        return str(cell).strip()
    if name == "cycles_per_sample" and cell == "auto":
        return "auto"
    if name == "steps":
        return checked_steps(_pairs(cell) if isinstance(cell, str) else cell)
    try:
        number = float(cell)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} = {cell!r} is not a number.") from None
    if isinstance(cell, bool):
        raise ConfigError(f"{name} = {cell!r} is not a number.")
    if name in FIGURES:
        return require_figure(name, number)
    least, most, unit = PLACES[name]
    if not least <= number <= most or (name == "dataset_size" and number != int(number)):
        whole = "a whole number " if name == "dataset_size" else ""
        raise ConfigError(
            f"{name} = {number:g} is out of range: it must be {whole}from {least:g} to {most:g}, in {unit}."
        )
    return number


def _pairs(cell: str) -> list[list[float]]:
    """The pairs of numbers in `6e8:0.9 1e9:1.6`."""
    try:
        pairs = [[float(number) for number in pair.split(":")] for pair in cell.split()]
    except ValueError:
        pairs = []
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ConfigError(
            f"steps = {cell!r} is no list of hertz:watts: separate pairs by spaces, such as 6e8:0.9 1e9:1.6."
        )
    return pairs


def _csv_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with opened_regular(path) as opened, TextIOWrapper(opened, encoding="utf-8", newline="") as file:
            names, rows = csv_table(file)
    except (UnicodeDecodeError, csv.Error):
        raise ConfigError("it is not a CSV file in UTF-8.") from None
    if not names:
        raise ConfigError("it is empty: begin with a line of column names.")
    for index, row in enumerate(rows):
        if len(row) != len(names):
            raise ConfigError(f"row {index + 1} has {len(row)} cells, but there are {len(names)} columns.")
    return names, rows


def _parquet_rows(path: Path) -> tuple[list[str], list[Any]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigError("it needs pyarrow to be read: pip install 'qccf[sim]', or write it as CSV.") from None
    try:
        with opened_regular(path) as opened, parquet.ParquetFile(opened) as file:
            if file.metadata.num_rows > MAX_CLIENTS:
                raise ConfigError(f"it has {file.metadata.num_rows:,} rows, more than {MAX_CLIENTS:,} clients.")
            names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
            columns = [file.read(columns=[name]).column(name).to_pylist() for name in names]
    except ConfigError:
        raise
    except Exception as error:  # pyarrow raises several kinds for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"it is not a whole Parquet file ({reason}).") from None
    return names, list(zip(*columns, strict=True))
