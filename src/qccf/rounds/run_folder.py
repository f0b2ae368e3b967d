"""The folder of a run, written and read here and nowhere else.

| file | content |
|---|---|
| scenario.toml | the settings, with the policy, seed, codec and dataset that ran |
| rounds.parquet | one row per round |
| clients.parquet | one row per client and round |
| statistics.parquet | what the server knew of each client at the start of each round |
| summary.json | the run in a few numbers; written last, so that its presence means that the rest is there |
| checkpoints/ | the last checkpoints |
| figures/ | pictures |
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qccf.core.errors import QccfError, RunFolderError
from qccf.core.files import write_text_whole, write_whole
from qccf.rounds.checkpoint import newest_tables
from qccf.rounds.ledger import Columns
from qccf.rounds.run import Run, run_summary
from qccf.settings.loading import Scenario, load_scenario, run_digest, scenario_to_toml

SCENARIO, SUMMARY = "scenario.toml", "summary.json"
ROUNDS, CLIENTS, STATISTICS = "rounds.parquet", "clients.parquet", "statistics.parquet"
CHECKPOINTS, FIGURES = "checkpoints", "figures"


def begin_run(folder: Path, scenario: Scenario) -> None:
    """Write the settings, so that the run can be resumed. A summary of fewer rounds is marked as unfinished."""
    write_text_whole(folder / SCENARIO, scenario_to_toml(scenario))
    summary = read_summary(folder)
    if summary is not None and summary.get("rounds") != scenario.federation.rounds and summary.get("finished"):
        write_text_whole(folder / SUMMARY, json.dumps(summary | {"finished": False}, indent=2) + "\n")


def write_run(folder: Path, run: Run) -> None:
    """Write the tables and the summary."""
    begin_run(folder, run.scenario)
    tables = ((ROUNDS, run.round_columns), (CLIENTS, run.client_columns), (STATISTICS, run.statistics_columns))
    for name, columns in tables:
        _write_table(folder / name, columns)
    write_text_whole(folder / SUMMARY, json.dumps(run.summary, indent=2) + "\n")


def read_run(folder: Path) -> Run:
    """The run in a folder; refuses one that is not complete."""
    if not (folder / SUMMARY).exists() or not (folder / SCENARIO).exists():
        raise RunFolderError(
            f"{folder} holds no complete run, because it has no {SUMMARY} or {SCENARIO}: name the folder of one run."
        )
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        rounds, clients = _read_table(folder / ROUNDS), _read_table(folder / CLIENTS)
        known = _read_table(folder / STATISTICS) if (folder / STATISTICS).exists() else {}
        run = Run(read_scenario(folder), summary, rounds, clients, known, folder=folder)
        _ = run.num_rounds, run.accuracy, run.energy_j, run.mean_bits, clients["participated"]
    except (OSError, ValueError, KeyError, TypeError, QccfError) as error:
        raise RunFolderError(f"{folder} holds no complete run: {error}; resume it or leave it out.") from None
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
    return load_scenario(path, overrides, renamed=True)


def held_run(folder: Path) -> Scenario | None:
    """The settings of the run in a folder; None where there is no run."""
    return read_scenario(folder) if (folder / SCENARIO).exists() else None


def require_same_run(folder: Path, scenario: Scenario) -> None:
    """Refuse a folder that holds a run of other settings; how a run is executed does not matter."""
    held = held_run(folder)
    if held is not None and run_digest(held) != run_digest(scenario):
        raise RunFolderError(
            f"{folder} holds another run ({settings_difference(held, scenario)}): name another folder with --out, or "
            "replace that run with --force."
        )


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


def is_finished(folder: Path, rounds: int) -> bool:
    """Whether the folder holds a run that has completed this number of rounds."""
    summary = read_summary(folder) or {}
    return bool(summary.get("finished")) and summary.get("rounds") == rounds


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of the run in a folder; None where there is none that can be read."""
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Every folder at or below these that holds a run."""
    found: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RunFolderError(
                f"{folder} is not a folder: name one that `qccf run`, `compare` or `reproduce` has written."
            )
        for path in sorted(folder.rglob(ROUNDS)):
            if (path.parent / SUMMARY).exists():
                found[path.parent] = None
    return list(found)


def _write_table(path: Path, columns: Columns) -> None:
    def write(temporary: Path) -> None:
        temporary.write_bytes(table_bytes(columns))

    write_whole(path, write)


def table_bytes(columns: Columns) -> bytes:
    """A table as Parquet."""
    import pandas as pd

    frame = pd.DataFrame({name: list(column) if column.ndim > 1 else column for name, column in columns.items()})
    content: bytes = frame.to_parquet(None, index=False)
    return content


def _read_table(path: Path) -> Columns:
    import pandas as pd

    frame = pd.read_parquet(path)
    columns = {str(name): frame[name].to_numpy() for name in frame.columns}
    return {
        name: np.stack(list(column)) if column.dtype == object and len(column) and hasattr(column[0], "__len__")
        and not isinstance(column[0], str) else column
        for name, column in columns.items()
    }  # fmt: skip
