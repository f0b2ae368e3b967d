"""Where a run can go on from: everything a round hands to the next, and the ledger so far.

A checkpoint is one .npz file (no pickles) with a fingerprint of the run that it belongs to and a checksum over all of
it. It is written whole or not at all, and the one before is kept.
"""

import hashlib
import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import Statistics
from qccf.core.errors import QccfError
from qccf.core.files import write_whole
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import Server

KEPT = 2


class CheckpointError(QccfError):
    """A checkpoint that cannot be used, with the reason."""


def save(folder: Path, server: Server, ledger: Ledger, fingerprint: str) -> Path:
    """Write the checkpoint of a round and drop all but the last ones."""
    known = {name.name: getattr(server.statistics, name.name) for name in fields(Statistics)}
    arrays: dict[str, NDArray[Any]] = {
        "weights": server.weights,
        **{f"statistics/{name}": array for name, array in known.items() if array is not None},
        **{f"rounds/{name}": column for name, column in ledger.rounds().items()},
        **{f"clients/{name}": column for name, column in ledger.clients().items()},
    }
    header = {"fingerprint": fingerprint, "round_index": server.round_index, "policy_state": server.policy_state}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    arrays["checksum"] = np.frombuffer(_digest(arrays), dtype=np.uint8)
    path = folder / f"round-{server.round_index:06d}.npz"

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_whole(path, write)
    for old in sorted(folder.glob("round-*.npz"))[:-KEPT]:
        old.unlink()
    return path


def load(path: Path, fingerprint: str) -> tuple[Server, Ledger]:
    """Read a checkpoint and check that it is whole and belongs to this run."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        checksum = arrays.pop("checksum").tobytes()
        header = json.loads(arrays["header"].tobytes())
    except (OSError, ValueError, KeyError, AttributeError, EOFError, zipfile.BadZipFile):
        raise CheckpointError(f"{path.name} is cut short or damaged.") from None
    if checksum != _digest(arrays):
        raise CheckpointError(f"{path.name} is damaged: its checksum does not match.")
    if header["fingerprint"] != fingerprint:
        raise CheckpointError(f"{path.name} belongs to another config, policy or seed.")
    parts: dict[str, dict[str, NDArray[Any]]] = {"rounds": {}, "clients": {}, "statistics": {}}
    for name, column in arrays.items():
        table, slash, key = name.partition("/")
        if slash:
            parts[table][key] = column
    server = Server(header["round_index"], arrays["weights"], header["policy_state"], Statistics(**parts["statistics"]))
    return server, Ledger.restored(parts["rounds"], parts["clients"])


def latest(folder: Path, fingerprint: str) -> tuple[tuple[Server, Ledger] | None, list[str]]:
    """The newest checkpoint that can be used, and a sentence for each newer one that cannot."""
    complaints: list[str] = []
    for path in sorted(folder.glob("round-*.npz"), reverse=True):
        try:
            return load(path, fingerprint), complaints
        except CheckpointError as error:
            complaints.append(f"{error} The one before is used instead.")
    return None, complaints


def _digest(arrays: dict[str, NDArray[Any]]) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.digest()
