"""A training run as a job."""

import json
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from qccf.jobs.names import run_name
from qccf.jobs.queue import Job, OnStep
from qccf.learning.datasets import Dataset, load_dataset
from qccf.rounds.run_folder import is_finished
from qccf.runtimes.simulator import RoundEvent, resolved_scenario, simulate
from qccf.settings.loading import Scenario


@dataclass(frozen=True, kw_only=True)
class TrainingJob(Job):
    """Trains the federation of one scenario; the scenario holds the policy, the codec and the seed."""

    scenario: Scenario
    data_dir: Path
    tensorboard: bool = False

    def is_finished(self) -> bool:
        return is_finished(self.folder, self.steps, self.scenario.evaluation.until_accuracy)

    def run(self, folder: Path, on_step: OnStep) -> None:
        def after_round(event: RoundEvent) -> None:
            on_step(len(event.ledger))

        callbacks = [after_round]
        if self.tensorboard:
            from qccf.runtimes.tensorboard import TensorBoardWriter

            callbacks.append(TensorBoardWriter(folder / "tensorboard").update)
        scenario = self.scenario
        if scenario.data.fallbacks:  # a node with its own data decides which dataset it has
            scenario = resolved_scenario(scenario, self.data_dir, self._warn)
        dataset = cached_dataset(scenario.data.dataset, self.data_dir, json.dumps(scenario.data.options))
        run = simulate(scenario, out=folder, dataset=dataset, callbacks=callbacks, warn=self._warn)
        if not run.finished:
            raise KeyboardInterrupt

    def _warn(self, sentence: str) -> None:
        print(f"qccf: {self.folder.name}: {sentence}", file=sys.stderr)


def training_job(
    scenario: Scenario, runs: Path, data_dir: Path, *, note: str = "", tensorboard: bool = False
) -> TrainingJob:
    """The job of a scenario in a folder below `runs`; `note` is a part of the label that tells it from others."""
    labels = [
        scenario.data.dataset,
        scenario.policy.name,
        f"codec {scenario.codec.name}",
        f"β {scenario.data.dataset_size_std:g}",
        scenario.weight_label,
        *([note] if note else []),
        f"seed {scenario.federation.seed}",
    ]
    return TrainingJob(
        label=", ".join(labels),
        folder=runs / run_name(scenario),
        steps=scenario.federation.rounds,
        step_kind=scenario.learning.model,
        cores=max(1, scenario.execution.workers),
        scenario=scenario,
        data_dir=data_dir,
        tensorboard=tensorboard,
    )


@lru_cache(maxsize=2)
def cached_dataset(name: str, folder: Path, options: str = "{}") -> Dataset:
    """The dataset with its options as JSON; jobs that run in the same process share it."""
    return load_dataset(name, folder, seed=0, options=json.loads(options))
