"""Training with the two forms of the controller, paired by seed: accuracy, energy, participation, fairness and bits.

Run: python -m benchmarks.training_forms [--tasks A,B] [--codecs A,B] [--seeds 0,1,2] [--estimate] [--show]
The same command resumes what was stopped and skips what is finished. Runs are done seed by seed, so that a stopped
comparison has whole seeds. A run's folder is named by its settings: use another --out after a change of the code.
--record FILE keeps the figures of finished runs in a JSON file, and skips runs whose figures are in it.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from qccf.cli.queue_view import print_outcome, run_with_view
from qccf.control.scale_free_form import TOLERATED_NOISE
from qccf.core.files import write_text_whole
from qccf.core.intervals import Estimate, estimate
from qccf.jobs.local import LocalEngine
from qccf.jobs.training import TrainingJob, training_job
from qccf.learning.datasets import data_folder
from qccf.rounds.health import jain_index
from qccf.rounds.run import Run
from qccf.rounds.run_folder import read_run
from qccf.settings.loading import Scenario, read_settings, scenario_from_dict, with_settings

FORMS = ("paper", "scale-free")
CODECS = ("model", "update+entropy")
PRESET_SAMPLES = 1200
PASS_S = 0.7e-3
"""Seconds in which one core trains on one image once, with the 246,590-parameter network."""


@dataclass(frozen=True)
class Task:
    """A federation to train. `participants` is the most that its channels allow."""

    dataset: str
    clients: int = 10
    channels: int = 10

    @property
    def participants(self) -> int:
        return min(self.clients, self.channels)


TASKS = {
    "emnist": Task("emnist"),
    "emnist-5-channels": Task("emnist", channels=5),
    "emnist-3-channels": Task("emnist", channels=3),
    "emnist-30-clients": Task("emnist", clients=30),
    "mnist": Task("mnist"),
}


@dataclass(frozen=True)
class Scale:
    """Size of the runs: rounds, mean samples per client, and rounds between evaluations."""

    rounds: int
    samples: int
    evaluate_every: int


def task_scenario(task: Task, scale: Scale, codec: str, form: str, seed: int) -> Scenario:
    """The femnist preset with fewer samples, each with more cycles, so that computing takes the same time."""
    base = read_settings("femnist")
    share = scale.samples / PRESET_SAMPLES
    changes = {
        "federation.num_clients": task.clients,
        "federation.rounds": scale.rounds,
        "federation.seed": seed,
        "data.dataset": task.dataset,
        "data.dataset_size_mean": scale.samples,
        "data.dataset_size_std": share * base["data"]["dataset_size_std"],
        "data.dataset_size_min": max(1, round(100 * share)),
        "device.cycles_per_sample": base["device"]["cycles_per_sample"] / share,
        "learning.num_parameters": base["learning"]["num_parameters"],
        "radio.num_channels": task.channels,
        "codec.name": codec,
        "control.form": form,
        "evaluation.every": scale.evaluate_every,
        "evaluation.samples": 4000,
        "execution.workers": 1,
        "execution.checkpoint_every": 10,
    }
    return scenario_from_dict(with_settings(base, changes))


def expected_core_s(scenario: Scenario) -> float:
    """Time of a run on one core, if every channel is used in every round."""
    federation, data = scenario.federation, scenario.data
    trained = min(federation.num_clients, scenario.radio.num_channels) * data.dataset_size_mean
    passes = federation.rounds * trained * scenario.learning.local_epochs
    tested = federation.rounds / scenario.evaluation.every * scenario.evaluation.samples / 3.0
    return PASS_S * float(passes + tested) + 10.0


def measures(run: Run) -> dict[str, float]:
    """The figures of a run that are compared."""
    uploads = run.by_round("arrived").sum(axis=0).astype(float)
    return {
        "accuracy": 100.0 * run.final_accuracy(),
        "energy": float(run.energy_j[-1]),
        "participation": 100.0 * float(run.by_round("arrived").mean()),
        "fairness": jain_index(uploads) or float("nan"),
        "bits": run.mean_upload_bits(),
        "empty": float((run.by_round("participated").sum(axis=1) == 0).sum()),
    }


def progress(run: Run) -> list[tuple[float, float]]:
    """Energy in joules and accuracy in per cent at each evaluation; the accuracy is a mean over a tenth of the run."""
    seen = np.flatnonzero(np.isfinite(run.accuracy))
    window = max(1, len(seen) // 10)
    means = np.convolve(100.0 * run.accuracy[seen], np.ones(window) / window, mode="valid")
    return [(float(run.energy_j[i]), float(mean)) for i, mean in zip(seen[window - 1 :], means, strict=True)]


def energy_to(curve: Sequence[Sequence[float]], accuracy: float) -> float:
    """The energy at which a run first has this accuracy; infinite if it never has."""
    return next((energy for energy, reached in curve if reached >= accuracy), math.inf)


SHOWN = {
    "accuracy": ("accuracy (%)", ".2f"),
    "energy": ("energy (J)", ".3g"),
    "participation": ("participation (%)", ".1f"),
    "fairness": ("Jain's index", ".3f"),
    "bits": ("bits", ".2f"),
    "empty": ("empty rounds", ".0f"),
}

Results = Mapping[int, Mapping[str, Mapping[str, Any]]]
"""Seed, form, measure."""


def differences(results: Results) -> dict[str, Estimate]:
    """Scale-free minus paper over the seeds that have both; energy in per cent of the paper form's."""
    paper, free = FORMS
    pairs = [(forms[paper], forms[free]) for forms in results.values() if paper in forms and free in forms]
    found = {name: estimate(b[name] - a[name] for a, b in pairs) for name in SHOWN}
    found["energy"] = estimate(100.0 * (b["energy"] / a["energy"] - 1.0) for a, b in pairs if a["energy"] > 0.0)
    return found


def table(title: str, results: Results) -> list[str]:
    """One task and codec as lines of Markdown."""
    heads = [name for name, _ in SHOWN.values()]
    lines = [f"\n{title}\n", "| form | seeds | " + " | ".join(heads) + " |", "|---" * (len(heads) + 2) + "|"]
    for form in FORMS:
        mine = [forms[form] for forms in results.values() if form in forms]
        cells = [estimate(one[name] for one in mine).shown(shape) for name, (_, shape) in SHOWN.items()]
        lines.append(f"| {form} | {len(mine)} | " + " | ".join(cells) + " |")
    paired = differences(results)
    shown = {name: paired[name].shown("+" + shape) for name, (_, shape) in SHOWN.items()}
    shown["energy"] = paired["energy"].shown("+.1f", unit=" %")
    lines.append(f"| difference, paired | {paired['accuracy'].count} | " + " | ".join(shown.values()) + " |")
    return lines + matched_accuracy(results)


def matched_accuracy(results: Results) -> list[str]:
    """The energy until the default form has the accuracy at which the paper's form ends, where curves are recorded."""
    paper, free = FORMS
    pairs = {
        seed: (forms[paper]["energy"], energy_to(forms[free]["progress"], forms[paper]["accuracy"]))
        for seed, forms in results.items()
        if paper in forms and "progress" in forms.get(free, {})
    }
    texts = [
        f"seed {seed}: {energy:.3g} J" + (f" ({100.0 * (energy / total - 1.0):+.0f} %)" if energy < math.inf else "")
        for seed, (total, energy) in pairs.items()
    ]
    shown = ", ".join(texts).replace("inf J", "not reached")
    return [f"\nEnergy until the default form has the paper form's final accuracy, {shown}."] if pairs else []


Recorded = dict[str, dict[str, Any]]
"""The measures of finished runs, and their progress, by what was run."""


def record_key(task: str, scenario: Scenario) -> str:
    """What was run, in words that stay the same when settings are added."""
    control = scenario.control
    tolerance = f" tolerance {TOLERATED_NOISE * control.energy_weight:g}" if control.form == "scale-free" else ""
    return (
        f"{task}, {scenario.codec.name}, {control.form}{tolerance}, {scenario.federation.rounds} rounds, "
        f"{scenario.data.dataset_size_mean:g} samples, seed {scenario.federation.seed}"
    )


def recorded(file: Path | None) -> Recorded:
    return json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}


def finished(jobs: Sequence[tuple[tuple[str, str, int, str], TrainingJob]], file: Path | None) -> Recorded:
    """The measures of the runs that are recorded or finished; those of finished runs are recorded."""
    figures = recorded(file)
    for (task, *_), job in jobs:
        key = record_key(task, job.scenario)
        if key not in figures and job.is_finished():
            run = read_run(job.folder)
            figures[key] = {**measures(run), "progress": progress(run)}
    if file is not None:
        write_text_whole(file, json.dumps(figures, indent=1, sort_keys=True) + "\n")
    return figures


def show(jobs: Sequence[tuple[tuple[str, str, int, str], TrainingJob]], figures: Recorded) -> None:
    """The table of each task and codec from the finished runs."""
    found: dict[tuple[str, str], dict[int, dict[str, dict[str, Any]]]] = {}
    for (task, codec, seed, form), job in jobs:
        key = record_key(task, job.scenario)
        if key in figures:
            found.setdefault((task, codec), {}).setdefault(seed, {})[form] = figures[key]
    for (task, codec), results in found.items():
        one = next(job.scenario for (name, *_), job in jobs if name == task)
        about = (
            f"{one.federation.num_clients} clients, {one.radio.num_channels} channels, {one.federation.rounds} rounds"
        )
        print("\n".join(table(f"**{task}, {codec}** ({about}, {one.data.dataset_size_mean:g} samples each)", results)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(TASKS), metavar="A,B,…", help=f"default {', '.join(TASKS)}")
    parser.add_argument("--codecs", default=",".join(CODECS), metavar="A,B,…")
    parser.add_argument("--forms", default=",".join(FORMS), metavar="A,B")
    parser.add_argument("--seeds", default="0,1,2", metavar="0,1,…")
    parser.add_argument("--rounds", type=int, default=60, help="rounds on EMNIST")
    parser.add_argument("--samples", type=int, default=240, help="mean samples per client on EMNIST")
    parser.add_argument("--mnist-rounds", type=int, default=500)
    parser.add_argument("--mnist-samples", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--out", type=Path, default=Path("runs/training-forms"))
    parser.add_argument("--record", type=Path, metavar="FILE", help="figures of finished runs, read and written")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--estimate", action="store_true", help="print the expected time and stop")
    parser.add_argument("--show", action="store_true", help="print the table of what is finished and stop")
    options = parser.parse_args()

    scales = {
        "emnist": Scale(options.rounds, options.samples, 2),
        "mnist": Scale(options.mnist_rounds, options.mnist_samples, 10),
    }
    data_dir = data_folder(options.data_dir)
    jobs: list[tuple[tuple[str, str, int, str], TrainingJob]] = []
    for seed in map(int, options.seeds.split(",")):
        for name in options.tasks.split(","):
            if name not in TASKS:
                parser.error(f"--tasks {name} is not one of {', '.join(TASKS)}")
            for codec in options.codecs.split(","):
                for form in options.forms.split(","):
                    task = TASKS[name]
                    scenario = task_scenario(task, scales[task.dataset], codec, form, seed)
                    job = training_job(scenario, options.out, data_dir, note=f"{name}, {form}")
                    jobs.append(((name, codec, seed, form), job))
    known = recorded(options.record)
    missing = [one for one in jobs if record_key(one[0][0], one[1].scenario) not in known]
    if options.estimate:
        print_estimate(missing, options.jobs)
        return 0
    code = 0
    if not options.show:
        console = Console()
        unfinished = [job for _, job in missing]
        code = print_outcome(console, run_with_view(console, unfinished, LocalEngine(options.jobs)))
    show(jobs, finished(jobs, options.record))
    return code


def print_estimate(jobs: Sequence[tuple[Any, TrainingJob]], workers: int) -> None:
    by_task: dict[str, float] = {}
    for (name, *_), job in jobs:
        if not job.is_finished():
            by_task[name] = by_task.get(name, 0.0) + expected_core_s(job.scenario)
    for name, seconds in by_task.items():
        print(f"{name}: {seconds / 60 / workers:.0f} min")
    print(f"all unfinished runs with {workers} at a time: {sum(by_task.values()) / 60 / workers:.0f} min")


if __name__ == "__main__":
    raise SystemExit(main())
