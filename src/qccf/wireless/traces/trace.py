"""A trace of rates or gains, checked before use: files come from others."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.errors import TraceError
from qccf.core.files import opened_regular, require_regular

MAX_BYTES = 2**30
MAX_TEXT_BYTES = 2**26
"""Of a CSV file, whose cells take some ten times as much memory while they are read."""

MAX_VALUES = 50_000_000
MAX_RATE_BPS = 1e13
MAX_GAIN = 1.0
"""No passive channel delivers more than was sent."""

TraceEnd = Literal["wrap", "stop"]


@dataclass(frozen=True, eq=False)
class Trace:
    """Rates or power gains [round, client, channel]; an array with one channel serves all channels alike.

    Exactly one of the two is given. A value of 0 means that there is no link.
    """

    rates_bps: FloatArray | None = None
    gains: FloatArray | None = None

    @property
    def values(self) -> FloatArray:
        values = self.rates_bps if self.gains is None else self.gains
        assert values is not None
        return values

    @property
    def num_rounds(self) -> int:
        return len(self.values)

    def at(self, values: FloatArray, round_index: int, num_channels: int) -> FloatArray:
        """A round's values [client, channel]; the trace begins again after its last round."""
        one = values[round_index % len(values)]
        return np.broadcast_to(one, (len(one), num_channels)).copy()


def checked_trace(trace: Trace, *, num_clients: int, num_channels: int, num_rounds: int, end: TraceEnd) -> Trace:
    """The trace, if it fits the federation and holds possible numbers."""
    values = trace.values
    kind, most = ("rate", MAX_RATE_BPS) if trace.gains is None else ("gain", MAX_GAIN)
    if values.ndim != 3 or values.size == 0:
        raise TraceError(f"has the shape {values.shape}, which is not [round, client, channel].")
    _, clients, channels = values.shape
    if clients != num_clients:
        raise TraceError(
            f"has {clients} clients, but federation.num_clients = {num_clients}: set it to {clients}, or use another "
            "trace."
        )
    if channels not in (1, num_channels):
        raise TraceError(
            f"has {channels} channels, but radio.num_channels = {num_channels}: set it to {channels}, or give one "
            "value for all channels."
        )
    wrong = ~(np.isfinite(values) & (values >= 0.0) & (values <= most))
    if wrong.any():
        n, client, channel = (int(index[0]) for index in np.nonzero(wrong))
        raise TraceError(
            f"has a {kind} of {values[n, client, channel]:g} in round {n} for client {client}: it must be from 0 to "
            f"{most:g}."
        )
    if not values.any():
        raise TraceError(f"has no {kind} above 0, so nobody could ever upload.")
    if end == "stop" and len(values) < num_rounds:
        raise TraceError(
            f"ends after {len(values)} rounds, but federation.rounds = {num_rounds}: lower it, or set radio.trace_end "
            '= "wrap".'
        )
    return trace


def require_size(path: Path) -> None:
    """Refuse a file that is too large to be read, and what is not a file."""
    require_regular(path)
    size, most = path.stat().st_size, MAX_TEXT_BYTES if path.suffix == ".csv" else MAX_BYTES
    if size > most:
        remedy = "write it as Parquet or NPZ, or cut it" if path.suffix == ".csv" else "cut it into smaller parts"
        raise TraceError(f"has {size:,} bytes in {path.name}, more than {most:,}: {remedy}.")


def require_count(count: int) -> None:
    """Refuse more values than fit in memory."""
    if count > MAX_VALUES:
        raise TraceError(f"has {count:,} values, more than {MAX_VALUES:,}: cut it, or give one value for all channels.")


def trace_files(path: Path) -> list[Path]:
    """The file, or the files of a folder in the order of their names."""
    return sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]


def trace_digest(name: str) -> str:
    """SHA-256 of a trace's content, and of the names of its files if it is a folder; empty if it cannot be read."""
    try:
        files = trace_files(Path(name))
        for one in files:
            require_size(one)
        return _digest(tuple((str(one), one.stat().st_mtime_ns, one.stat().st_size) for one in files))
    except (OSError, TraceError):
        return ""


@lru_cache(maxsize=16)
def _digest(files: tuple[Any, ...]) -> str:
    total = hashlib.sha256()
    for name, _, _ in files:
        with opened_regular(Path(name)) as file:
            own = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(own.encode() if len(files) == 1 else f"{Path(name).name} {own}\n".encode())
    return total.hexdigest()
