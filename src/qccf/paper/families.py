"""Runs grouped for comparison: families of runs that differ only in policy, codec, seed, β and V."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qccf.core.errors import FileError, QccfError
from qccf.core.files import read_inside
from qccf.paper.studies import RESULT
from qccf.policies.registry import POLICIES, codes
from qccf.rounds.run import Run
from qccf.settings.loading import Scenario, run_digest

PAPERS_MEAN_SIZE = 1200.0


@dataclass(frozen=True, order=True)
class Setting:
    """What figures vary beside the policy: β, with the mean dataset size that it belongs to, and V."""

    beta: float
    mean_size: float
    energy_weight: float

    def is_papers(self, beta: float) -> bool:
        """Whether this is that β in proportion to the paper's sizes."""
        return round(self.beta / self.mean_size * PAPERS_MEAN_SIZE, 6) == beta

    @property
    def beta_label(self) -> str:
        """The β that was run, whatever the mean size."""
        return f"β = {self.beta:g}"

    @property
    def papers_beta(self) -> float | None:
        """The paper's β in proportion to which this one was chosen, if it is another number."""
        scaled = self.mean_size != PAPERS_MEAN_SIZE
        return next((beta for beta in (150.0, 300.0) if scaled and self.is_papers(beta)), None)


def setting_of(run: Run) -> Setting:
    """The setting that a run belongs to."""
    data = run.scenario.data
    return Setting(data.dataset_size_std, data.dataset_size_mean, run.scenario.energy_weight)


@dataclass(frozen=True)
class Family:
    """Runs that differ only in policy, codec, seed, β and V; `note` distinguishes families on the same data."""

    records: tuple[Run, ...]
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
        """Which of the paper's two tasks this is: cifar10 for its CNN, else femnist."""
        return "cifar10" if self.scenario.learning.model == "cifar10-cnn" else "femnist"

    @property
    def rounds(self) -> int:
        return self.scenario.federation.rounds

    def settings(self) -> list[Setting]:
        return sorted({setting_of(record) for record in self.records})

    def comparisons(self) -> list[Setting]:
        """The settings with more than one kind of run; all of them where none has."""
        several = [s for s in self.settings() if len(self.labels(s)) > 1]
        return several or self.settings()

    def main_setting(self) -> Setting:
        """The setting with the most kinds of runs; of several, the last, which has the largest β."""
        return max(self.comparisons(), key=lambda setting: (len(self.labels(setting)), setting))

    @property
    def papers_form(self) -> bool:
        """Whether the controller has the paper's form, whose energy weight is V."""
        return self.scenario.control.form == "paper"

    def weight_label(self, setting: Setting) -> str:
        return f"{'V =' if self.papers_form else 'energy weight'} {setting.energy_weight:g}"

    def setting_title(self, setting: Setting) -> str:
        return f"{self.title}, {setting.beta_label}, {self.weight_label(setting)}"

    def weights(self) -> list[Setting]:
        """The settings of one β at which QCCF ran with several V; empty if there is none."""
        mine = [s for s in self.settings() if self.of(s, "qccf")]
        for beta in sorted({s.beta for s in mine}):
            same = [s for s in mine if s.beta == beta]
            if len(same) > 1:
                return same
        return []

    def label(self, record: Run) -> str:
        """The policy, and the codec where several were used."""
        codecs = {one.codec for one in self.records}
        return f"{record.policy}, {record.codec}" if len(codecs) > 1 and codes(record.policy) else record.policy

    def labels(self, setting: Setting) -> list[str]:
        """The kinds of runs with that setting: policies in the order of the registry, then users' own, then codecs."""
        order = list(POLICIES)
        found = {
            self.label(run): (order.index(run.policy) if run.policy in order else len(order), run.policy, run.codec)
            for run in self.records
            if setting_of(run) == setting
        }
        return sorted(found, key=found.__getitem__)

    def of(self, setting: Setting, label: str) -> list[Run]:
        """The runs of one label, by seed."""
        mine = [r for r in self.records if setting_of(r) == setting and self.label(r) == label]
        return sorted(mine, key=lambda record: record.seed)

    def paired(self, a: tuple[Setting, str], b: tuple[Setting, str]) -> list[tuple[Run, Run]]:
        """Runs of two kinds on the same seeds: the same cell, fading and data."""
        second = {record.seed: record for record in self.of(*b)}
        return [(record, second[record.seed]) for record in self.of(*a) if record.seed in second]


def find_studies(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob(RESULT))]


def read_study(path: Path) -> dict[str, Any]:
    try:
        study: dict[str, Any] = json.loads(read_inside(path, path.parent))
        _ = study["study"], [1.0 * value for values in study["energy_j"].values() for value in values]
        return study
    except (FileError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise QccfError(f"{path} is not a study that this version can read: delete it and run it again.") from None


def families(records: Iterable[Run]) -> list[Family]:
    """Runs grouped by all that figures do not vary."""
    groups: dict[str, list[Run]] = {}
    for record in records:
        own = fixed_settings(record.scenario) | {
            "data": record.summary.get("data"),
            "precision": record.summary.get("precision"),
        }
        groups.setdefault(json.dumps(own, sort_keys=True), []).append(record)
    settings = [json.loads(key) for key in groups]
    labels = [_label(group) for group in groups.values()]
    unnamed = [own for own, label in zip(settings, labels, strict=True) if not label]
    return [
        Family(
            tuple(_each_once(group)),
            label or _told_apart(own, [other for other in unnamed if other["data.dataset"] == own["data.dataset"]]),
        )
        for own, group, label in zip(settings, groups.values(), labels, strict=True)
    ]


def _label(records: Sequence[Run]) -> str:
    """What the settings of these runs are called, if they have one name (`policy.label`)."""
    labels = {record.scenario.policy.label for record in records}
    return next(iter(labels)) if len(labels) == 1 else ""


def _each_once(records: Sequence[Run]) -> list[Run]:
    """A run that was found twice counts once; two runs that differ elsewhere are refused: they would count as seeds."""
    kept: dict[tuple[Any, ...], Run] = {}
    for record in records:
        other = kept.setdefault((record.policy, record.codec, setting_of(record), record.seed), record)
        if run_digest(other.scenario) != run_digest(record.scenario):
            raise QccfError(
                f"{other.folder} and {record.folder} are both {record.policy} with seed {record.seed}, but differ in "
                "the options of their policy or codec: report them one at a time."
            )
    return list(kept.values())


def fixed_settings(scenario: Scenario) -> dict[str, Any]:
    """The settings that figures do not vary, by their dotted names."""
    varied = {"federation.seed", "data.dataset_size_std", "control.energy_weight", "control.paper.energy_weight"}
    unused = ("policy.", "codec.", "execution.", "statistics.")
    values = dotted(scenario.model_dump())
    return {key: value for key, value in values if key not in varied and not key.startswith(unused)}


def dotted(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested sections by their dotted names."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _told_apart(own: dict[str, Any], all_of_them: list[dict[str, Any]]) -> str:
    """The settings in which a run differs from one of the others; an option that another does not state is one."""
    return ", ".join(
        f"{key} = {value}"
        for key, value in own.items()
        if any(key not in one or one[key] != value for one in all_of_them)
    )
