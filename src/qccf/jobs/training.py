"""A training run as a job of a batch."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from qccf.learning.datasets import Dataset, load_dataset
from qccf.runtimes.simulator import Progress, simulate
from qccf.settings.loading import Scenario, settings_key


@dataclass(frozen=True)
class TrainingJob:
    """One policy and seed; its folder is named by its settings, so that the same settings run once."""

    scenario: Scenario
    policy: str
    seed: int
    runs: Path
    data_dir: Path
    note: str = ""
    """What else tells the run from others of a batch."""

    @property
    def label(self) -> str:
        s = self.scenario
        return (
            f"{s.data.dataset}, {self.policy}, β {s.data.dataset_size_std:g}, V {s.control.energy_weight:g}, "
            f"{f'{self.note}, ' * bool(self.note)}seed {self.seed}"
        )

    @property
    def folder(self) -> Path:
        key = settings_key(self.scenario, self.policy, self.seed)[:12]
        policy = self.policy.replace(":", "-").replace(".", "-")
        return self.runs / f"{self.scenario.data.dataset}-{policy}-seed{self.seed}-{key}"

    @property
    def steps(self) -> int:
        return self.scenario.federation.rounds

    @property
    def pace(self) -> str:
        return self.scenario.learning.model

    @property
    def cores(self) -> int:
        return max(1, self.scenario.execution.workers)

    def is_finished(self) -> bool:
        try:
            summary = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
            return bool(summary["finished"]) and summary["rounds"] == self.steps
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def run(self, folder: Path, tell: Callable[[int], None]) -> None:
        def after_round(progress: Progress) -> None:
            tell(len(progress.ledger))

        run = simulate(
            self.scenario,
            self.policy,
            seed=self.seed,
            out=folder,
            dataset=_dataset(self.scenario.data.dataset, self.data_dir),
            callbacks=[after_round],
            warn=lambda sentence: print(f"qccf: {self.folder.name}: {sentence}", file=sys.stderr),
        )
        if not run.finished:
            raise KeyboardInterrupt


@lru_cache(maxsize=2)
def _dataset(name: str, folder: Path) -> Dataset:
    return load_dataset(name, folder, seed=0)
