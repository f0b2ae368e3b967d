"""Runs as they lie in their folders, read back and put side by side."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qccf.core.contracts import FloatArray
from qccf.core.errors import QccfError
from qccf.paper.studies import RESULT
from qccf.settings.loading import Scenario, load_scenario, settings_key

PAPERS_MEAN_SIZE = 1200.0


@dataclass(frozen=True)
class Record:
    """One run."""

    folder: Path
    scenario: Scenario
    summary: dict[str, Any]
    rounds: pd.DataFrame
    clients: pd.DataFrame

    @property
    def policy(self) -> str:
        return str(self.summary["policy"])

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @property
    def finished(self) -> bool:
        """Whether it has come to its last round; its totals are those of a part otherwise."""
        return bool(self.summary.get("finished", True))

    @property
    def codec(self) -> str:
        return self.scenario.codec.name

    @property
    def setting(self) -> "Setting":
        data = self.scenario.data
        return Setting(data.dataset_size_std, data.dataset_size_mean, self.scenario.control.energy_weight)

    @property
    def accuracy(self) -> FloatArray:
        return self.rounds["test_accuracy"].to_numpy(dtype=float)

    @property
    def energy_j(self) -> FloatArray:
        """Accumulated, round by round."""
        return self.rounds["cumulative_energy_j"].to_numpy(dtype=float)

    @property
    def mean_bits(self) -> FloatArray:
        return self.rounds["mean_bits"].to_numpy(dtype=float)

    @cached_property
    def uploads(self) -> pd.DataFrame:
        """One row for each client and round in which it took part."""
        return self.clients[self.clients["participated"]]

    def final_accuracy(self) -> float:
        """The mean over the last tenth of the rounds: one evaluation is noisy. NaN if nothing was evaluated there."""
        last = self.accuracy[-_tenth(len(self.rounds)) :]
        return float(last[np.isfinite(last)].mean()) if np.isfinite(last).any() else float("nan")

    def computing_share(self) -> float:
        """Energy for computing, of all."""
        spent = self.clients[["compute_energy_j", "upload_energy_j"]].sum()
        return float(spent["compute_energy_j"] / spent.sum()) if spent.sum() else 0.0

    def missed_share(self) -> float:
        """Uploads past the deadline, of all."""
        return float(self.uploads["missed"].mean()) if len(self.uploads) else 0.0

    def mean_upload_bits(self) -> float:
        return float(self.uploads["num_bits"].mean()) if len(self.uploads) else float("nan")

    def final_bits(self) -> float:
        last = self.uploads[self.uploads["round"] >= len(self.rounds) - _tenth(len(self.rounds))]
        return float(last["num_bits"].mean()) if len(last) else float("nan")


@dataclass(frozen=True, order=True)
class Setting:
    """What figures vary beside the policy: β, with the mean that it belongs to, and V."""

    beta: float
    mean_size: float
    energy_weight: float

    def is_papers(self, beta: float) -> bool:
        """Whether this is that β in proportion to the paper's sizes."""
        return round(self.beta / self.mean_size * PAPERS_MEAN_SIZE, 6) == beta

    @property
    def beta_label(self) -> str:
        if self.mean_size == PAPERS_MEAN_SIZE:
            return f"β = {self.beta:g}"
        for beta in (150.0, 300.0):
            if self.is_papers(beta):
                return f"β = {beta:g}, scaled"
        return f"β = {self.beta:g} of {self.mean_size:g}"


@dataclass(frozen=True)
class Family:
    """Runs that differ in nothing but policy, codec, seed, β and V; `note` tells them from others on the same data."""

    records: tuple[Record, ...]
    note: str = ""

    @property
    def scenario(self) -> Scenario:
        return self.records[0].scenario

    @property
    def key(self) -> str:
        return self.scenario.data.dataset

    @property
    def title(self) -> str:
        return self.dataset_title + (f" with {self.note}" if self.note else "")

    @property
    def dataset_title(self) -> str:
        names = {
            "emnist": "EMNIST", "femnist": "FEMNIST", "cifar10": "CIFAR-10", "mnist": "MNIST",
            "handwriting": "handwriting (synthetic)",
        }  # fmt: skip
        name = self.scenario.data.dataset
        synthetic = " (synthetic)" if self.records[0].summary.get("synthetic") else ""
        return names.get(name, name + synthetic)

    @property
    def task(self) -> str:
        """Which of the paper's two tasks this is; the first is every other than the second."""
        return "cifar10" if self.scenario.learning.model == "cifar10-cnn" else "femnist"

    @property
    def rounds(self) -> int:
        return self.scenario.federation.rounds

    def settings(self) -> list[Setting]:
        return sorted({record.setting for record in self.records})

    def comparisons(self) -> list[Setting]:
        """The settings with more than one kind of run; all of them where none has."""
        several = [s for s in self.settings() if len(self.labels(s)) > 1]
        return several or self.settings()

    def weights(self) -> list[Setting]:
        """The settings of one β at which QCCF ran with several V; empty if there is none."""
        mine = [s for s in self.settings() if self.of(s, "qccf")]
        for beta in sorted({s.beta for s in mine}):
            same = [s for s in mine if s.beta == beta]
            if len(same) > 1:
                return same
        return []

    def label(self, record: Record) -> str:
        """The policy, and the codec where several were used."""
        codecs = {one.codec for one in self.records}
        return record.policy if len(codecs) == 1 else f"{record.policy}, {record.codec}"

    def labels(self, setting: Setting) -> list[str]:
        found = [self.label(record) for record in self.records if record.setting == setting]
        order = ["qccf", "same-size", "principle", "channel-allocate", "no-quantization"]
        return sorted(set(found), key=lambda name: (order.index(name) if name in order else len(order), name))

    def of(self, setting: Setting, label: str) -> list[Record]:
        """The runs of one label, by seed."""
        mine = [r for r in self.records if r.setting == setting and self.label(r) == label]
        return sorted(mine, key=lambda record: record.seed)

    def paired(self, a: tuple[Setting, str], b: tuple[Setting, str]) -> list[tuple[Record, Record]]:
        """Runs of two kinds on the same seeds: the same cell, fading and data."""
        second = {record.seed: record for record in self.of(*b)}
        return [(record, second[record.seed]) for record in self.of(*a) if record.seed in second]


def read_record(folder: Path) -> Record:
    """The run in a folder; refuses one that is not whole."""
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        rounds = pd.read_parquet(folder / "rounds.parquet")
        clients = pd.read_parquet(folder / "clients.parquet")
        record = Record(folder, load_scenario(folder / "scenario.toml"), summary, rounds, clients)
        _ = record.policy, record.seed, record.accuracy, record.energy_j, record.mean_bits, record.uploads
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise QccfError(f"{folder} holds no whole run: {error}; resume it or leave it out.") from None
    if not len(rounds):
        raise QccfError(f"{folder} holds a run without rounds: resume it or leave it out.")
    return record


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """Every folder at or below these that holds a run."""
    found: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise QccfError(f"{folder} is not a folder: name one that `qccf run`, `compare` or `reproduce` has left.")
        for path in sorted(folder.rglob("rounds.parquet")):
            if (path.parent / "summary.json").exists():
                found[path.parent] = None
    return list(found)


def find_studies(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob(RESULT))]


def read_study(path: Path) -> dict[str, Any]:
    try:
        study: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = study["study"], study["energy_j"]
        return study
    except (OSError, ValueError, KeyError, TypeError):
        raise QccfError(f"{path} is not a study that this version can read: delete it and run it again.") from None


def families(records: Iterable[Record]) -> list[Family]:
    """Runs grouped by all that figures do not vary."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        own = fixed_settings(record.scenario) | {
            "data": record.summary.get("data"),
            "precision": record.summary.get("precision"),
        }
        groups.setdefault(json.dumps(own, sort_keys=True), []).append(record)
    settings = [json.loads(key) for key in groups]
    return [
        Family(
            tuple(_each_once(group)),
            _told_apart(own, [other for other in settings if other["data.dataset"] == own["data.dataset"]]),
        )
        for own, group in zip(settings, groups.values(), strict=True)
    ]


def _each_once(records: Sequence[Record]) -> list[Record]:
    """A run that was found twice counts once; two that only look alike are refused, for they would pass for seeds."""
    kept: dict[tuple[Any, ...], Record] = {}
    for record in records:
        other = kept.setdefault((record.policy, record.codec, record.setting, record.seed), record)
        if settings_key(other.scenario, other.policy, other.seed) != settings_key(
            record.scenario, record.policy, record.seed
        ):
            raise QccfError(
                f"{other.folder} and {record.folder} are both {record.policy} with seed {record.seed}, but differ in "
                "the options of their policy or codec: report them one at a time."
            )
    return list(kept.values())


def fixed_settings(scenario: Scenario) -> dict[str, Any]:
    """The settings that figures do not vary, by their dotted names."""
    varied = {"federation.seed", "data.dataset_size_std", "control.energy_weight"}
    return {
        f"{section}.{key}": value
        for section, values in scenario.model_dump().items()
        if section not in ("policy", "codec", "execution", "statistics")
        for key, value in values.items()
        if f"{section}.{key}" not in varied
    }


def _told_apart(own: dict[str, Any], all_of_them: list[dict[str, Any]]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in own.items() if any(one[key] != value for one in all_of_them))


def _tenth(rounds: int) -> int:
    return max(1, rounds // 10)
