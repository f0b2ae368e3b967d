"""The paper's experiments as data: which runs each of its figures needs, at three scales.

Paper: Section VI.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qccf.core.errors import ConfigError
from qccf.jobs.training import TrainingJob, training_job
from qccf.learning.datasets import DataError, available_dataset
from qccf.paper.studies import FACTORS
from qccf.policies.registry import PAPERS_POLICIES
from qccf.settings.loading import Scenario, load_scenario
from qccf.settings.schema import PAPERS_CODEC

FIGURES = ("fig2", "fig3", "fig4", "fig5")
BETAS = (150, 300)

# Other values of settings that the paper does not state: training runs of the first task that check the savings study.
VARIED = (
    "radio.gain_db=10.0",
    "radio.bandwidth_hz=20e6",
    "control.paper.quantization_budget=0.1",
    "learning.smoothness=0.05",
)
VARIED_POLICIES = ("qccf", "principle", "same-size")


@dataclass(frozen=True)
class Task:
    """One learning task of the paper: its preset, and the V of Fig. 2."""

    name: str
    energy_weights: tuple[float, ...]
    data_share: float = 1.0
    """A factor on the samples of a reduced scale: a network that takes longer per sample gets fewer samples."""

    @property
    def energy_weight(self) -> float:
        """The preset's V."""
        return float(load_scenario(self.name).control.paper.energy_weight)


TASKS: dict[str, Task] = {
    "femnist": Task("femnist", (1.0, 10.0, 100.0, 1000.0, 10000.0)),
    "cifar10": Task("cifar10", (0.1, 1.0, 10.0, 100.0, 1000.0), data_share=0.5),
}


@dataclass(frozen=True)
class Scale:
    """The size of the experiments: `data_share` of the paper's samples, with the cycles per sample divided by it.

    Computing and uploading keep the paper's proportion, so the decisions differ from those with all the data only
    through the statistics that training measures. The rest of the preset, such as the learning rate, stays.

    `small` takes about two hours per task on two cores: 3 seeds of 5 policies at 2 β and of 4 more V are 42 runs of 60
    rounds, and the `varied` runs are 12 more of the first task. CIFAR-10 is slower per sample and gets fewer samples.
    """

    name: str
    seeds: int
    rounds: int
    data_share: float
    every_energy_weight: bool
    study_seeds: int
    study_rounds: int
    varied: tuple[str, ...]
    varied_seeds: int
    evaluation_samples: int = 1000


SCALES: dict[str, Scale] = {
    "smoke": Scale("smoke", 2, 3, 1 / 100, False, 3, 10, VARIED[:1], 1, evaluation_samples=50),
    "small": Scale("small", 3, 60, 0.4, True, 20, 100, VARIED, 1),
    "full": Scale("full", 5, 100, 1.0, True, 20, 100, VARIED, 3),
}

MEAN_SIZE = 1200.0
MIN_SIZE = 100
Figure = Literal["fig2", "fig3", "fig4", "fig5"]


@dataclass(frozen=True)
class ChosenTask:
    """A task and the dataset that was found for it, or the reason why it cannot run."""

    task: Task
    dataset: str
    reason: str = ""


def choose_data(task: Task, folder: Path) -> ChosenTask:
    """The task with its first dataset that is present; the one that needs no download is the last."""
    data = load_scenario(task.name).data
    wanted = [data.dataset, *data.fallbacks]
    try:
        return ChosenTask(task, available_dataset(wanted, folder)[0])
    except DataError:
        reason = f"{' or '.join(wanted)} is not here; get it with: qccf data fetch {wanted[0]}"
        return ChosenTask(task, "", reason)


def figure_tasks(figure: str, tasks: Iterable[str]) -> list[str]:
    """The tasks of a figure: Fig. 3 and Fig. 5 show the first task, Fig. 4 the second, Fig. 2 both."""
    shown = {"fig3": ("femnist",), "fig4": ("cifar10",), "fig5": ("femnist",)}.get(figure, tuple(TASKS))
    return [name for name in tasks if name in shown]


def task_scenario(
    chosen: ChosenTask, scale: Scale, overrides: Sequence[str], *, beta: float, weight: float
) -> Scenario:
    """The settings of a run, without its policy and seed. The user's overrides come last."""
    share = scale.data_share if scale.data_share == 1.0 else scale.data_share * chosen.task.data_share
    base = load_scenario(chosen.task.name)
    settings = [
        f"data.dataset={chosen.dataset}",
        "data.fallbacks=[]",
        f"data.dataset_size_mean={round(MEAN_SIZE * share, 9)!r}",
        f"data.dataset_size_std={round(beta * share, 9)!r}",
        f"data.dataset_size_min={max(1, round(MIN_SIZE * share))}",
        f"device.cycles_per_sample={float(base.device.cycles_per_sample) / share!r}",
        f"federation.rounds={scale.rounds}",
        "control.form=paper",
        f"control.paper.energy_weight={weight!r}",
        f"codec.name={PAPERS_CODEC}",
        "statistics.model=constant",
        f"evaluation.samples={scale.evaluation_samples}",
        *overrides,
    ]
    return load_scenario(chosen.task.name, settings)


def reproduction_jobs(
    figures: Sequence[str],
    scale: Scale,
    chosen: Sequence[ChosenTask],
    overrides: Sequence[str],
    *,
    runs: Path,
    data_dir: Path,
) -> list[TrainingJob]:
    """Every run that the figures need, once, ordered by seed so that the first part is already a comparison."""
    usable = {one.task.name: one for one in chosen if not one.reason}
    jobs: dict[Path, TrainingJob] = {}
    for figure in figures:
        if figure not in FIGURES:
            raise ConfigError(f"{figure!r} is not a figure of the experiments: choose from {', '.join(FIGURES)}, all.")
    for seed in range(scale.seeds):
        for figure in figures:
            for name in figure_tasks(figure, usable):
                for beta, weight, policy in _cases(figure, usable[name].task, scale):
                    scenario = task_scenario(usable[name], scale, overrides, beta=beta, weight=weight)
                    job = training_job(_run_of(scenario, policy, seed), runs, data_dir)
                    jobs.setdefault(job.folder, job)
    return list(jobs.values())


def varied_jobs(
    scale: Scale, chosen: Sequence[ChosenTask], overrides: Sequence[str], *, runs: Path, data_dir: Path
) -> list[TrainingJob]:
    """Runs of the first task at the highest β with one setting changed, for the two savings that the paper states.

    There are none if the user overrides a setting that the savings study varies: two settings would change.
    """
    jobs: list[TrainingJob] = []
    if {override.partition("=")[0] for override in overrides} & {factor.key for factor in FACTORS}:
        return jobs
    for one in chosen:
        if one.reason or one.task.name != "femnist":
            continue
        for seed in range(scale.varied_seeds):
            for change in scale.varied:
                settings = [*overrides, change]
                scenario = task_scenario(one, scale, settings, beta=BETAS[-1], weight=one.task.energy_weight)
                jobs += [
                    training_job(_run_of(scenario, policy, seed), runs, data_dir, note=change)
                    for policy in VARIED_POLICIES
                ]
    return jobs


def _run_of(scenario: Scenario, policy: str, seed: int) -> Scenario:
    """The scenario of one policy and of the seed with that index."""
    return scenario.replaced(policy={"name": policy}, federation={"seed": scenario.federation.seed + seed})


def _cases(figure: str, task: Task, scale: Scale) -> list[tuple[float, float, str]]:
    """β, V and policy of every run of a figure."""
    if figure == "fig2":
        place = task.energy_weights.index(task.energy_weight)
        tried = task.energy_weights if scale.every_energy_weight else task.energy_weights[place - 1 : place + 2]
        return [(BETAS[0], weight, "qccf") for weight in tried]
    return [(beta, task.energy_weight, policy) for beta in BETAS for policy in PAPERS_POLICIES]
