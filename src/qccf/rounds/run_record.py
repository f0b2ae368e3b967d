"""Finished runs in one small file that can be committed: what figures and claims need, a few kB per run.

The folder of a run (`qccf.rounds.run_folder`) keeps everything. A record keeps per round the accuracy, loss, energy and
time, and per client and round the bits and whether the upload arrived. From it a `Run` is built again, without the
columns that were left out.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray, IntArray
from qccf.core.errors import QccfError, RunFolderError
from qccf.core.files import write_text_whole
from qccf.rounds.packed_table import Columns
from qccf.rounds.run import Run
from qccf.rounds.run_folder import require_consistent
from qccf.settings.loading import Scenario, digest, scenario_from_dict

FORMAT = 1
DIGITS = {"energy_j": 7, "compute_energy_j": 7, "latency_s": 7, "train_loss": 5, "test_accuracy": 6, "test_loss": 5}
"""The columns of a round that are kept, with their significant digits."""
BITS = ".123456789abcdefghijklmnopqrstuvwxyz"
"""One character per client and round; the first means that the client sat out."""

Record = dict[str, Any]

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, QccfError)
"""What values of another type or shape end in."""


class RunRecords:
    """The runs of one file by name. Scenarios are kept once for all policies and seeds."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._scenarios: dict[str, dict[str, Any]] = {}
        self._runs: dict[str, Record] = {}
        if file is not None and file.exists():
            try:
                tree = json.loads(file.read_text(encoding="utf-8"))
                if tree["format"] != FORMAT:
                    raise ValueError(f"format {tree['format']}")
                self._scenarios, self._runs = tree["scenarios"], tree["runs"]
                for part in (self._scenarios, self._runs):
                    if not isinstance(part, dict) or not all(isinstance(one, dict) for one in part.values()):
                        raise TypeError("it has not one table for each run")
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                raise RunFolderError(f"{file} holds no records of runs that this version can read: {error}.") from None

    def __contains__(self, name: str) -> bool:
        return name in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def names(self) -> list[str]:
        return list(self._runs)

    def add(self, name: str, run: Run) -> None:
        """Keep a finished run under a name."""
        tree = run.scenario.model_dump(mode="json")
        own = {"policy": tree["policy"].pop("name"), "seed": tree["federation"].pop("seed")}
        key = digest(tree)[:12]
        self._scenarios[key] = tree
        self._runs[name] = {"scenario": key, **own, **run_to_record(run)}

    def run(self, name: str) -> Run:
        """The run of that name, as far as it was kept. Files come from others, so anything else is refused."""
        record = self._runs[name]
        try:
            tree = json.loads(json.dumps(self._scenarios[record["scenario"]]))
            tree["policy"]["name"], tree["federation"]["seed"] = record["policy"], record["seed"]
            run = record_to_run(scenario_from_dict(tree, read_files=False), record)
            require_consistent(run)
        except UNREADABLE as error:
            reason = str(error).rstrip(".") or type(error).__name__
            raise RunFolderError(
                f"{self._file} holds no record of {name!r} that this version can read: {reason}; record the run again, "
                "or leave it out."
            ) from None
        return run

    def runs(self, names: Iterable[str] | None = None) -> list[Run]:
        return [self.run(name) for name in (self._runs if names is None else names)]

    def write(self, file: Path) -> None:
        """Write the file whole, one run per line, so that a run more is one line more."""
        lines = [f" {json.dumps(name)}: {_compact(self._runs[name])}" for name in sorted(self._runs)]
        write_text_whole(
            file,
            f'{{"format": {FORMAT},\n"scenarios": {_compact(self._scenarios)},\n"runs": {{\n'
            + ",\n".join(lines)
            + "\n}}\n",
        )


def run_to_record(run: Run) -> Record:
    """The columns and the summary of a run that are kept."""
    participated = run.by_round("participated").T
    num_bits = np.where(participated, run.by_round("num_bits").T, 0)
    return {
        "sizes": run.dataset_sizes.astype(int).tolist(),
        "bits": ["".join(BITS[bits] for bits in row) for row in num_bits],
        "missed": _marks(run.by_round("missed").T),
        "lost": _marks(participated & ~run.by_round("arrived").T),
        **{
            name: [_rounded(value, digits) for value in np.asarray(run.round_columns[name], dtype=float)]
            for name, digits in DIGITS.items()
        },
        "summary": run.summary,
    }


def record_to_run(scenario: Scenario, record: Mapping[str, Any]) -> Run:
    """A run with the columns that its record keeps, and those that follow from them."""
    num_bits = np.array([[BITS.index(one) for one in row] for row in record["bits"]], dtype=np.int64).T
    participated = num_bits > 0
    missed, lost = (_unmarked(record[name], participated.shape) for name in ("missed", "lost"))
    rounds: Columns = {name: _known(record[name]) for name in DIGITS}
    count = np.maximum(participated.sum(axis=1), 1)
    rounds |= {
        "round": np.arange(len(num_bits)),
        "cumulative_energy_j": np.cumsum(rounds["energy_j"]),
        "upload_energy_j": rounds["energy_j"] - rounds["compute_energy_j"],
        "participants": participated.sum(axis=1),
        "arrived": (participated & ~lost).sum(axis=1),
        "missed": missed.sum(axis=1),
        "mean_bits": np.where(participated.any(axis=1), num_bits.sum(axis=1) / count, np.nan),
    }
    index, client = np.indices(num_bits.shape)
    clients: Columns = {
        "round": index.ravel(),
        "client": client.ravel(),
        "dataset_size": np.tile(np.array(record["sizes"]), len(num_bits)),
        "participated": participated.ravel(),
        "arrived": (participated & ~lost).ravel(),
        "missed": missed.ravel(),
        "num_bits": num_bits.ravel(),
    }
    return Run(scenario, dict(record["summary"]), rounds, clients)


def _marks(flags: Any) -> list[str]:
    """One string of 0 and 1 per client; nothing where no flag is set."""
    return ["".join("01"[int(flag)] for flag in row) for row in flags] if flags.any() else []


def _unmarked(marks: list[str], shape: tuple[int, ...]) -> Any:
    return np.array([[one == "1" for one in row] for row in marks]).T if marks else np.zeros(shape, dtype=bool)


def _rounded(value: float, digits: int) -> float | None:
    return float(f"{value:.{digits}g}") if np.isfinite(value) else None


def _known(values: list[float | None]) -> FloatArray | IntArray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _compact(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
