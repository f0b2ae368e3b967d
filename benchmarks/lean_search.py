"""What the preset `lean` was chosen from: settings of learning and control, each trained on EMNIST until an accuracy.

Run: python -m benchmarks.lean_search --record FILE [--seeds 10,11,12] [--until 0.75] "key=value key=value" …
     python -m benchmarks.lean_search --record FILE --show
Each argument is one candidate: its changes to the settings below, which were `lean` before the search. Seeds 10 and
above are for the choice only; results are reported with seeds 0 to 4. The same command goes on with runs that were
stopped. What is in the record is skipped, unless it ended before the accuracy and more rounds are allowed now. A
candidate is known by its words: after a change of a policy of your own, remove its runs from the record.
"""

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from qccf.cli.queue_view import print_outcome, run_with_view
from qccf.core.files import one_at_a_time, write_text_whole
from qccf.core.intervals import estimate
from qccf.jobs.local import LocalEngine
from qccf.jobs.queue import QueueProgress
from qccf.jobs.training import TrainingJob, training_job
from qccf.learning.datasets import data_folder
from qccf.rounds.run import Run
from qccf.rounds.run_folder import read_run
from qccf.rounds.targets import targets_json
from qccf.settings.loading import load_scenario

TARGETS = (0.65, 0.70, 0.75, 0.80, 0.82)

BASE = {
    "data.dataset": "emnist",
    "data.dataset_size_std": 300.0,
    "learning.batch_size": 20,
    "learning.local_epochs": 1,
    "learning.learning_rate": 0.1,
    "server.optimizer": "fedavgm",
    "server.fedavgm.momentum": 0.5,
    "control.share": 0.5,
}
"""The federation of the ladder, and what every candidate starts from."""

Figures = dict[str, Any]


def changes_of(text: str) -> list[str]:
    """The settings of a candidate as --set takes them, after those of the base."""
    return shlex.split(text)


def candidate_job(text: str, seed: int, until: float, rounds: int, out: Path, data_dir: Path) -> TrainingJob:
    """Training of one candidate until it has reached the accuracy."""
    base = [f"{key}={json.dumps(value)}" for key, value in BASE.items()]
    common = [
        f"federation.rounds={rounds}",
        f"federation.seed={seed}",
        f"evaluation.until_accuracy={until}",
        "evaluation.samples=4000",
        "execution.workers=1",
        "execution.checkpoint_every=5",
    ]
    fixed = {one.partition("=")[0] for one in common}
    for one in changes_of(text):
        if (name := one.partition("=")[0].strip()) in fixed:
            raise SystemExit(
                f"{name} is the same for all candidates: leave it out, or see --seeds, --until and --rounds."
            )
    return training_job(load_scenario("femnist", [*base, *changes_of(text), *common]), out, data_dir, note=text)


def measures(run: Run, until: float) -> Figures:
    return {
        "targets": targets_json(run, sorted({target for target in (*TARGETS, until) if target <= until})),
        "until": until,
        "rounds": run.num_rounds,
        "energy_j": float(run.energy_j[-1]),
        "computing_share": run.computing_share(),
        "bits": run.mean_upload_bits(),
        "accuracies": [round(float(one), 4) for one in run.accuracy],
    }


def line(text: str, mine: Sequence[Figures]) -> str:
    """One candidate as a line of a Markdown table."""
    cells = []
    for target in TARGETS:
        costs = [one["targets"].get(f"{target:g}") for one in mine if f"{target:g}" in one["targets"]]
        known = [cost["energy_j"] for cost in costs if cost is not None]
        if not costs:
            cells.append("–")
            continue
        cell = f"{1e3 * estimate(known).mean:.1f}" if len(known) == len(costs) else "not reached"
        cells.append(cell if len(costs) == len(mine) else f"{cell} ({len(costs)} of {len(mine)} run)")
    return f"| `{text or 'the base'}` | {len(mine)} | " + " | ".join(cells) + " |"


def table(record: Mapping[str, Mapping[str, Figures]]) -> list[str]:
    heads = " | ".join(f"mJ to {100 * target:g} %" for target in TARGETS)
    lines = [f"| changes | seeds | {heads} |", "|---" * (len(TARGETS) + 2) + "|"]
    return lines + [line(text, list(mine.values())) for text, mine in record.items()]


def read_record(file: Path) -> dict[str, dict[str, Figures]]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def is_known(one: Figures | None, until: float, rounds: int) -> bool:
    """Whether a recorded run went as far as asked, or ended before because no more rounds were allowed."""
    if one is None or one["until"] < until:
        return False
    return one["targets"].get(f"{one['until']:g}") is not None or one["rounds"] >= rounds


def collect(jobs: Mapping[tuple[str, int], TrainingJob], until: float, file: Path) -> None:
    """Record the runs that have finished. Other processes may record theirs at the same time."""
    found = {name: measures(read_run(job.folder), until) for name, job in jobs.items() if job.is_finished()}
    with one_at_a_time(file.parent):
        record = read_record(file)
        for (text, seed), one in found.items():
            known = record.setdefault(text, {}).get(str(seed))
            if known is None or (known["until"], known["rounds"]) < (one["until"], one["rounds"]):
                record[text][str(seed)] = one
        write_text_whole(file, json.dumps(record, indent=None, sort_keys=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="*", metavar="CHANGES")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--seeds", default="10", metavar="10,11,…")
    parser.add_argument("--until", type=float, default=0.75)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--out", type=Path, default=Path("runs/lean-search"))
    parser.add_argument("--show", action="store_true", help="print the table of what is recorded and stop")
    options = parser.parse_args()

    data_dir, known = data_folder(None), read_record(options.record)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    jobs = {
        (text, seed): candidate_job(text, seed, options.until, options.rounds, options.out, data_dir)
        for text in options.candidates
        for seed in seeds
        if not is_known(known.get(text, {}).get(str(seed)), options.until, options.rounds)
    }
    different = list({job.folder: job for job in jobs.values()}.values())  # two spellings may be one candidate
    code = 0
    if jobs and not options.show:
        console = Console()

        def keep(progress: QueueProgress, index: int) -> None:
            if progress.states[index] == "done":
                collect(jobs, options.until, options.record)

        code = print_outcome(console, run_with_view(console, different, LocalEngine(options.jobs), keep))
        collect(jobs, options.until, options.record)
    print("\n".join(table(read_record(options.record))))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
