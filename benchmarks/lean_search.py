"""What the preset `lean` was chosen from: settings of learning and control, each trained on EMNIST until an accuracy.

Run: python -m benchmarks.lean_search --record FILE [--seeds 10,11,12] [--until 0.75] "key=value key=value" …
     python -m benchmarks.lean_search --record FILE --show
Each argument is one candidate: its changes to the settings below, which were `lean` before the search. Seeds 10 and
above are for the choice only; results are reported with seeds 0 to 4. Candidates that are in the
record are skipped.
"""

import argparse
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qccf.core.files import write_text_whole
from qccf.core.intervals import estimate
from qccf.learning.datasets import Dataset, data_folder, load_dataset
from qccf.rounds.targets import targets_json
from qccf.runtimes.simulator import simulate
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


def trained(text: str, seed: int, until: float, rounds: int, dataset: Dataset) -> Figures:
    """Train one candidate until it has reached the accuracy."""
    base = [f"{key}={json.dumps(value)}" for key, value in BASE.items()]
    run_settings = [f"federation.rounds={rounds}", "evaluation.samples=4000", "execution.workers=1"]
    scenario = load_scenario("femnist", [*base, *changes_of(text), *run_settings, f"evaluation.until_accuracy={until}"])
    started = time.process_time()
    run = simulate(scenario, seed=seed, dataset=dataset)
    return {
        "targets": targets_json(run, [target for target in TARGETS if target <= until]),
        "until": until,
        "rounds": run.num_rounds,
        "energy_j": float(run.energy_j[-1]),
        "computing_share": run.computing_share(),
        "bits": run.mean_upload_bits(),
        "accuracies": [round(float(one), 4) for one in run.accuracy],
        "core_s": round(time.process_time() - started),
    }


def line(text: str, mine: Sequence[Figures]) -> str:
    """One candidate as a line of a Markdown table."""
    cells = []
    for target in TARGETS:
        costs = [one["targets"].get(f"{target:g}") for one in mine if f"{target:g}" in one["targets"]]
        known = [cost["energy_j"] for cost in costs if cost is not None]
        whole = costs and len(known) == len(costs)
        cells.append(f"{1e3 * estimate(known).mean:.1f}" if whole else "–" if not costs else "not reached")
    return f"| `{text or 'the base'}` | {len(mine)} | " + " | ".join(cells) + " |"


def table(record: Mapping[str, Mapping[str, Figures]]) -> list[str]:
    heads = " | ".join(f"mJ to {100 * target:g} %" for target in TARGETS)
    lines = [f"| changes | seeds | {heads} |", "|---" * (len(TARGETS) + 2) + "|"]
    return lines + [line(text, list(mine.values())) for text, mine in record.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="*", metavar="CHANGES")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--seeds", default="10", metavar="10,11,…")
    parser.add_argument("--until", type=float, default=0.75)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()

    def recorded() -> dict[str, dict[str, Figures]]:
        return json.loads(options.record.read_text(encoding="utf-8")) if options.record.exists() else {}

    if not options.show:
        dataset = load_dataset("emnist", data_folder(None))
        for text in options.candidates:
            for seed in options.seeds.split(","):
                if recorded().get(text, {}).get(seed, {"until": 0.0})["until"] >= options.until:
                    continue
                figures = trained(text, int(seed), options.until, options.rounds, dataset)
                record = recorded()
                record.setdefault(text, {})[seed] = figures
                write_text_whole(options.record, json.dumps(record, indent=None, sort_keys=False) + "\n")
                print(f"seed {seed}, {figures['core_s']} core-seconds: {line(text, [figures])}", flush=True)
    print("\n".join(table(recorded())))


if __name__ == "__main__":
    main()
