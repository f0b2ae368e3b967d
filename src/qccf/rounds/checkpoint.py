"""Checkpoints: everything that a round passes to the next, and the ledger so far, packed as it is in memory.

A checkpoint is one .npz file without pickles. It holds a fingerprint of its run and a checksum over all its arrays. It
is written whole or not at all, and the previous one is kept. Checkpoints of other runs in the same folder are neither
used nor removed.

A checksum finds damage and not a forger, who can compute it again. So what is read is compared with what a run can have
saved, and with the settings beside it: a checkpoint that does not fit counts as damaged.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.contracts import Statistics
from qccf.core.errors import CheckpointError, FileError, ForeignCheckpointError, QccfError, RunFolderError
from qccf.core.files import leads_out, opened_inside, write_whole
from qccf.learning.aggregation.registry import AGGREGATION_RULES
from qccf.learning.server.registry import SERVER_OPTIMIZERS
from qccf.policies.registry import POLICIES
from qccf.quantization.registry import CODECS
from qccf.rounds.claims import NEVER
from qccf.rounds.ledger import CHARGES, MEASURED, STATISTICS, Ledger
from qccf.rounds.packed_table import Columns, PackedTable
from qccf.rounds.round import ServerState
from qccf.rounds.setup import (
    build_aggregation_rule,
    build_average,
    build_downlink,
    build_policy,
    build_server_optimizer,
    coded_constants,
    scenario_codec,
)
from qccf.rounds.uplink import blank_statistics
from qccf.settings.loading import Scenario, load_scenario

KEPT = 2
FORMAT = 4
"""Raised whenever a checkpoint of the version before can no longer be read."""

SETTINGS = "scenario.toml"
"""The settings of the run, in the folder above the checkpoints."""

ROUND_COLUMNS = {
    "round", "energy_j", "compute_energy_j", "upload_energy_j", *CHARGES, "cumulative_energy_j", "latency_s",
    "participants", "arrived", "missed", "mean_bits", "train_loss", "test_accuracy", "test_loss",
    "participation_queue", "quantization_queue", "error_price", "aggregate_error", "error_budget", "objective",
    "certified_gap",
}  # fmt: skip
CLIENT_COLUMNS = {
    "b": ("able", "participated", "arrived", "missed"),
    "i": ("round", "client", "dataset_size", "channel", "num_bits", "most_bits"),
    "f": (
        "turn", "expected_bits", "payload_bits", "rate_bps", "estimated_rate_bps", "frequency_hz", "power_w",
        "compute_energy_j", "upload_energy_j", *CHARGES, "latency_s", "loss", "gradient_norm_sq", "gradient_variance",
        "weight_range", "kept", *MEASURED,
    ),
}  # fmt: skip
"""What the ledger records, by the kind of the columns. It cannot add a round to a table with other columns."""

LATER_COLUMNS = {"device": "U", "battery_j": "f"}
"""Columns of clients that only some runs have."""


class UnfitError(ValueError):
    """Content of a checkpoint that this run cannot have saved."""


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
        **{f"average/{name}": array for name, array in state.average_state.items()},
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
        names = ("rounds", "clients", "statistics", "known", "optimizer", "rule", "claims", "downlink", "average")
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
            average_state=tables.pop("average"),
        )
        clients, known = (
            PackedTable.unpacked(header["layouts"][name], tables[name], statistics.num_clients)
            for name in ("clients", "statistics")
        )
        _require_tables(tables["rounds"], clients)
        ledger = Ledger.restored(tables["rounds"], clients, known)
        _require_sound(state, ledger)
        settings = _settings_of(path)
        if settings is not None:
            _require_of_run(state, settings)
        return state, ledger
    except UnfitError as error:
        raise CheckpointError(f"{path.name} does not fit its run: {error}.") from None
    except Exception:
        raise _damaged(path) from None


def _require(fits: Any, reason: str) -> None:
    if not fits:
        raise UnfitError(reason)


def _require_array(name: str, array: Any, kind: str, shape: tuple[int, ...]) -> None:
    """Refuse an array of another kind or shape, and one that holds NaN."""
    _require(array.dtype.kind == kind and array.shape == shape, f"{name} has another type or shape")
    _require(not np.isnan(array).any(), f"{name} holds NaN")


def _require_tables(rounds: Columns, clients: PackedTable) -> None:
    """Refuse tables to which the ledger could not add a round, or whose rows are not those of successive rounds."""
    count = clients.num_rounds
    _require(set(rounds) == ROUND_COLUMNS, "it has not the columns of rounds")
    for name, column in rounds.items():
        _require(
            column.dtype.kind in "if" and column.shape == (count,), f"{name} of its rounds is no column of numbers"
        )
    _require(np.array_equal(rounds["round"], np.arange(count)), "its rounds are not successive")
    _require(np.isfinite(rounds["cumulative_energy_j"]).all(), "its energy is not finite")
    last = clients.last
    kinds = {name: kind for kind, names in CLIENT_COLUMNS.items() for name in names}
    kinds |= {name: kind for name, kind in LATER_COLUMNS.items() if name in last}
    found = {name: column.dtype.kind if column.ndim == 1 else "" for name, column in last.items()}
    _require(found == kinds, "it has not the columns of clients")
    rows, places = len(last["client"]), clients.columns("round", "client")
    _require(np.array_equal(places["round"], np.repeat(np.arange(count), rows)), "its clients are of other rounds")
    _require(np.array_equal(places["client"], np.tile(np.arange(rows), count)), "its clients are not in order")


def _require_sound(state: ServerState, ledger: Ledger) -> None:
    """Refuse a state that no run saves."""
    count, weights, statistics = state.statistics.num_clients, state.weights, state.statistics
    _require(type(state.round_index) is int and state.round_index == len(ledger), "its round is not that of its ledger")
    assert weights is not None
    fits = weights.dtype == np.float32 and weights.ndim == 1 and weights.size and np.isfinite(weights).all()
    _require(fits, "its weights are not a vector of finite 32-bit floats")
    for one in fields(Statistics):
        values = getattr(statistics, one.name)
        if values is not None:
            _require_array(one.name, values, "f", (count, *values.shape[1:]))
            _require(np.isfinite(values).all() and (values >= 0.0).all(), f"{one.name} is not finite, or below 0")
    _require_array("doubts", state.doubts, "i", (count,))
    _require((state.doubts >= NEVER).all(), f"doubts are below {NEVER}")
    if state.batteries_j is not None:
        _require_array("batteries_j", state.batteries_j, "f", (count,))
    _require(state.batteries_j is not None or "battery_j" not in ledger.clients, "its batteries are missing")
    for states in (state.optimizer_state, state.rule_state, state.downlink_state, state.average_state):
        _require(all(one.dtype == np.float64 for one in states.values()), "a state is not of 64-bit floats")
    _require(isinstance(state.policy_state, dict), "the state of its policy is not a table")
    known = {column: getattr(statistics, name) for column, name in STATISTICS.items()}
    expected = {name: values for name, values in known.items() if values is not None}
    last = ledger.statistics.last
    _require(list(last) == ["round", "client", *expected], "it has not the columns of statistics")
    for name, column in last.items():
        like = expected.get(name, last["client"])
        fits = column.dtype.kind == ("f" if name in expected else "i") and column.shape == like.shape
        _require(fits, f"{name} of its statistics has another type or shape")


def _settings_of(path: Path) -> Scenario | None:
    """The settings beside the folder of checkpoints; None where there are none that can be read."""
    file = path.parent.parent / SETTINGS
    try:
        return load_scenario(file, renamed=True) if file.is_file() and not leads_out(file, file.parent) else None
    except QccfError:
        return None


def _require_of_run(state: ServerState, scenario: Scenario) -> None:
    """Refuse a state that a run with these settings does not save.

    The states of users' own entries are not known, nor what follows from settings that cannot be used: these are
    refused elsewhere.
    """
    learning, statistics, count = scenario.learning, state.statistics, scenario.federation.num_clients
    size = learning.num_parameters + learning.num_buffers
    assert state.weights is not None
    _require(statistics.num_clients == count, f"it has {statistics.num_clients} clients, not {count}")
    _require(
        not learning.num_parameters or len(state.weights) == size, f"it has {len(state.weights)} weights, not {size}"
    )
    try:
        if scenario.aggregation.rule in AGGREGATION_RULES:
            _require_like("rule", state.rule_state, build_aggregation_rule(scenario).init(count))
        if scenario.server.optimizer in SERVER_OPTIMIZERS:
            first = build_server_optimizer(scenario).init(learning.num_parameters)
            _require_like("optimizer", state.optimizer_state, first)
        average = build_average(scenario)
        _require_like("average", state.average_state, {} if average is None else average.init(len(state.weights)))
        if average is not None:
            weight = float(state.average_state["weight"][0])  # 1 + memory + memory² + …, rounded
            known = weight == 0.0 or 1.0 <= weight <= (1.0 + 1e-9) / (1.0 - average.memory)
            _require(known and np.isfinite(state.average_state["total"]).all(), "its average is not one of models")
        downlink = build_downlink(scenario)
        _require_downlink(state.downlink_state, {} if downlink is None else downlink.init())
        if scenario.codec.name not in CODECS:
            return
        codec = scenario_codec(scenario)
        blank = blank_statistics(statistics.dataset_sizes, codec)
        for one in fields(Statistics):
            known, wanted = (getattr(of, one.name) for of in (statistics, blank))
            _require(np.shape(known) == np.shape(wanted), f"{one.name} is not what {scenario.codec.name} reports")
        if scenario.policy.name in POLICIES:
            policy = build_policy(scenario.policy.name, scenario, coded_constants(scenario, codec))
            _require_policy_state(state.policy_state, policy.init(statistics))
    except QccfError:
        return


def _require_like(name: str, found: Mapping[str, NDArray[Any]], first: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a state whose arrays are not those of the first state."""
    shapes, wanted = ({key: one.shape for key, one in state.items()} for state in (found, first))
    _require(shapes == wanted, f"the state of its {name} is not {wanted}")


def _require_downlink(found: Mapping[str, NDArray[Any]], first: Mapping[str, NDArray[Any]]) -> None:
    """The same for the downlink, whose list of changes grows."""
    grown = {"sizes_bits": found["sizes_bits"]} if first and "sizes_bits" in found else {}
    _require_like("downlink", found, {**first, **grown})
    if first:
        sizes, versions = found["sizes_bits"], found["versions"]
        _require(sizes.ndim == 1 and np.isin(versions, np.arange(-1, len(sizes) + 1)).all(), "its downlink has gaps")


def _require_policy_state(found: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Refuse a state of our own policies that is not of numbers, or lacks a part of the first state.

    Flower keeps the state of the policy beside its own.
    """
    found = found["policy"] if isinstance(found.get("policy"), dict) else found
    for key, value in found.items():
        numbers = value if isinstance(value, list) else [value]
        _require(all(_is_number(one) for one in numbers), f"{key} of its policy is no number")
    for key, value in {**dict.fromkeys(found), **first}.items():  # what a later round adds is a number
        mine = found.get(key)
        listed = isinstance(mine, list) and (not value or len(mine) == len(value))  # an empty list grows
        _require(listed if isinstance(value, list) else _is_number(mine), f"{key} of its policy has another form")


def _is_number(value: Any) -> bool:
    return (type(value) is int and abs(value) < 1 << 62) or (type(value) is float and math.isfinite(value))


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
            clients = PackedTable.unpacked(layout, tables["clients"], rows)
            _require_tables(tables["rounds"], clients)
            tables["clients"] = clients.columns()
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
