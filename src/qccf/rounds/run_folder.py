"""The folder of a run, written and read here and nowhere else.

| file | content |
|---|---|
| scenario.toml | the settings, with the policy, seed, codec and dataset that ran |
| rounds.parquet | one row per round |
| clients.parquet | one row per client and round |
| statistics.parquet | what the server knew of each client at the start of each round |
| summary.json | the run in a few numbers, with digests of the files above; written last, so the rest is there, too |
| checkpoints/ | the last checkpoints |
| figures/ | pictures |
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qccf.core.errors import QccfError, RunFolderError
from qccf.core.files import leads_out, opened_inside, read_inside, require_inside, write_text_whole, write_whole
from qccf.rounds.checkpoint import newest_tables
from qccf.rounds.packed_table import Columns, PackedTable
from qccf.rounds.run import Run, run_summary
from qccf.settings.loading import Scenario, digest, load_scenario, own_code, own_names, run_digest, scenario_to_toml

SCENARIO, SUMMARY = "scenario.toml", "summary.json"
ROUNDS, CLIENTS, STATISTICS = "rounds.parquet", "clients.parquet", "statistics.parquet"
CHECKPOINTS, FIGURES = "checkpoints", "figures"
DIGESTS = "digests"
"""The key of the summary with the digests of the files."""
DIGESTED = {ROUNDS, CLIENTS, STATISTICS, SCENARIO, SUMMARY}
WITHOUT_DIGESTS = (None, "0.1.0")
"""The versions that wrote none."""


def begin_run(folder: Path, scenario: Scenario) -> None:
    """Write the settings, so that the run can be resumed. A summary of a shorter run is marked as unfinished."""
    text = scenario_to_toml(scenario)
    path = folder / SCENARIO
    if not path.exists() or path.read_bytes() != text.encode():
        write_text_whole(path, text)
    kept = _kept_summary(folder)
    if kept is None:
        return
    summary, digests = kept
    until = scenario.evaluation.until_accuracy
    more = summary.get("finished") and not _has_completed(summary, scenario.federation.rounds, until)
    if more or (digests and digests.get(SCENARIO) != _settings_digest(text)):
        _write_summary(folder, summary | ({"finished": False} if more else {}), digests)


def write_run(folder: Path, run: Run) -> None:
    """Write the tables and the summary."""
    begin_run(folder, run.scenario)
    tables = ((ROUNDS, run.round_columns), (CLIENTS, run.client_columns), (STATISTICS, run.statistics_columns))
    for name, columns in tables:
        _write_table(folder / name, columns)
    digests = {name: _file_digest(folder / name) for name, _ in tables}
    _write_summary(folder, run.summary, digests)


def read_run(folder: Path) -> Run:
    """The run in a folder; refuses one that is not complete or is damaged."""
    if not (folder / SUMMARY).exists() or not (folder / SCENARIO).exists():
        raise RunFolderError(
            f"{folder} holds no complete run, because it has no {SUMMARY} or {SCENARIO}: name the folder of one run."
        )
    try:
        summary, digests = _checked_summary(folder)
        names = [ROUNDS, CLIENTS, *([STATISTICS] if (folder / STATISTICS).exists() or STATISTICS in digests else [])]
        files = {name: read_inside(folder / name, folder) for name in names}
        for name, data in files.items():
            if name in digests and hashlib.sha256(data).hexdigest() != digests[name]:
                raise RunFolderError(f"{name} is damaged, because its checksum does not match")
        tables = {name: _read_table(name, data) for name, data in files.items()}
        run = Run(
            read_scenario(folder), summary, tables[ROUNDS], tables[CLIENTS], tables.get(STATISTICS, {}), folder=folder
        )
        require_consistent(run)
    except (OSError, ValueError, KeyError, TypeError, QccfError) as error:
        reason = str(error).rstrip(".")
        raise RunFolderError(f"{folder} holds no complete run: {reason}; resume it or leave it out.") from None
    if not run.num_rounds:
        raise RunFolderError(f"{folder} holds a run without rounds: resume it or leave it out.")
    return run


def read_progress(folder: Path) -> Run:
    """The run in a folder as far as it has got: its tables if it has ended, else those of its newest checkpoint."""
    summary = read_summary(folder)
    if summary is not None and summary.get("finished", True):
        return read_run(folder)
    scenario = read_scenario(folder)
    found = newest_tables(folder / CHECKPOINTS)
    if found is not None:
        rounds, clients = found[0]["rounds"], found[0]["clients"]
        if len(rounds.get("round", ())) >= (summary or {}).get("rounds", 1):
            about = {"kind": (summary or {}).get("kind", "train"), "finished": False}
            accuracy = rounds["test_accuracy"][np.isfinite(rounds["test_accuracy"])]
            return Run(
                scenario,
                run_summary(scenario, rounds, clients, accuracy=accuracy[-1] if len(accuracy) else np.nan, **about),
                rounds,
                clients,
                folder=folder,
            )
    if summary is not None:
        return read_run(folder)
    raise RunFolderError(f"{folder} holds a run that has not completed a round yet: wait for its first checkpoint.")


def find_begun(folder: Path) -> list[Path]:
    """Every folder at or below this one in which a run has begun."""
    return sorted(path.parent for path in folder.rglob(SCENARIO) if (path.parent / CHECKPOINTS).is_dir()
                  or (path.parent / SUMMARY).exists())  # fmt: skip


def read_scenario(folder: Path, overrides: Iterable[str] = ()) -> Scenario:
    """The settings of the run in a folder, also of a folder that version 0.1 wrote."""
    path = folder / SCENARIO
    if not path.exists():
        raise RunFolderError(f"{folder} holds no run, because it has no {SCENARIO}.")
    read_inside(path, folder)
    return load_scenario(path, overrides, renamed=True)


def held_run(folder: Path) -> Scenario | None:
    """The settings of the run in a folder; None where there is no run."""
    return read_scenario(folder) if (folder / SCENARIO).exists() else None


def require_same_run(folder: Path, scenario: Scenario) -> None:
    """Refuse a folder that holds a run of other settings; how a run is executed does not matter."""
    held = held_run(folder)
    if held is not None and run_digest(held) != run_digest(scenario) and _has_begun(folder):
        raise RunFolderError(
            f"{folder} holds another run ({settings_difference(held, scenario)}): name another folder with --out, or "
            "replace that run with --force."
        )
    code = own_code(scenario)
    if (read_summary(folder) or {}).get("own_code", code) != code:
        named = ", ".join(sorted(set(own_names(scenario).values())))
        raise RunFolderError(
            f"{folder} holds a run of another version of your own code ({named}): name another folder with --out, or "
            "replace that run with --force."
        )


def _has_begun(folder: Path) -> bool:
    """Whether a round of the run in a folder was ever completed; before that there is nothing to lose."""
    return (folder / SUMMARY).exists() or any((folder / CHECKPOINTS).glob("*"))


def settings_difference(held: Scenario, wanted: Scenario) -> str:
    """The first setting in which two runs differ."""
    ours, theirs = _flat(wanted.model_dump()), _flat(held.model_dump())
    unlike = [key for key in ours if ours[key] != theirs.get(key)]
    skipped = ("execution.workers", "execution.checkpoint_every")
    key = next((key for key in unlike if key not in skipped), "")
    return f"{key} = {theirs.get(key)} there, {ours[key]} here" if key else "of other settings"


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def is_finished(folder: Path, rounds: int, until_accuracy: float = 0.0) -> bool:
    """Whether the folder holds a whole run that has completed this number of rounds, or has stopped at this accuracy.

    A damaged one can be resumed.
    """
    if not _has_completed(read_summary(folder) or {}, rounds, until_accuracy):
        return False
    try:
        _, digests = _checked_summary(folder)
        return all(
            _file_digest(folder / name) == known
            for name, known in digests.items()
            if name in (ROUNDS, CLIENTS, STATISTICS)
        )
    except QccfError:
        return False


def holds_results(folder: Path) -> bool:
    """Whether a run has written results here, whole or damaged."""
    return any((folder / name).exists() for name in (SUMMARY, ROUNDS, CLIENTS))


def _has_completed(summary: dict[str, Any], rounds: int, until_accuracy: float) -> bool:
    stopped = until_accuracy > 0.0 and summary.get("stopped_at_accuracy") == until_accuracy
    return bool(summary.get("finished")) and (summary.get("rounds") == rounds or stopped)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of the run in a folder; None where there is none that can be read."""
    kept = _kept_summary(folder)
    return None if kept is None else kept[0]


def require_only_data(folder: Path, held: Scenario) -> None:
    """Refuse to resume a run whose settings name code, or from whose folder a link leads out where it would write.

    A trace and devices are read again to resume a run, if they are the files with which it began.
    """
    for key, name in own_names(held).items():
        raise RunFolderError(
            f"{folder} names code ({key} = {name!r}), and resuming it would run that code: read it, then allow it with "
            "--trust."
        )
    radio, devices = held.radio, held.devices
    traces = [] if radio.trace_digest else [("radio.trace", radio.trace)]
    profiles = [("devices.profile", devices.profile), *(("devices.mix", name) for name in devices.mix)]
    tables = [("devices.table", devices.table), *(one for one in profiles if one[1].endswith(".toml"))]
    for key, name in [*traces, *([] if devices.digest else tables)]:
        if name:
            raise RunFolderError(
                f"{folder} names a file ({key} = {name!r}) without its checksum, and resuming it would read that file: "
                "look at it, then allow it with --trust."
            )
    for name in (CHECKPOINTS, FIGURES, "tensorboard", SCENARIO, SUMMARY):
        require_inside(folder / name, folder)


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Every folder at or below these that holds a run."""
    found: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RunFolderError(
                f"{folder} is not a folder: name one that `qccf run`, `compare` or `reproduce` has written."
            )
        for path in sorted(folder.rglob(ROUNDS)):
            if (path.parent / SUMMARY).exists() and not leads_out(path.parent, folder):
                found[path.parent] = None
    return list(found)


def _kept_summary(folder: Path) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The summary and the digests that it holds; None where there is none that can be read."""
    try:
        tree = json.loads(read_inside(folder / SUMMARY, folder))
    except (QccfError, ValueError, RecursionError):
        return None
    if not isinstance(tree, dict):
        return None
    digests = tree.pop(DIGESTS, {})
    return (tree, digests) if isinstance(digests, dict) else None


def _checked_summary(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The summary and the digests of the tables. Refuses a summary or settings that have changed since."""
    kept = _kept_summary(folder)
    if kept is None or "policy" not in kept[0]:
        read_inside(folder / SUMMARY, folder)  # says why, if it cannot be read
        raise RunFolderError(f"{SUMMARY} is not the summary of a run")
    summary, digests = kept
    if set(digests) != DIGESTED and (digests or summary.get("version") not in WITHOUT_DIGESTS):
        raise RunFolderError(f"{SUMMARY} is damaged, because it has not all checksums")
    if digests:
        if digests.get(SUMMARY) != digest(summary):
            raise RunFolderError(f"{SUMMARY} is damaged, because its checksum does not match")
        if digests.get(SCENARIO) != _settings_digest(read_inside(folder / SCENARIO, folder).decode()):
            raise RunFolderError(f"{SCENARIO} is damaged or of another run, because its checksum does not match")
    return summary, digests


def _write_summary(folder: Path, summary: dict[str, Any], digests: dict[str, str]) -> None:
    own = {
        SCENARIO: _settings_digest((folder / SCENARIO).read_text(encoding="utf-8")),
        SUMMARY: digest(json.loads(json.dumps(summary))),
    }
    write_text_whole(folder / SUMMARY, json.dumps(summary | {DIGESTS: digests | own}, indent=2) + "\n")


def _file_digest(path: Path) -> str:
    """The digest of a file of a run folder, which may be too large to be read at once."""
    with opened_inside(path, path.parent) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _settings_digest(text: str) -> str:
    """The digest of settings as they are written, without those that may differ between two parts of one run."""
    tree = tomllib.loads(text)
    for key in ("workers", "checkpoint_every"):
        tree.get("execution", {}).pop(key, None)
    return digest(tree)


def require_consistent(run: Run) -> None:
    """Refuse tables and a summary that are not those of one run, wherever they come from."""
    rounds, clients = run.num_rounds, run.scenario.federation.num_clients
    lengths = {len(column) for column in run.round_columns.values()}
    if lengths != {rounds} or {len(column) for column in run.client_columns.values()} != {rounds * clients}:
        raise RunFolderError(f"its tables are not those of {rounds} rounds of {clients} clients")
    for table, names in ((run.round_columns, _ROUND_NUMBERS), (run.client_columns, _CLIENT_NUMBERS)):
        for name in names:
            if name in table and table[name].dtype.kind not in "biuf":
                raise RunFolderError(f"the column {name} holds no numbers")
    for key, value in run.summary.items():
        kind = next((kind for kind, keys in _SUMMARY_KINDS.items() if key in keys), object)
        if not isinstance(value, kind) and value is not None:
            raise RunFolderError(f"{key} = {value!r} in {SUMMARY} is not of type {kind.__name__}")
    for finding in run.findings:
        if not isinstance(finding.kind, str) or not isinstance(finding.message, str):
            raise RunFolderError(f"a finding in {SUMMARY} is not of texts")
    privacy = run.summary.get("privacy")
    if privacy is not None:
        for key, kinds in _PRIVACY_KINDS.items():
            if not isinstance(privacy[key], kinds):
                raise RunFolderError(f"privacy.{key} = {privacy[key]!r} in {SUMMARY} is not of its type")
    _ = run.accuracy, run.energy_j, run.mean_bits, run.client_columns["participated"]


_SUMMARY_KINDS: dict[type, tuple[str, ...]] = {
    str: ("data", "dataset", "precision", "device", "version", "policy", "codec", "kind"),
    int: ("seed", "rounds", "finished", "synthetic", "empty_rounds"),
    Real: (
        "test_accuracy", "test_loss", "energy_j", "compute_energy_j", "floor_j", "mean_bits", "participation",
        "missed", "mean_latency_s", "error_ratio", "participation_ratio", "jain",
    ),
    list: ("health",),
    dict: ("packages", "privacy"),
}  # fmt: skip
_PRIVACY_KINDS: dict[str, tuple[type, ...]] = {
    "delta": (Real,),
    "uploads": (int,),
    "epsilon_server": (Real, type(None)),
    "epsilon_models": (Real, type(None)),
    "epsilon_models_unknown": (str,),
}
_ROUND_NUMBERS = ("round", "test_accuracy", "cumulative_energy_j", "mean_bits")
_CLIENT_NUMBERS = ("dataset_size", "participated", "num_bits", "missed", "compute_energy_j", "upload_energy_j")


def _write_table(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    write_whole(path, lambda temporary: _write_parquet(temporary, columns))


def table_bytes(columns: Columns) -> bytes:
    """A table as Parquet."""
    content = BytesIO()
    _write_parquet(content, columns)
    return content.getvalue()


def _write_parquet(target: Path | BytesIO, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write a table; one that is packed is unpacked some rounds at a time. NaN is written as null, as pandas does."""
    import pyarrow as pa
    from pyarrow import parquet

    def arrow(column: NDArray[Any]) -> Any:
        values = pa.array(column.reshape(-1), from_pandas=True)
        if column.ndim == 1:
            return values
        ends = np.arange(0, column.size + 1, column.shape[1], dtype=np.int32)
        return pa.ListArray.from_arrays(ends, values)

    parts = columns.parts() if isinstance(columns, PackedTable) else iter([columns])
    tables = (pa.table({name: arrow(column) for name, column in part.items()}) for part in parts)
    first = next(tables)
    with parquet.ParquetWriter(target, first.schema, write_page_checksum=True) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _read_table(name: str, data: bytes) -> Columns:
    import pyarrow as pa
    from pyarrow import parquet

    def column(values: Any) -> NDArray[Any]:
        if not pa.types.is_list(values.type):
            return np.asarray(values.to_numpy())
        rows = values.combine_chunks()
        return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), -1)

    try:
        table = parquet.read_table(BytesIO(data), page_checksum_verification=True)
        return {name: column(table[name]) for name in table.column_names}
    except Exception as error:  # bytes that are no table fail in many ways
        raise RunFolderError(f"{name} is damaged: {type(error).__name__}") from None
