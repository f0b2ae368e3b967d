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
from qccf.core.errors import QccfError
from qccf.reports.figures.builders import BITS_LABEL, client_bits
from qccf.reports.figures.chart import Chart, Panel, Series, chart_to_json
from qccf.reports.figures.style import MARKERS, PALETTE
from qccf.rounds.run import Run, health_sentences
from qccf.rounds.run_folder import CHECKPOINTS, SUMMARY, find_begun, read_progress, read_summary
from qccf.rounds.world import scenario_cell
from qccf.service.answers import RefusedError
from qccf.service.setup import Setup

SPARK_POINTS = 40
STALE_ROUNDS = 5.0
LEAST_STALE_S = 60.0
"""A run counts as stopped if its last round is older than this, and than so many of its rounds."""

_CACHE: dict[tuple[Path, int], Run] = {}


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
    files = [folder / SUMMARY, *(folder / CHECKPOINTS).glob("round-*.npz")]
    return max((file.stat().st_mtime_ns for file in files if file.exists()), default=0)


def run_in(folder: Path) -> Run:
    """The run in a folder; it is read again only after it was written."""
    key = (folder, changed_at(folder))
    if key not in _CACHE:
        for old in [one for one in _CACHE if one[0] == folder]:
            del _CACHE[old]
        if len(_CACHE) > 32:
            _CACHE.pop(next(iter(_CACHE)))
        _CACHE[key] = read_progress(folder)
    return _CACHE[key]


def list_answer(setup: Setup) -> list[dict[str, Any]]:
    """All runs, the one that was written last first."""
    listed = []
    for name, folder in folders(setup).items():
        place = folder.relative_to(setup.runs).as_posix()
        about: dict[str, Any] = {"id": name, "name": place, "changed": changed_at(folder) / 1e9}
        try:
            run = run_in(folder)
        except QccfError as error:
            listed.append(
                about | {"status": "unreadable" if read_summary(folder) else "starting", "detail": str(error)}
            )
            continue
        listed.append(about | _about(run, folder) | {"spark": _spark(run)})
    return sorted(listed, key=lambda one: -float(one["changed"]))


def _about(run: Run, folder: Path) -> dict[str, Any]:
    """Status, progress and the numbers of a run."""
    rounds, pace_s = run.scenario.federation.rounds, _round_seconds(folder)
    age_s = time.time() - changed_at(folder) / 1e9
    running = not run.finished and age_s < max(LEAST_STALE_S, STALE_ROUNDS * (pace_s or 0.0))
    status = "finished" if run.finished else "running" if running else "stopped"
    return {
        "status": status,
        "kind": run.summary.get("kind", "train"),
        "policy": run.policy,
        "codec": run.codec,
        "seed": run.seed,
        "rounds": run.num_rounds,
        "planned_rounds": rounds,
        "seconds_per_round": pace_s,
        "eta_s": None
        if status != "running" or pace_s is None
        else max(0.0, (rounds - run.num_rounds) * pace_s - age_s),
        "test_accuracy": run.summary.get("test_accuracy"),
        "energy_j": float(run.energy_j[-1]),
        "mean_bits": run.summary.get("mean_bits"),
        "missed": run.summary.get("missed"),
    }


def _round_seconds(folder: Path) -> float | None:
    """Seconds per round between the last two checkpoints; None if there are none."""
    files = sorted((folder / CHECKPOINTS).glob("round-*.npz"))[-2:]
    if len(files) < 2:
        return None
    (first, second) = ((int(file.stem.partition("-")[2]), file.stat().st_mtime) for file in files)
    return max(0.0, second[1] - first[1]) / max(1, second[0] - first[0])


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
    return {
        "id": name,
        "name": folder.relative_to(setup.runs).as_posix(),
        **_about(run, folder),
        "summary": run.summary,
        "health": health_sentences([run]),
        "scenario": run.scenario.model_dump(),
        "cell": _cell(run),
    }


def _cell(run: Run) -> dict[str, Any]:
    """Where the clients are, and what each did in the last round and over the run."""
    on, missed = run.by_round("participated"), run.by_round("missed")
    return {
        "radius_m": run.scenario.cell.radius_m,
        "distance_min_m": run.scenario.cell.distance_min_m,
        "positions_m": scenario_cell(run.scenario, run.seed).positions_m,
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
