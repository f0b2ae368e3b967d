"""The runs of a sweep as two Parquet tables: one row per run, and one row per run and round."""

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd

from qccf.core.files import write_whole
from qccf.jobs.grid import SHORT, Grid
from qccf.jobs.queue import QueueProgress
from qccf.rounds.health import Finding, gathered
from qccf.rounds.run_folder import read_run
from qccf.settings.loading import Scenario

RESULTS = "results.parquet"
ROUNDS = "rounds.parquet"
WRITE_EVERY_S = 60.0

# Summary keys that repeat a setting or serve only the display.
_LEFT_OUT = ("kind", "policy", "label", "codec", "seed", "finished", "rounds", "dataset")


class SweepTables:
    """Reads every finished run once and writes the tables of all finished runs."""

    def __init__(self, out: Path, grid: Grid) -> None:
        self._out = out
        self._grid = grid
        self._rows: dict[int, dict[str, Any]] = {}
        self._rounds: dict[int, pd.DataFrame] = {}
        self._findings: dict[int, list[Finding]] = {}
        self._written = time.monotonic()

    def update(self, progress: QueueProgress, index: int) -> None:
        """A listener of the queue: writes the tables once per minute while the sweep runs."""
        if progress.states[index] == "done" and time.monotonic() - self._written > WRITE_EVERY_S:
            self.write(progress)

    def write(self, progress: QueueProgress) -> None:
        """Both tables of all finished runs, in the order of the grid."""
        done = [index for index, state in enumerate(progress.states) if state == "done"]
        for index in done:
            if index not in self._rows:
                self._read(index, progress.jobs[index].folder)
        if done:
            rounds = pd.concat([self._rounds[index] for index in done], ignore_index=True)
            results = _table([self._rows[index] for index in done])
            write_whole(self._out / ROUNDS, lambda path: rounds.to_parquet(path, index=False))
            write_whole(self._out / RESULTS, lambda path: results.to_parquet(path, index=False))
        self._written = time.monotonic()

    def rows(self, *, full: bool = False) -> list[dict[str, Any]]:
        """One row per finished run, in the order of the grid; in full with every round."""
        rounds = {index: table.to_dict(orient="list") for index, table in self._rounds.items()} if full else {}
        return [row | ({"per_round": rounds[index]} if full else {}) for index, row in sorted(self._rows.items())]

    def health_sentences(self) -> list[str]:
        """What is wrong with the runs, one sentence per kind of finding."""
        return gathered([("", self._rows[index]["run"], found) for index, found in sorted(self._findings.items())])

    def _read(self, index: int, folder: Path) -> None:
        run = read_run(folder)
        results = {key: value for key, value in run.summary.items() if key not in _LEFT_OUT}
        self._findings[index] = [Finding(**one) for one in results.get("health", ())]
        results["health"] = " ".join(finding.message for finding in self._findings[index])
        settings = settings_columns(run.scenario)  # with the dataset that the run found
        self._rows[index] = {"run": folder.name, "kind": self._grid.kind, **settings, **results}
        rounds = run.rounds
        for place, key in enumerate(("run", *SHORT)):
            rounds.insert(place, key, self._rows[index][key])
        self._rounds[index] = rounds


def settings_columns(scenario: Scenario) -> dict[str, Any]:
    """Policy, codec and seed, then every other setting that defines a run under its own name."""
    tree = scenario.model_dump(exclude={"execution"})
    flat = {key: value for section, values in tree.items() for key, value in _flat(section, values)}
    short = {name: flat.pop(path) for name, path in SHORT.items()}
    return short | flat


def _flat(prefix: str, tree: dict[str, Any]) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        path = f"{prefix}.{key}"
        if not isinstance(value, dict):
            pairs.append((path, value))
        elif key == "options":  # of a policy or codec: any content, so one column of JSON
            pairs.append((path, json.dumps(value, sort_keys=True)))
        else:
            pairs += _flat(path, value)
    return pairs


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A column that mixes text and numbers, such as `control.paper.data_budget`, becomes text."""
    table = pd.DataFrame(rows)
    for name in table.columns:
        kinds = {type(value) for value in table[name] if value is not None}
        if str in kinds and len(kinds) > 1:
            table[name] = table[name].map(str)
        elif not kinds:
            table[name] = table[name].astype(float)
    return table
