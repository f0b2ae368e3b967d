"""Accuracy of the paper's five policies: enough seeds, rounds and samples that a claim about accuracy can be judged.

Run: python -m benchmarks.accuracy [--tasks emnist,mnist-writers,weights] [--jobs 2] [--estimate] [--show]
All runs use the paper's form of the controller, its codec and β = 300. Before the runs each task states the accuracy
that the run without quantization must reach; below it the task says nothing about accuracy. `weights` is smaller: QCCF
with several V beside constant bits, for the front of energy and accuracy.

The same command resumes: records of finished runs are in --record (committed), and unfinished runs continue from their
folders in --out, if these are still there. Runs are done seed by seed, so that a stopped study has whole seeds.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks.training_forms import expected_core_s
from qccf.cli.queue_view import print_outcome, run_with_view
from qccf.core.intervals import estimate
from qccf.jobs.local import LocalEngine
from qccf.jobs.queue import QueueProgress
from qccf.jobs.training import TrainingJob, training_job
from qccf.learning.datasets import data_folder
from qccf.paper.experiments import TASKS, ChosenTask, Scale, task_scenario
from qccf.policies.registry import PAPERS_POLICIES
from qccf.rounds.run import Run
from qccf.rounds.run_folder import read_run
from qccf.rounds.run_record import RunRecords

BETA = 300.0
RECORD = Path("docs/results/accuracy.json")


PAPERS = {name: (f"policy.name={name}",) for name in PAPERS_POLICIES}
FRONT = {
    f"V = {weight:g}": (f"control.paper.energy_weight={weight!r}",) for weight in (1.0, 10.0, 100.0, 1e3, 1e4, 1e6)
}
FRONT |= {f"{bits} bits": ("policy.name=fixed-bits", f"fixed_bits.bits={bits}") for bits in (1, 2, 3, 4, 6)}


@dataclass(frozen=True)
class Study:
    """One task: its data, the size of its runs, what the unquantized run must reach, and the runs of each seed."""

    dataset: str
    seeds: int
    rounds: int
    samples: float
    needed_accuracy: float | None
    """Mean final accuracy of no-quantization, stated before the runs; None where it is not among the runs."""
    settings: tuple[str, ...] = ()
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PAPERS)
    """What is compared, with its settings."""

    def scale(self) -> Scale:
        return Scale("accuracy", self.seeds, self.rounds, self.samples / 1200.0, False, 0, 0, (), 0, 4000)


STUDIES = {
    "emnist": Study("emnist", 8, 150, 480.0, 0.70),
    "mnist-writers": Study("mnist", 4, 100, 120.0, 0.90, ("data.partition=writer",)),
    "weights": Study("emnist", 3, 60, 160.0, None, kinds=FRONT),
}
EXECUTION = ("evaluation.every=2", "execution.workers=1", "execution.checkpoint_every=10")


def study_jobs(names: Sequence[str], out: Path, data_dir: Path) -> dict[str, TrainingJob]:
    """The runs of the studies by the name of their record, seed by seed."""
    jobs: dict[str, TrainingJob] = {}
    for seed in range(max(STUDIES[name].seeds for name in names)):
        for name in names:
            study = STUDIES[name]
            if seed >= study.seeds:
                continue
            task = TASKS["femnist"]
            chosen = ChosenTask(task, study.dataset)
            for kind, own in study.kinds.items():
                settings = [*study.settings, *EXECUTION, f"federation.seed={seed}", *own]
                scenario = task_scenario(chosen, study.scale(), settings, beta=BETA, weight=task.energy_weight)
                jobs[record_name(name, kind, seed)] = training_job(scenario, out, data_dir, note=f"{name}, {kind}")
    return jobs


def record_name(study: str, kind: str, seed: int) -> str:
    """What was run; a study that changes its size gets a new name."""
    one = STUDIES[study]
    return f"{study}, {one.rounds} rounds, {one.samples:g} samples, {kind}, seed {seed}"


def recorded_runs(study: str, records: RunRecords) -> dict[str, list[Run]]:
    """The runs that are recorded, by kind; kinds without a run are left out."""
    one = STUDIES[study]
    names = {kind: [record_name(study, kind, seed) for seed in range(one.seeds)] for kind in one.kinds}
    found = {kind: list(records.runs(name for name in mine if name in records)) for kind, mine in names.items()}
    return {kind: runs for kind, runs in found.items() if runs}


def collect(jobs: dict[str, TrainingJob], file: Path) -> RunRecords:
    """The records in the file and of the runs that finished since; the file is written if there are new ones."""
    records = RunRecords(file)
    new = [name for name, job in jobs.items() if name not in records and job.is_finished()]
    for name in new:
        records.add(name, read_run(jobs[name].folder))
    if new:
        records.write(file)
    return records


def table(study: str, by_kind: Mapping[str, Sequence[Run]]) -> list[str]:
    """The finished runs of one study as lines of Markdown."""
    one = STUDIES[study]
    lines = [
        f"\n**{study}** ({one.rounds} rounds, {one.samples:g} samples per client on average, β = "
        f"{BETA * one.samples / 1200:g})\n",
        "| | seeds | accuracy (%) | energy (J) | simulated time (s) | bits | late uploads (%) |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, mine in by_kind.items():
        cells = [
            estimate(100.0 * run.final_accuracy() for run in mine).shown(".2f"),
            estimate(float(run.energy_j[-1]) for run in mine).shown(".3g"),
            estimate(float(run.time_s[-1]) for run in mine).shown(".3g"),
            estimate(run.mean_upload_bits() for run in mine).shown(".2f"),
            estimate(100.0 * run.missed_share() for run in mine).shown(".1f"),
        ]
        lines.append(f"| {kind} | {len(mine)} | " + " | ".join(cells) + " |")
    if one.needed_accuracy is None:
        return lines
    raw = estimate(run.final_accuracy() for run in by_kind.get("no-quantization", ()))
    reached = raw.count and raw.mean >= one.needed_accuracy
    lines.append(
        f"\nWithout quantization {raw.shown('.1f', 100.0, ' %')}; {one.needed_accuracy:.0%} was required before the "
        f"runs: claims about accuracy are {'judged' if reached else 'not measurable'}."
    )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(STUDIES), metavar="A,B,…", help=f"default {', '.join(STUDIES)}")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy"))
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE", help=f"default {RECORD}")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--estimate", action="store_true", help="print the expected time and stop")
    parser.add_argument("--show", action="store_true", help="record and print what is finished and stop")
    options = parser.parse_args()
    names = options.tasks.split(",")
    if unknown := [name for name in names if name not in STUDIES]:
        parser.error(f"--tasks {unknown[0]} is not one of {', '.join(STUDIES)}")

    jobs = study_jobs(names, options.out, data_folder(options.data_dir))
    records = collect(jobs, options.record)
    missing = [job for name, job in jobs.items() if name not in records]
    if options.estimate:
        seconds = sum(expected_core_s(job.scenario) for job in missing)
        print(
            f"{len(missing)} of {len(jobs)} runs, {seconds / 3600 / options.jobs:.1f} h with {options.jobs} at a time"
        )
        return 0
    code = 0
    if missing and not options.show:
        console = Console()

        def keep(progress: QueueProgress, index: int) -> None:
            if progress.states[index] == "done":
                collect(jobs, options.record)

        code = print_outcome(console, run_with_view(console, missing, LocalEngine(options.jobs), keep))
    records = collect(jobs, options.record)
    for name in names:
        print("\n".join(table(name, recorded_runs(name, records))))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
