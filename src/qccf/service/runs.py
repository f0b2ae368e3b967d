"""The runs below the folder of the service, also while they are written.

A run is named by a digest of its place, so that no request names a path.
"""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.errors import QccfError, RunFolderError
from qccf.core.files import is_held
from qccf.reports.figures.builders import BITS_LABEL, client_bits
from qccf.reports.figures.chart import Chart, Panel, Series, chart_to_json
from qccf.reports.figures.style import MARKERS, PALETTE
from qccf.rounds.run import Run, health_sentences
from qccf.rounds.run_folder import CHECKPOINTS, SUMMARY, find_begun, read_progress, read_summary
from qccf.rounds.world import scenario_cell
from qccf.service.answers import RefusedError
from qccf.service.setup import Setup

SPARK_POINTS = 40
STALE_CHECKPOINTS = 5.0
LEAST_STALE_S = 60.0
"""A run counts as stopped if no process holds its folder and its last checkpoint is older than this, and than so many
times the time between two checkpoints."""
MOST_RUNS = 32
"""Runs that are kept in memory. The rows of the list are small, and all are kept."""

Row = dict[str, Any]

_RUNS: dict[Path, tuple[int, Run]] = {}
_ROWS: dict[Path, tuple[int, Row]] = {}


def run_name(folder: Path, root: Path) -> str:
    return hashlib.sha256(folder.relative_to(root).as_posix().encode()).hexdigest()[:16]


def folders(setup: Setup) -> dict[str, Path]:
    """The folder of each run by its name."""
    return {run_name(one, setup.runs): one for one in find_begun(setup.runs)} if setup.runs.is_dir() else {}


def found_folder(name: str, setup: Setup) -> Path:
    folder = folders(setup).get(name)
    if folder is None:
        raise RefusedError(404, "there is no run of this name.")
    return folder


def changed_at(folder: Path) -> int:
    """When a run was written last, in nanoseconds; 0 if it has written nothing."""
    written = [_written_at(folder / SUMMARY), *(at for _, at in _checkpoints(folder))]
    return max(written)


def _checkpoints(folder: Path) -> list[tuple[int, int]]:
    """The round of each checkpoint and when it was written, in nanoseconds."""
    named = ((file.stem.partition("-")[2], file) for file in (folder / CHECKPOINTS).glob("round-*.npz"))
    found = sorted((int(number), _written_at(file)) for number, file in named if number.isdecimal())
    return [(number, at) for number, at in found if at]


def _written_at(file: Path) -> int:
    """0 if there is no such file; a running run removes its old checkpoints."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def run_in(folder: Path) -> Run:
    """The run in a folder; it is read again only after it was written."""
    at = changed_at(folder)
    known = _RUNS.pop(folder, None)
    run = known[1] if known is not None and known[0] == at else _read(folder)
    _RUNS[folder] = at, run  # the last place: it was used last
    if len(_RUNS) > MOST_RUNS:
        del _RUNS[next(iter(_RUNS))]
    return run


def _read(folder: Path) -> Run:
    """Refuses what cannot be read with a sentence that names no path of the server."""
    try:
        return read_progress(folder)
    except QccfError as error:
        raise RunFolderError(str(error).replace(str(folder), folder.name)) from None
    except (OSError, ValueError, KeyError, TypeError, IndexError):  # a folder may come from somebody else
        raise RunFolderError(f"{folder.name} holds files that no run has written: leave it out.") from None


def list_answer(setup: Setup) -> list[Row]:
    """All runs, the one that was written last first."""
    found = folders(setup)
    for gone in _ROWS.keys() - set(found.values()):
        del _ROWS[gone]
    listed = []
    for name, folder in found.items():
        place = folder.relative_to(setup.runs).as_posix()
        row = _row(folder)
        listed.append({"id": name, "name": place, "changed": changed_at(folder) / 1e9} | row | _course(row, folder))
    return sorted(listed, key=lambda one: -float(one["changed"]))


def _row(folder: Path) -> Row:
    """What the list says of a run until it is written again."""
    at = changed_at(folder)
    if folder not in _ROWS or _ROWS[folder][0] != at:
        try:
            run = run_in(folder)
            row = _numbers(run) | {"spark": _spark(run)}
        except QccfError as error:
            row = {"status": "unreadable" if read_summary(folder) else "starting", "detail": str(error)}
        _ROWS[folder] = at, row
    return _ROWS[folder][1]


def _numbers(run: Run) -> Row:
    return {
        "status": "finished" if run.finished else "stopped",
        "kind": run.summary.get("kind", "train"),
        "policy": run.policy,
        "codec": run.codec,
        "seed": run.seed,
        "rounds": run.num_rounds,
        "planned_rounds": run.scenario.federation.rounds,
        "test_accuracy": run.summary.get("test_accuracy"),
        "energy_j": float(run.energy_j[-1]),
        "mean_bits": run.summary.get("mean_bits"),
        "missed": run.summary.get("missed"),
    }


def _course(row: Row, folder: Path) -> Row:
    """Whether a run is running, how fast, and how long it will take."""
    if "rounds" not in row:
        return {}
    last = _checkpoints(folder)[-2:]
    pace_s = interval_s = None
    if len(last) == 2:
        (first, began), (second, ended) = last
        interval_s = max(0, ended - began) / 1e9
        pace_s = interval_s / (second - first)
    status, eta_s = row["status"], None
    if status != "finished":
        age_s = time.time() - changed_at(folder) / 1e9
        fresh = age_s < max(LEAST_STALE_S, STALE_CHECKPOINTS * (interval_s or 0.0))
        status = "running" if fresh or is_held(folder) else "stopped"
        if status == "running" and pace_s is not None:
            eta_s = max(0.0, (row["planned_rounds"] - row["rounds"]) * pace_s - age_s)
    return {"status": status, "seconds_per_round": pace_s, "eta_s": eta_s}


def _spark(run: Run) -> dict[str, list[float | None]]:
    """A few points of accuracy (or bits of a plan) and energy."""
    take = np.unique(np.linspace(0, run.num_rounds - 1, min(SPARK_POINTS, run.num_rounds)).astype(int))
    learned = run.accuracy if np.isfinite(run.accuracy).any() else run.mean_bits
    return {"main": [_known(learned[k]) for k in take], "energy": [_known(run.energy_j[k]) for k in take]}


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def run_answer(name: str, setup: Setup) -> dict[str, Any]:
    """One run: status, summary, settings, health, figures and map."""
    folder = found_folder(name, setup)
    run = run_in(folder)
    row = _numbers(run)
    return {
        "id": name,
        "name": folder.relative_to(setup.runs).as_posix(),
        **row,
        **_course(row, folder),
        "summary": run.summary,
        "health": health_sentences([run]),
        "scenario": run.scenario.model_dump(),
        "cell": _cell(run),
    }


def _cell(run: Run) -> dict[str, Any] | None:
    """Where the clients are, and what each did in the last round and over the run.

    None if that needs code which is not loaded here. A trace of rates is not needed and not read.
    """
    try:
        positions_m = scenario_cell(run.scenario.replaced(radio={"trace": ""}), run.seed).positions_m
    except QccfError:
        return None
    on, missed = run.by_round("participated"), run.by_round("missed")
    return {
        "radius_m": run.scenario.cell.radius_m,
        "distance_min_m": run.scenario.cell.distance_min_m,
        "positions_m": positions_m,
        "dataset_sizes": run.dataset_sizes,
        "bits": client_bits(run),
        "uploads": on.sum(axis=0),
        "missed": missed.sum(axis=0),
        "last_participated": on[-1],
        "last_missed": missed[-1],
    }


def chart_answer(names: Sequence[str], setup: Setup) -> dict[str, Any]:
    """The figures of one run, or of several beside each other."""
    places = [found_folder(name, setup) for name in names]
    runs = [run_in(place) for place in places]
    labels = [_label(run, place, setup, len(runs)) for run, place in zip(runs, places, strict=True)]

    def curves(column: str, scale: float = 1.0) -> tuple[Series, ...]:
        drawn = []
        for k, (label, run) in enumerate(zip(labels, runs, strict=True)):
            values: FloatArray = scale * np.asarray(
                run.round_columns.get(column, np.full(run.num_rounds, np.nan)), float
            )
            seen = np.flatnonzero(np.isfinite(values))
            if len(seen):
                style = PALETTE[k % len(PALETTE)], MARKERS[k % len(MARKERS)]
                drawn.append(Series(label, (seen + 1.0).tolist(), values[seen], *style))
        return tuple(drawn)

    everybody = (0.0, 1.05 * max(run.scenario.federation.num_clients for run in runs))
    panels = [
        Panel("Accuracy", "round", "test accuracy", curves("test_accuracy"), percent=True, integers=True),
        Panel("Energy", "round", "accumulated energy (J)", curves("cumulative_energy_j"), integers=True),
        Panel("Bits", "round", BITS_LABEL, curves("mean_bits"), integers=True),
        Panel("Participants", "round", "clients", curves("participants"), integers=True, y_range=everybody),
        Panel("Missed deadlines", "round", "uploads", curves("missed"), integers=True, y_range=everybody),
        Panel("Latency of a round", "round", "latency (ms)", curves("latency_s", 1e3), integers=True),
        Panel("Price of error", "round", "price", curves("error_price"), integers=True),
        Panel("Participation queue λ1", "round", "queue", curves("participation_queue"), integers=True),
        Panel("Quantization queue λ2", "round", "queue", curves("quantization_queue"), integers=True),
    ]
    shown = tuple(panel for panel in panels if panel.series)
    return chart_to_json(Chart("run", "Runs" if len(runs) > 1 else "Run", "", shown))


def _label(run: Run, place: Path, setup: Setup, count: int) -> str:
    return f"{run.policy}, {run.codec}, seed {run.seed}" if count == 1 else place.relative_to(setup.runs).as_posix()


def table_columns(name: str, table: str, setup: Setup) -> dict[str, Any]:
    """The columns of the table `rounds` or `clients`."""
    run = run_in(found_folder(name, setup))
    return run.round_columns if table == "rounds" else run.client_columns


def report_page(names: Sequence[str], setup: Setup) -> str:
    """The report about some runs, as one page."""
    from qccf.reports.page.build import build_report
    from qccf.reports.page.opening import Manifest

    return build_report([run_in(found_folder(name, setup)) for name in names], [], Manifest()).page
