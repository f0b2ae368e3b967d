"""Checkpoints: everything that a round passes to the next, and the ledger so far, packed as it is in memory.

A checkpoint is one .npz file without pickles. It holds a fingerprint of its run and a checksum over all its arrays. It
is written whole or not at all, and the previous one is kept. Checkpoints of other runs in the same folder are neither
used nor removed.
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
from qccf.core.errors import CheckpointError, FileError, ForeignCheckpointError, RunFolderError
from qccf.core.files import opened_inside, write_whole
from qccf.rounds.ledger import Ledger
from qccf.rounds.packed_table import Columns, PackedTable
from qccf.rounds.round import ServerState

KEPT = 2
FORMAT = 3
"""Raised whenever a checkpoint of the version before can no longer be read."""


def save(folder: Path, state: ServerState, ledger: Ledger, fingerprint: str) -> Path:
    """Write the checkpoint of a round and remove this run's checkpoints of earlier rounds, except the last ones."""
    assert state.weights is not None
    known = {one.name: getattr(state.statistics, one.name) for one in fields(Statistics)}
    packed = {"clients": ledger.clients.packed(), "statistics": ledger.statistics.packed()}
    arrays: dict[str, NDArray[Any]] = {
        "weights": state.weights,
        "claims/doubts": state.doubts,
        **{f"known/{name}": array for name, array in known.items() if array is not None},
        **{f"optimizer/{name}": array for name, array in state.optimizer_state.items()},
        **{f"rule/{name}": array for name, array in state.rule_state.items()},
        **{f"downlink/{name}": array for name, array in state.downlink_state.items()},
        **{f"rounds/{name}": column for name, column in ledger.rounds().items()},
        **{f"{table}/{name}": array for table, (_, arrays) in packed.items() for name, array in arrays.items()},
    }
    if state.batteries_j is not None:
        arrays["batteries_j"] = state.batteries_j
    header = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "round_index": state.round_index,
        "policy_state": state.policy_state,
        "layouts": {table: layout for table, (layout, _) in packed.items()},
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    arrays["checksum"] = np.frombuffer(_digest(arrays), dtype=np.uint8)
    path = folder / f"round-{state.round_index:06d}.npz"

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_whole(path, write)
    earlier = sorted(old for old in folder.glob("round-*.npz") if old.name <= path.name)
    for old in earlier[:-KEPT]:
        if _fingerprint_of(old) == fingerprint:
            old.unlink()
    return path


def load(path: Path, fingerprint: str) -> tuple[ServerState, Ledger]:
    """Read a checkpoint and check that it is whole and belongs to this run."""
    arrays = _read(path)
    try:
        checksum = arrays.pop("checksum").tobytes()
        header = json.loads(arrays["header"].tobytes())
        whole = checksum == _digest(arrays)
        version, owner = header.get("format", 1), header.get("fingerprint")
    except Exception:  # as in `_read`
        raise _damaged(path) from None
    if not whole:
        raise CheckpointError(f"{path.name} is damaged: its checksum does not match.")
    if version != FORMAT:
        raise RunFolderError(
            f"{path} was written by another version of qccf (format {version}, not {FORMAT}): resume the run with that "
            "version, or start it again in another folder."
        )
    if owner != fingerprint:
        raise ForeignCheckpointError(f"{path.name} belongs to another config, policy or seed.")
    try:
        names = ("rounds", "clients", "statistics", "known", "optimizer", "rule", "claims", "downlink")
        tables: dict[str, Columns] = {name: {} for name in names}
        for name, column in arrays.items():
            table, slash, key = name.partition("/")
            if slash:
                tables[table][key] = column
        statistics = Statistics(**tables.pop("known"))
        doubts = tables.pop("claims").get("doubts", np.zeros(statistics.num_clients, dtype=np.int64))
        state = ServerState(
            header["round_index"],
            arrays["weights"],
            header["policy_state"],
            statistics,
            optimizer_state=tables.pop("optimizer"),
            rule_state=tables.pop("rule"),
            batteries_j=arrays.get("batteries_j"),
            doubts=doubts,
            downlink_state=tables.pop("downlink"),
        )
        clients, known = (
            PackedTable.unpacked(header["layouts"][name], tables[name], statistics.num_clients)
            for name in ("clients", "statistics")
        )
        return state, Ledger.restored(tables["rounds"], clients, known)
    except Exception:
        raise _damaged(path) from None


def _read(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """These arrays of a file, or all. One changed bit in a zip file makes its reader fail in many ways."""
    try:
        with opened_inside(path, path.parent) as file:
            with zipfile.ZipFile(file) as directory:
                if sum(one.file_size for one in directory.infolist()) > path.stat().st_size:
                    raise _damaged(path)  # we store, so a checkpoint cannot grow
            file.seek(0)
            with np.load(file, allow_pickle=False) as opened:
                return {name: opened[name] for name in names or opened.files}
    except FileError as error:
        raise CheckpointError(str(error)) from None
    except Exception:
        raise _damaged(path) from None


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(f"{path.name} is cut short or damaged.")


def latest(folder: Path, fingerprint: str) -> tuple[tuple[ServerState, Ledger] | None, list[str]]:
    """This run's newest usable checkpoint, and one sentence for each newer one of its own that is damaged.

    Without a usable one there is a sentence for every checkpoint in the folder, and the damaged ones come first.
    """
    damaged: list[str] = []
    foreign: list[str] = []
    for path in sorted(folder.glob("round-*.npz"), reverse=True):
        try:
            found = load(path, fingerprint)
            return found, [f"{sentence} {path.name} is used instead." for sentence in damaged]
        except ForeignCheckpointError as error:
            foreign.append(str(error))
        except CheckpointError as error:
            damaged.append(str(error))
    return None, damaged + foreign


def newest_tables(folder: Path) -> tuple[dict[str, Columns], list[Path]] | None:
    """The ledger's tables of rounds and clients in the newest checkpoint that can be read, and the checkpoints.

    They are read without a check of whose they are, to show a run while it is running.
    """
    paths = sorted(folder.glob("round-*.npz"))
    for path in reversed(paths):
        try:
            arrays = _read(path)
            tables: dict[str, Columns] = {"rounds": {}, "clients": {}}
            for name, column in arrays.items():
                table, _, key = name.partition("/")
                if table in tables:
                    tables[table][key] = column
            layout = json.loads(arrays["header"].tobytes())["layouts"]["clients"]
            rows = len(arrays["known/dataset_sizes"])
            tables["clients"] = PackedTable.unpacked(layout, tables["clients"], rows).columns()
        except Exception:  # as in `_read`; or a checkpoint of another version
            continue
        return tables, paths
    return None


def holds_foreign(folder: Path, fingerprint: str) -> bool:
    """Whether the folder holds a checkpoint of another run."""
    return any(_fingerprint_of(path) not in (None, fingerprint) for path in folder.glob("round-*.npz"))


def _fingerprint_of(path: Path) -> str | None:
    """The run that a checkpoint belongs to; None if it is damaged."""
    try:
        return str(json.loads(_read(path, "header")["header"].tobytes())["fingerprint"])
    except Exception:  # as in `_read`
        return None


def _digest(arrays: dict[str, NDArray[Any]]) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.view(np.uint8).data if array.nbytes else b"")
    return digest.digest()
