"""Accuracy of the paper's five policies: enough seeds, rounds and samples that a claim about accuracy can be judged.

Run: python -m benchmarks.accuracy [--tasks emnist,mnist-writers,cifar10,weights] [--jobs 2] [--estimate] [--show]
     [--pilot]
All runs use the paper's form of the controller, its codec and β = 300 in proportion. Before the runs each task states
the accuracy that the run without quantization must reach; below it the task says nothing about accuracy. `weights` is
smaller: the same policies, QCCF with several V and constant bits, for the front of energy and accuracy.

`cifar10` deviates from the paper's τ = 6 updates per round: it trains in batches of 20 images. With six updates the
paper's form of the controller needed 80 rounds to 40 % accuracy; with batches of 20 it needed 13
(docs/results/ladder-cifar10.json, one seed). So 60 rounds of six updates would end far below the 60 % that is required.
--pilot runs only no-quantization with seed 10, which no study uses, to see whether a task can reach what it requires.

The same command resumes: records of finished runs are in --record (committed; those of `weights` are in a file beside
it, which is named after it), and unfinished runs continue from their folders in --out, if these are still there. Runs
are done seed by seed, so that a stopped study has whole seeds.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.training_forms import expected_core_s
from qccf.cli.queue_view import print_outcome, run_with_view
from qccf.core.errors import DataError
from qccf.core.intervals import estimate
from qccf.jobs.local import LocalEngine
from qccf.jobs.queue import QueueProgress
from qccf.jobs.training import TrainingJob, training_job
from qccf.learning.datasets import data_folder, require_dataset
from qccf.paper.claims import Judged, judge
from qccf.paper.experiments import TASKS, ChosenTask, Scale, task_scenario
from qccf.paper.families import Family, setting_of
from qccf.paper.verdicts import SIGNS
from qccf.policies.registry import PAPERS_POLICIES
from qccf.rounds.run import Run
from qccf.rounds.run_folder import read_run
from qccf.rounds.run_record import RunRecords
from qccf.rounds.targets import evaluation_shown, target_cells

BETA = 300.0
RECORD = Path("docs/results/accuracy.json")
RAW, CONSTANT = "no-quantization", "fixed-bits"
PILOT, PILOT_SEED = f"pilot, {RAW}", 10


PAPERS = {name: (f"policy.name={name}",) for name in PAPERS_POLICIES}
FRONT = {
    **PAPERS,
    **{f"V = {weight:g}": (f"control.paper.energy_weight={weight!r}",) for weight in (1.0, 1e3, 1e4, 1e6)},
    **{f"{bits} bits": (f"policy.name={CONSTANT}", f"fixed_bits.bits={bits}") for bits in (2, 3, 4, 6)},
}
"""The paper's qccf is the one with V = 100."""


@dataclass(frozen=True)
class Study:
    """One task: its data, the size of its runs, what the unquantized run must reach, and the runs of each seed."""

    dataset: str
    seeds: int
    rounds: int
    samples: float
    needed_accuracy: float
    """Mean final accuracy of no-quantization, stated before the runs."""
    settings: tuple[str, ...] = ()
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PAPERS)
    """What is compared, with its settings."""
    task: str = "femnist"
    """The paper's task, whose preset and V the runs use."""
    front: bool = False
    """Whether energy and accuracy are compared over V and constant bits. Such a study has a record file of its own,
    because in one file with the others `qccf report` would show one family for each number of constant bits."""

    def scale(self) -> Scale:
        return Scale("accuracy", self.seeds, self.rounds, self.samples / 1200.0, False, 0, 0, (), 0, 4000)

    def chosen(self) -> ChosenTask:
        """The task with this data. `samples` is what a client gets, so the task's own factor on samples is left out."""
        return ChosenTask(replace(TASKS[self.task], data_share=1.0), self.dataset)

    @property
    def targets(self) -> tuple[float, float]:
        """The accuracies to which costs are compared: what is required, and 5 points less."""
        return round(self.needed_accuracy - 0.05, 4), self.needed_accuracy


STUDIES = {
    "emnist": Study("emnist", 8, 150, 480.0, 0.70),
    "mnist-writers": Study("mnist", 4, 100, 120.0, 0.90, ("data.partition=writer",)),
    "cifar10": Study(
        "cifar10",
        3,
        60,
        600.0,
        0.60,
        ("data.transform=['standardise']", "learning.batch_size=20"),
        task="cifar10",
    ),
    "weights": Study("emnist", 3, 60, 480.0, 0.70, kinds=FRONT, front=True),
}
EXECUTION = ("evaluation.every=2", "execution.workers=1", "execution.checkpoint_every=10")


def study_jobs(names: Sequence[str], out: Path, data_dir: Path) -> dict[str, TrainingJob]:
    """The runs of the studies by the name of their record, seed by seed."""
    return {
        record_name(name, kind, seed): study_job(name, kind, own, seed, out, data_dir)
        for seed in range(max(STUDIES[name].seeds for name in names))
        for name in names
        if seed < STUDIES[name].seeds
        for kind, own in STUDIES[name].kinds.items()
    }


def pilot_jobs(names: Sequence[str], out: Path, data_dir: Path) -> dict[str, TrainingJob]:
    """The pilot of each study. It is tested after every round, so that `qccf report` does not count it among the
    study's runs: it shows a family of its own with this label."""
    own = (*PAPERS[RAW], "policy.label=pilot", "evaluation.every=1")
    return {
        record_name(name, PILOT, PILOT_SEED): study_job(name, PILOT, own, PILOT_SEED, out, data_dir) for name in names
    }


def study_job(name: str, kind: str, own: Sequence[str], seed: int, out: Path, data_dir: Path) -> TrainingJob:
    """One run of a study: `own` are the settings of its kind."""
    study = STUDIES[name]
    chosen = study.chosen()
    settings = [*study.settings, *EXECUTION, f"federation.seed={seed}", *own]
    scenario = task_scenario(chosen, study.scale(), settings, beta=BETA, weight=chosen.task.energy_weight)
    return training_job(scenario, out, data_dir, note=f"{name}, {kind}")


def record_name(study: str, kind: str, seed: int) -> str:
    """What was run; a study that changes its size gets a new name."""
    one = STUDIES[study]
    return f"{study}, {one.rounds} rounds, {one.samples:g} samples, {kind}, seed {seed}"


def study_of(name: str) -> str:
    """The study that the name of a record begins with."""
    return name.partition(",")[0]


def record_file(study: str, record: Path) -> Path:
    """The file with the records of a study: a front has its own, beside the file of the others."""
    return record.with_stem(f"{record.stem}-{study}") if STUDIES[study].front else record


def recorded_runs(study: str, records: RunRecords) -> dict[str, list[Run]]:
    """The runs that are recorded, by kind; kinds without a run are left out."""
    one = STUDIES[study]
    names = {kind: [record_name(study, kind, seed) for seed in range(one.seeds)] for kind in one.kinds}
    found = {kind: list(records.runs(name for name in mine if name in records)) for kind, mine in names.items()}
    return {kind: runs for kind, runs in found.items() if runs}


def collect(jobs: Mapping[str, TrainingJob], record: Path) -> dict[str, RunRecords]:
    """The records of each study, with the runs that finished since; a file is written if there are new ones."""
    file_of = {study: record_file(study, record) for study in map(study_of, jobs)}
    files = {file: RunRecords(file) for file in file_of.values()}
    new = set()
    for name, job in jobs.items():
        file = file_of[study_of(name)]
        if name not in files[file] and job.is_finished():
            files[file].add(name, read_run(job.folder))
            new.add(file)
    for file in new:
        files[file].write(file)
    return {study: files[file] for study, file in file_of.items()}


def table(study: str, by_kind: Mapping[str, Sequence[Run]]) -> list[str]:
    """The finished runs of one study as lines of Markdown."""
    one = STUDIES[study]
    ours = {run.seed: run.final_accuracy() for run in by_kind.get("qccf", ())}
    lines = [
        f"\n**{study}** ({one.rounds} rounds, {one.samples:g} samples per client on average, β = "
        f"{BETA * one.samples / 1200:g})\n",
        "| | seeds | accuracy (%) | accuracy minus QCCF's (points) | energy (J) | simulated time (s) | bits | "
        "late uploads (%) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, mine in by_kind.items():
        pairs = [(run.final_accuracy(), ours[run.seed]) for run in mine if run.seed in ours and kind != "qccf"]
        cells = [
            estimate(100.0 * run.final_accuracy() for run in mine).shown(".2f"),
            estimate(100.0 * (theirs - qccf) for theirs, qccf in pairs).shown("+.2f"),
            estimate(float(run.energy_j[-1]) for run in mine).shown(".3g"),
            estimate(float(run.time_s[-1]) for run in mine).shown(".3g"),
            estimate(run.mean_upload_bits() for run in mine).shown(".2f"),
            estimate(100.0 * run.missed_share() for run in mine).shown(".1f"),
        ]
        lines.append(f"| {kind} | {len(mine)} | " + " | ".join(cells) + " |")
    raw = estimate(run.final_accuracy() for run in by_kind.get(RAW, ()))
    reached = raw.count and raw.mean >= one.needed_accuracy
    lines.append(
        f"\nWithout quantization {raw.shown('.1f', 100.0, ' %')}; {100.0 * one.needed_accuracy:.0f} % was required "
        f"before the runs: claims about accuracy are {'judged' if reached else 'not measurable'}."
    )
    return lines


def targets_table(study: str, by_kind: Mapping[str, Sequence[Run]]) -> list[str]:
    """What each kind of run took to the targets of the study, as lines of Markdown."""
    targets = STUDIES[study].targets
    heads = [
        f"{what} to {100.0 * target:.0f} %" for target in targets for what in ("rounds", "simulated time", "energy")
    ]
    lines = ["\n| | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for kind, mine in by_kind.items():
        cells = [cell for target in targets for cell in target_cells(mine, target)]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    evaluations = [evaluation_shown(run.scenario.evaluation) for mine in by_kind.values() for run in mine[:1]]
    return [*lines, *(f"\n{sentence}." for sentence in dict.fromkeys(evaluations))]


def claims_table(by_kind: Mapping[str, Sequence[Run]]) -> list[str]:
    """The paper's claims as the runs of one study judge them, as lines of Markdown.

    Constant bits are no part of the paper, and their settings would make other families of their runs.
    """
    runs = tuple(run for mine in by_kind.values() for run in mine if run.policy != CONSTANT)
    if not runs:
        return []
    lines = ["\n| claim | paper | here | n | verdict | why |", "|---|---|---|---|---|---|"]
    beta = setting_of(runs[0]).beta_label  # a study has one, and its title says it
    for one in judge(Family(runs)):
        paper = ", ".join(filter(None, (one.claim.paper, one.claim.figure)))
        parts = [": ".join(filter(None, (finding.part, finding.value))) for finding in one.findings]
        here = "; ".join(part.removeprefix(beta).lstrip(":, ") for part in parts)
        lines.append(f"| {one.claim.words} | {paper} | {here} | {seeds_of(one)} | {one.verdict} | {one.why} |")
    signs = ", ".join(f"{sign} {answer}" for answer, sign in SIGNS.items())
    return [*lines, f"\nn: seeds; {signs}."]


def seeds_of(judged: Judged) -> str:
    """How many seeds the numbers of a claim come from, such as 8 or 7 to 8; – where there is no number."""
    counts = sorted({m.estimate.count for finding in judged.findings for m in finding.measures if m.estimate.count})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "–"


def pilot_table(study: str, run: Run) -> list[str]:
    """The accuracy of a pilot at about a dozen of its evaluations, as lines of Markdown."""
    seen = np.flatnonzero(np.isfinite(run.accuracy))
    shown = seen[::-1][:: max(1, len(seen) // 12)][::-1]  # the last evaluation is always among them
    return [
        f"\n**{study}, {PILOT}, seed {run.seed}**: {100.0 * run.final_accuracy():.1f} % at the end (mean over the "
        f"last tenth of the rounds); {100.0 * STUDIES[study].needed_accuracy:.0f} % is required.\n",
        "| round | accuracy (%) |",
        "|---|---|",
        *(f"| {index + 1} | {100.0 * run.accuracy[index]:.1f} |" for index in shown),
    ]


def study_lines(study: str, records: RunRecords) -> list[str]:
    """All tables of one study from the runs that are recorded."""
    by_kind = recorded_runs(study, records)
    if not by_kind:
        return [f"\n**{study}**: no run is recorded yet."]
    return [*table(study, by_kind), *targets_table(study, by_kind), *claims_table(by_kind)]


def pilot_lines(study: str, records: RunRecords) -> list[str]:
    """The table of a study's pilot, or that it is not recorded yet."""
    name = record_name(study, PILOT, PILOT_SEED)
    return pilot_table(study, records.run(name)) if name in records else [f"\n**{name}**: not recorded yet."]


def missing_data(studies: Iterable[str], data_dir: Path) -> str:
    """Why the data of a study cannot be used, in one sentence; empty if those of all can."""
    for study in dict.fromkeys(studies):
        try:
            require_dataset(STUDIES[study].dataset, data_dir)
        except DataError as error:
            return f"{str(error).rstrip('.')}, or leave {study} out of --tasks."
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(STUDIES), metavar="A,B,…", help=f"default {', '.join(STUDIES)}")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy"))
    parser.add_argument(
        "--record",
        type=Path,
        default=RECORD,
        metavar="FILE",
        help=f"default {RECORD}; records of weights are in {record_file('weights', Path('FILE.json'))}",
    )
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--pilot", action="store_true", help=f"only {RAW} with seed {PILOT_SEED} of the chosen tasks")
    parser.add_argument("--estimate", action="store_true", help="print the expected time and stop")
    parser.add_argument("--show", action="store_true", help="record and print what is finished and stop")
    options = parser.parse_args(arguments)
    names = options.tasks.split(",")
    if unknown := [name for name in names if name not in STUDIES]:
        parser.error(f"--tasks {unknown[0]} is not one of {', '.join(STUDIES)}")

    data_dir = data_folder(options.data_dir)
    jobs = (pilot_jobs if options.pilot else study_jobs)(names, options.out, data_dir)
    records = collect(jobs, options.record)
    missing = {name: job for name, job in jobs.items() if name not in records[study_of(name)]}
    if options.estimate:
        seconds = sum(expected_core_s(job.scenario) for job in missing.values())
        print(
            f"{len(missing)} of {len(jobs)} runs, {seconds / 3600 / options.jobs:.1f} h with {options.jobs} at a time"
        )
        return 0
    code = 0
    if missing and not options.show:
        if reason := missing_data(map(study_of, missing), data_dir):
            parser.error(reason)
        console = Console()

        def keep(progress: QueueProgress, index: int) -> None:
            if progress.states[index] == "done":
                collect(jobs, options.record)

        code = print_outcome(console, run_with_view(console, list(missing.values()), LocalEngine(options.jobs), keep))
    records = collect(jobs, options.record)
    for name in names:
        print("\n".join(pilot_lines(name, records[name]) if options.pilot else study_lines(name, records[name])))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
