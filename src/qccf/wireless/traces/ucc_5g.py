"""Throughput of real phones: the CSV files of the 5G dataset of University College Cork.

Raca, Leahy, Sreenan, Quinlan: "Beyond Throughput, the Next Generation: a 5G Dataset with Channel and Context Metrics"
(MMSys 2020). A file is one session of the app G-NetTrack Pro with one row per second and, among others, the columns
`Timestamp`, `State` (D while data are transferred, I while idle) and `UL_bitrate` in kbit/s. A missing value is "-".

`radio.trace` is one file or a folder of them. Client i is the session i mod (number of files). A round is a row, in
which the client has the measured uplink rate on every channel; missing values are 0. Sessions are cut to the shortest.
The phones of the dataset mostly downloaded, so that their uplink rates are what an application sent and not what the
link could carry: scale them, or use sessions with uploads.
"""

import csv
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.csv_tables import csv_table
from qccf.core.errors import TraceError
from qccf.core.files import opened_regular
from qccf.wireless.traces.trace import Trace, require_count, trace_files

NEEDED = ("Timestamp", "NetworkMode", "DL_bitrate", "UL_bitrate", "State")
MISSING = "-"
KBPS = 1e3


def read_ucc_5g(path: Path, *, num_clients: int, num_channels: int) -> Trace:  # noqa: ARG001 (one signature)
    """The uplink rates of one or several sessions, dealt to the clients in turn."""
    files = [one for one in trace_files(path) if one.suffix == ".csv"]
    if not files:
        raise TraceError("is a folder without .csv files.")
    sessions = [_uplink_bps(one) for one in files[:num_clients]]
    length = min(len(session) for session in sessions)
    require_count(length * num_clients)
    rates_bps = np.stack([sessions[client % len(sessions)][:length] for client in range(num_clients)], axis=1)
    return Trace(rates_bps=rates_bps[:, :, None])


def _uplink_bps(path: Path) -> FloatArray:
    try:
        with opened_regular(path) as opened, TextIOWrapper(opened, encoding="utf-8", newline="") as file:
            names, rows = csv_table(file)
    except (UnicodeDecodeError, csv.Error):
        raise TraceError(f"has {path.name}, which is not a CSV file in UTF-8.") from None
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise TraceError(f"has no column {missing[0]} in {path.name}: ucc-5g needs {', '.join(NEEDED)}.")
    place = names.index("UL_bitrate")
    cells = [row[place] if place < len(row) else MISSING for row in rows]
    if not cells:
        raise TraceError(f"has no rows in {path.name}.")
    require_count(len(cells))
    try:
        return KBPS * np.array([0.0 if cell in (MISSING, "") else float(cell) for cell in cells])
    except ValueError:
        raise TraceError(f"has a UL_bitrate in {path.name} that is neither a number nor {MISSING!r}.") from None
