"""Joules to an accuracy, one change at a time: from the paper's QCCF to the preset `lean`.

Run: python -m benchmarks.ladder [--task cifar10] [--rungs A,B] [--seeds 0,1,…] [--until 0.75] [--record FILE]
     [--figure FILE] [--show]
The same command resumes what was stopped and skips what is finished. --record FILE keeps the figures of finished runs
in a JSON file, and skips runs whose figures are in it.

The plan, stated before the runs. Training takes about 0.6 core-milliseconds per sample pass, so the runs that cost the
most energy also take longest: the paper's QCCF needs about 16 core-minutes to 75 %, `lean` about one.
- Cumulative rungs (the paper's, each change added to the ones before it, `lean`): seeds 0 to 4, until 75 %.
- Each change alone on top of the paper's QCCF ("+ …"): seed 0, until 70 %, because each takes some 10 core-minutes.
- `lean` stops at 75 % as well.
- "accurate lean" runs until 85 %, for 300 rounds at most. Its settings: images that are turned, scaled, slanted and
  moved at random, batches of 10, weight decay, dropout, half of the logit adjustment, for the shares of classes in the
  whole dataset, a slower decay of the learning rate and a longer average of models. All was chosen with seeds 10 and 11
  (`benchmarks.lean_search`), but other forms of it were run with reported seeds before. With all clients in every
  round, batches of 20 and the whole adjustment, or none, stayed at 80 to 81 % with seed 0; without dropout, with a
  decay of 0.97 and an average of 0.7, seeds 0 and 1 ended at 81.7 and 81.2 % after 70 rounds. With a decay of 0.99 and
  an average of 0.95, seeds 0 and 2 reached 82 % for 0.15 J, and seed 1 was at 81.6 % after 300 rounds; so the decay
  was made slower. The runs were first stopped at 82 %, after 135 to 243 rounds, when all test samples gave 81.7 to
  82.4 %; then the same runs went on.
- Logit adjustment, fewer clients with a learning rate that decays, and an average of models were added to `lean` after
  the other rungs had been run with these seeds; they were chosen with seeds 10 to 14. Three choices have seen seeds 0
  to 4: the decay of "accurate lean", above, and two for `lean`. A decay of 0.95 took 20 to 22 mJ with four of them and
  stayed at 74.5 % for 30 rounds with seed 0, so it was replaced. One client per round was a candidate for `lean`: with
  seed 2 a small client threw the model back from 74 to 48 % for some rounds, so it became a variant.
- Other runs end after 120 rounds at the latest; a target that a run has not reached by then is "not reached".
- CIFAR-10, with standardised inputs, has targets of its own (`TASKS`), no changes alone and no variants. A pilot of
  `lean` with seed 10 reached the highest target; `lean` and the rung before it run until that. The paper's rung takes
  45 core-minutes, so there the rungs between are run with fewer seeds, and some are left out (`--rungs`, `--seeds`).
- The order is: the paper's and `lean` with all their seeds, the variants of `lean` (`VARIANTS`), then the rungs
  between, then changes alone. Changes that shorten runs are added first, which makes the rungs between cheap.
- What receiving whole models, resting and coding would cost is computed afterwards for every run, for the decisions as
  they were. A controller that is charged for rest ends its rounds a little earlier. Entropy coding takes nearly the
  whole deadline at the highest frequency of the paper's model. So coding is priced as if it came after training, at
  the slowest frequency and outside the deadline. Resting meanwhile is not charged.
`benchmarks/lean_search.py` holds the pilots, with other seeds.
"""

import argparse
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from qccf.cli.queue_view import print_outcome, run_with_view
from qccf.core.contracts import FloatArray
from qccf.core.files import one_at_a_time, write_text_whole
from qccf.core.intervals import Estimate, estimate
from qccf.core.words import counted
from qccf.devices.cost import compute_energy_j
from qccf.jobs.local import LocalEngine
from qccf.jobs.queue import QueueProgress
from qccf.jobs.training import TrainingJob, training_job
from qccf.learning.datasets import data_folder
from qccf.quantization.costs import raw_payload_bits
from qccf.reports.figures.builders import INTERVALS, estimated
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import MARKERS, PALETTE, Style
from qccf.rounds.run import Run
from qccf.rounds.run_folder import read_run
from qccf.rounds.targets import targets_json
from qccf.settings.loading import Scenario, load_scenario

Changes = Mapping[str, Any]

FEDERATION: Changes = {"data.dataset": "emnist", "data.dataset_size_std": 300.0}


@dataclass(frozen=True)
class Task:
    """What is learned, and to which accuracies: the cumulative rungs stop at `all_reach`, a change alone at `alone`,
    `lean` and the rung before it at `lean_reaches`, and the accurate variant of `lean` at `most`. Without `alone` a
    task has no variants either."""

    name: str
    preset: str
    federation: Changes
    targets: tuple[float, ...]
    all_reach: float
    alone: float | None
    lean_reaches: float
    most: float


EMNIST = Task("EMNIST", "femnist", FEDERATION, (0.70, 0.75, 0.80, 0.82, 0.85), 0.75, 0.70, 0.75, 0.85)
CIFAR10 = Task(
    "CIFAR-10",
    "cifar10",
    {"data.dataset": "cifar10", "data.dataset_size_std": 300.0, "data.transform": ["standardise"]},
    (0.35, 0.40, 0.45, 0.50),
    0.40,
    None,
    0.50,
    0.50,
)
TASKS = {"emnist": EMNIST, "cifar10": CIFAR10}

PAPER: Changes = {"control.form": "paper", "codec.name": "model"}
LEVERS: Mapping[str, Changes] = {
    "small steps": {"learning.batch_size": 20},
    "one epoch": {"learning.local_epochs": 1},
    "coded updates": {"codec.name": "update+entropy"},
    "default controller": {"control.form": "scale-free"},
    "adapted power": {"control.form": "scale-free", "control.power": "adapted"},
    "server momentum": {"server.optimizer": "fedavgm", "server.fedavgm.momentum": 0.5},
    "half of the clients": {"control.form": "scale-free", "control.share": 0.5},
    "logit adjustment": {"learning.logit_adjustment": True},
    "fewer clients, smaller steps": {"control.share": 0.2, "learning.decay": 0.97},
    "averaged models": {"server.averaging": 0.7},
}
"""In the order in which they are added. The paper's form of the controller has no share of clients and one power."""

NOT_ALONE = ("small steps", "fewer clients, smaller steps")
"""The first alone is the second rung. With the paper's six steps per round a learning rate that falls by 3 % per round
would end training too early."""

FIRST, BEFORE_LAST, LAST = "paper", "… fewer clients, smaller steps", "lean"

RECEIVE_W, RECEIVE_BPS, IDLE_W = 0.1, 1e8, 0.01
"""The receiver and the resting client of the columns that charge for them."""

CODING_CYCLES: Mapping[str, float] = {"model": 33.0, "update+entropy": 80.0, "sparse": 80.0}
"""CPU cycles per parameter of encoding an upload and forecasting the next one, by codec. `python -m benchmarks.codec`
measures them; those of the last two are the middle of 70 to 90."""

ACCURATE = "accurate lean"
ONE_CLIENT = "lean with one client per round"

HALF = "… half of the clients"

CODED_DOWNLINK: Changes = {
    "server.downlink": "update+entropy",
    "accounts.receive_power_w": RECEIVE_W,
    "accounts.receive_rate_bps": RECEIVE_BPS,
    "accounts.idle_power_w": IDLE_W,
}

ACCURATE_CHANGES: Changes = {
    "learning.decay": 0.995,
    "server.averaging": 0.97,
    "learning.batch_size": 10,
    "learning.weight_decay": 5e-4,
    "learning.logit_adjustment": "dataset",
    "learning.adjustment_strength": 0.5,
    "learning.model_options": {"dropout": 0.25},
    "data.transform": ["affine"],
}

VARIANTS: Mapping[str, tuple[str, Changes]] = {
    ACCURATE: (LAST, ACCURATE_CHANGES),
    ONE_CLIENT: (LAST, {"control.share": 0.1}),
    "lean on Table I": (LAST, {"radio.bandwidth_hz": 1e6}),
    "lean with sparse uploads": (LAST, {"codec.name": "sparse"}),
    "lean with a coded downlink": (LAST, CODED_DOWNLINK),
    "half of the clients with a coded downlink": (HALF, CODED_DOWNLINK),
}
"""Beside the ladder, a rung and its changes: `lean` for a higher accuracy, with one client per round, on the paper's
literal table and with another codec, and two rungs with a coded downlink where receiving and resting are charged."""

MOST_ROUNDS = 120
MORE_ROUNDS = {ACCURATE: 300}
SEEDS_ALONE = 1
ROUNDED_MJ = 1e-4
"""To what `charges_mj` is rounded."""


def is_alone(rung: str) -> bool:
    return rung.startswith("+ ")


def stops_at(rung: str, task: Task = EMNIST) -> float:
    """The accuracy at which the plan stops a rung."""
    if is_alone(rung) and task.alone is not None:
        return task.alone
    return {BEFORE_LAST: task.lean_reaches, LAST: task.lean_reaches, ACCURATE: task.most}.get(rung, task.all_reach)


def planned(chosen: Sequence[str], seeds: Sequence[int], task: Task = EMNIST) -> list[tuple[str, int]]:
    """Rungs and seeds in the order of the plan."""
    ends = [(rung, seed) for seed in seeds for rung in (FIRST, LAST)]
    whole = task.alone is not None
    ends += [(rung, seed) for seed in seeds for rung in VARIANTS if whole]
    inner = [rung for rung in rungs() if rung not in (FIRST, LAST, *VARIANTS)]
    between = [(rung, seed) for seed in seeds for rung in inner if not is_alone(rung)]
    with_alone = seeds[:SEEDS_ALONE] if whole else []
    alone = [(rung, seed) for seed in with_alone for rung in inner if is_alone(rung)]
    return [one for one in (*ends, *between, *alone) if one[0] in chosen]


def rungs() -> dict[str, Changes]:
    """The settings of each rung: the paper's QCCF, the levers added one by one, and each lever alone on it."""
    found: dict[str, Changes] = {FIRST: PAPER}
    added = dict(PAPER)
    names = list(LEVERS)
    for name in names:
        added |= LEVERS[name]
        found[LAST if name == names[-1] else f"… {name}"] = dict(added)
    found |= {f"+ {name}": {**PAPER, **LEVERS[name]} for name in names if name not in NOT_ALONE}
    return found | {name: {**found[base], **changes} for name, (base, changes) in VARIANTS.items()}


def named_rungs(text: str) -> list[str]:
    """The rungs of a list with commas, which names may contain as well; none if one of them is not a rung."""
    found, rest = [], text
    while rest:
        name = max((name for name in rungs() if f"{rest},".startswith(f"{name},")), key=len, default="")
        if not name:
            return []
        found.append(name)
        rest = rest[len(name) + 1 :]
    return found


def rung_scenario(changes: Changes, *, rounds: int, until: float, seed: int, task: Task = EMNIST) -> Scenario:
    """A rung as a run that stops when it has reached the highest target."""
    common: Changes = {
        "federation.rounds": rounds,
        "federation.seed": seed,
        "evaluation.samples": 4000,
        "evaluation.until_accuracy": until,
        "execution.workers": 1,
        "execution.checkpoint_every": 5,
    }
    return load_scenario(task.preset, {**task.federation, **changes, **common})


def task_scenario(task: Task) -> Scenario:
    """The devices, the model and the deadline that all rungs of a task share."""
    return rung_scenario(rungs()[FIRST], rounds=1, until=task.all_reach, seed=0, task=task)


Figures = dict[str, Any]
"""Of one run: rounds, seconds and energy to each target (None where it was not reached), and where the run stopped."""


def measures(run: Run, until: float, task: Task = EMNIST) -> Figures:
    targets = [target for target in task.targets if target <= until]
    return {
        "accuracy": run.final_accuracy(),
        "energy_j": float(run.energy_j[-1]),
        "rounds": run.num_rounds,
        "test_accuracy": run.summary.get("test_accuracy"),
        "computing_share": run.computing_share(),
        "bits": run.mean_upload_bits(),
        "until": until,
        "targets": targets_json(run, targets),
        "accuracies": [round(float(one), 4) for one in run.accuracy],
        "energies_mj": [round(1e3 * float(one), 4) for one in run.energy_j],
        "charges_mj": [round(1e3 * float(one), 4) for one in np.cumsum(charges_j(run))],
    }


def charges_j(run: Run) -> FloatArray:
    """What receiving whole models and resting would cost in each round, where the run itself does not charge it.

    As `accounts` charges them: every participant receives the model, and rests from the start of the round to the last
    upload.
    """
    if run.scenario.accounts.receive_power_w:
        return np.zeros(run.num_rounds)
    on = run.client_columns["participated"].reshape(run.num_rounds, -1)
    latencies_s = np.where(on, run.client_columns["latency_s"].reshape(run.num_rounds, -1), 0.0)
    return np.asarray((model_j(run.scenario) + IDLE_W * latencies_s.max(axis=1)) * on.sum(axis=1))


def model_j(scenario: Scenario) -> float:
    """What it takes to receive the whole model."""
    learning = scenario.learning
    return RECEIVE_W * raw_payload_bits(learning.num_parameters + learning.num_buffers) / RECEIVE_BPS


def participants(one: Figures, scenario: Scenario) -> list[int] | None:
    """How many clients took part in each round of a run, from what receiving and resting would have cost them.

    n participants cost n·(model + rest), and nobody rests for longer than the deadline. So n is the only whole number
    between cost/(model + the longest rest) and cost/model. None if the run charges for receiving itself.
    """
    costs_mj = np.diff([0.0, *one["charges_mj"]])
    if not costs_mj.any():
        return None
    least_mj = 1e3 * model_j(scenario)
    most_mj = least_mj + 1e3 * IDLE_W * scenario.device.deadline_s
    fewest, most = np.ceil((costs_mj - ROUNDED_MJ) / most_mj), np.floor((costs_mj + ROUNDED_MJ) / least_mj)
    if not np.array_equal(fewest, most):
        place = int(np.argmax(fewest != most))
        raise ValueError(
            f"round {place}: receiving and resting cost {costs_mj[place]:g} mJ, which is no number of clients at "
            f"{least_mj:g} to {most_mj:g} mJ each: compare RECEIVE_W, RECEIVE_BPS and IDLE_W with those of the record"
        )
    return [int(count) for count in fewest]


def codec_of(rung: str) -> str:
    """The codec of a rung's uploads."""
    return str(rungs()[rung]["codec.name"])


def coding_j(codec: str, scenario: Scenario) -> float:
    """What coding takes of one participant in one round, at the slowest frequency."""
    constants = scenario.constants()
    cycles = CODING_CYCLES[codec] * constants.num_parameters
    return float(compute_energy_j(cycles, constants.frequency_min_hz, constants))


def with_coding(results: "Results", task: Task = EMNIST) -> "Results":
    """The same figures, with what coding would have cost up to each round as `coding_mj`.

    Runs that charge for receiving themselves have as many participants as those of the rung that they vary, if these
    have the same number in every round; else `coding_mj` is left out.
    """
    scenario = task_scenario(task)
    found: dict[str, dict[int, Figures]] = {}
    for rung, mine in results.items():
        each_mj = 1e3 * coding_j(codec_of(rung), scenario)
        base = results.get(VARIANTS[rung][0], {}) if rung in VARIANTS else {}
        usual = {count for one in base.values() for count in participants(one, scenario) or []}
        found[rung] = {}
        for seed, one in mine.items():
            known = participants(one, scenario)
            if known is None and len(usual) == 1:
                known = list(usual) * len(one["charges_mj"])
            added = {} if known is None else {"coding_mj": list(each_mj * np.cumsum(known))}
            found[rung][seed] = {**one, **added}
    return found


def record_key(rung: str, changes: Changes, rounds: int, seed: int, task: Task = EMNIST) -> str:
    """What was run, in words that stay the same when settings are added."""
    said = ", ".join(f"{key}={value}" for key, value in {**task.federation, **changes}.items())
    return f"{rung}: {said}; {rounds} rounds, seed {seed}"


def read_record(file: Path | None) -> dict[str, Figures]:
    return json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}


RECEIVING, CODING = ("charges_mj",), ("coding_mj",)
ALL_THREE = (*RECEIVING, *CODING)
"""What is charged besides computing and uploading: receiving and resting, coding, or all of it."""


def energies(mine: Sequence[Figures], target: float, extras: Sequence[str] = ()) -> list[float | None]:
    """The energy that each seed took to a target, None where it was not reached; without runs that stopped below it.

    `extras` names what is added; runs without it are left out.
    """
    found: list[float | None] = []
    for one in mine:
        if f"{target:g}" in one["targets"] and all(extra in one for extra in extras):
            cost = one["targets"][f"{target:g}"]
            if cost is None:
                found.append(None)
            else:
                extra_mj = sum(one[extra][cost["rounds"] - 1] for extra in extras)
                found.append(cost["energy_j"] + extra_mj / 1e3)
    return found


def shown(values: Sequence[float | None], runs: int) -> str:
    """A cell of the table in millijoules: mean and 95 % interval, or how many seeds have reached the target.

    `runs` is the number of runs of the rung; some may have stopped at a lower target.
    """
    known = [value for value in values if value is not None]
    if not values:
        return "not run"
    some = "" if len(values) == runs else f" ({len(values)} of {runs} run)"
    if len(known) < len(values):
        return (f"reached by {len(known)} of {len(values)}" if known else "not reached") + some
    found = estimate(known)
    return found.shown(".3g" if found.mean < 1.0 else ".0f", scale=1e3) + some


def ratio(
    mine: Mapping[int, Figures], first: Mapping[int, Figures], target: float, extras: Sequence[str] = ()
) -> Estimate:
    """Energy as a share of the paper's to the same target, paired by seed. Empty where a seed did not reach it."""
    both = [seed for seed in mine if seed in first]
    pairs = [[energies([one[seed]], target, extras) for one in (mine, first)] for seed in both]
    tried = [(a[0], b[0]) for a, b in pairs if a and b]
    known = [(a, b) for a, b in tried if a is not None and b is not None]
    return estimate(a / b for a, b in known) if len(known) == len(tried) else estimate([])


Results = Mapping[str, Mapping[int, Figures]]
"""Rung, seed."""


def table(results: Results, task: Task = EMNIST) -> list[str]:
    """The ladder as lines of Markdown, with computing and uploading charged."""
    heads = [f"mJ to {100 * target:g} %" for target in task.targets]
    lines = [
        f"| rung | seeds | {' | '.join(heads)} | of the paper's energy | computing |",
        "|---" * (len(heads) + 4) + "|",
    ]
    first = results.get(FIRST, {})
    for rung, mine in results.items():
        cells = [shown(energies(list(mine.values()), target), len(mine)) for target in task.targets]
        cells += [share_shown(mine, first, task) if not charges(mine) else "–"]
        cells += [estimate(one["computing_share"] for one in mine.values()).shown(".0f", scale=100.0, unit=" %")]
        lines.append(f"| {rung} | {len(mine)} | " + " | ".join(cells) + " |")
    return lines


def charges_table(results: Results, task: Task = EMNIST) -> list[str]:
    """The rungs that stop where all do, with more charged: coding, receiving and resting, and all three."""
    kinds = {"coding": CODING, "receiving and resting": RECEIVING, "all three": ALL_THREE}
    heads = [f"mJ to {100 * task.all_reach:g} % with {kind} | of the paper's" for kind in kinds]
    lines = [f"| rung | seeds | {' | '.join(heads)} |", "|---" * (2 * len(heads) + 2) + "|"]
    whole = with_coding(results, task)
    first = whole.get(FIRST, {})
    for rung, mine in whole.items():
        if not energies(list(mine.values()), task.all_reach):
            continue
        cells = []
        for extras in kinds.values():
            known = energies(list(mine.values()), task.all_reach, extras)
            if known and (extras != CODING or not charges(mine)):  # receiving cannot be taken out of what runs charge
                cells += [shown(known, len(mine)), share_shown(mine, first, task, extras)]
            else:
                cells += ["–", "–"]
        lines.append(f"| {rung} | {len(mine)} | " + " | ".join(cells) + " |")
    return lines


def coding_line(task: Task = EMNIST) -> str:
    """What coding costs, how long it takes, that the deadline does not contain it, and what nothing charges for."""
    scenario = task_scenario(task)
    constants = scenario.constants()
    low_hz, high_hz = float(constants.frequency_min_hz), float(constants.frequency_max_hz)
    found = []
    for codec, per_parameter in CODING_CYCLES.items():
        cycles = per_parameter * constants.num_parameters
        found.append(
            f"{1e3 * coding_j(codec, scenario):.2f} mJ with {codec} ({cycles / 1e6:.1f} million cycles: "
            f"{1e3 * cycles / low_hz:.0f} ms at {low_hz / 1e6:g} MHz, {1e3 * cycles / high_hz:.1f} ms at "
            f"{high_hz / 1e6:g} MHz)"
        )
    return (
        f"Coding, per participant and round: {'; '.join(found)}. It is priced at {low_hz / 1e6:g} MHz, after training "
        f"and outside the deadline of {1e3 * constants.deadline_s:g} ms. Receiving the whole model: "
        f"{1e3 * model_j(scenario):.2f} mJ; receiving it for the probe before the first round, "
        f"{1e3 * model_j(scenario) * scenario.federation.num_clients:.0f} mJ for all clients, is charged nowhere."
    )


def ends_lines(results: Results, rung: str = ACCURATE) -> list[str]:
    """What all test samples say of the last models of a rung, where runs stop by a part of them."""
    mine = [one for one in results.get(rung, {}).values() if one.get("test_accuracy")]
    if not mine:
        return []
    accuracies, rounds, energies_j = ([one[key] for one in mine] for key in ("test_accuracy", "rounds", "energy_j"))
    ends = f"{min(accuracies):.2%} to {max(accuracies):.2%}"
    targets = {target: [one["targets"][target] for one in mine] for target in mine[0]["targets"]}
    reached = [
        f"{float(target):.0%} after {span([cost['rounds'] for cost in costs])}"
        for target, costs in targets.items()
        if None not in costs
    ]
    return [
        f"{rung}, at the end of {counted(len(mine), 'run')}: {estimate(accuracies).shown('.2f', 100.0, ' %')} of all "
        f"test samples ({ends}), after {span(rounds)} and {estimate(energies_j).shown('.3g', 1e3, ' mJ')}.",
        f"{rung}: {', '.join(reached)}.",
    ]


def span(rounds: Sequence[int]) -> str:
    """The least and the greatest number of rounds."""
    least, most = min(rounds), max(rounds)
    return counted(most, "round") if least == most else f"{least} to {counted(most, 'round')}"


def other_lines(figures: Mapping[str, Figures], keys: Collection[str]) -> list[str]:
    """Recorded runs that belong to no rung: forms of one that came before it."""
    return [
        f"no rung: {key}: {one['accuracy']:.1%} in the last tenth of {counted(one['rounds'], 'round')}, "
        f"{1e3 * one['energy_j']:.3g} mJ"
        for key, one in figures.items()
        if key not in keys
    ]


def charges(mine: Mapping[int, Figures]) -> bool:
    """Whether the runs of a rung charge for receiving themselves."""
    return any("charges_mj" in one and not one["charges_mj"][-1] for one in mine.values())


def share_shown(
    mine: Mapping[int, Figures], first: Mapping[int, Figures], task: Task, extras: Sequence[str] = ()
) -> str:
    """The share of the paper's energy to where all rungs stop, or to where a change alone stops."""
    for target in (task.all_reach, task.alone):
        found = ratio(mine, first, target, extras) if target is not None else estimate([])
        if found.count:
            of_all = found.shown(".3g", scale=100.0, unit=" %")
            said = [f"{found.count} pairs"] if 1 < found.count < len(mine) else []
            said += [f"to {target:.0%}"] if target != task.all_reach else []
            return f"{of_all} ({', '.join(said)})" if said else of_all
    return "–"


def figure(results: Results, task: Task = EMNIST) -> Chart:
    """Energy to each target by rung, without those that charge for more than computing and uploading."""
    names = [name for name, mine in results.items() if not charges(mine)]
    reached: dict[float, list[tuple[int, Estimate]]] = {}
    for target in task.targets:
        found = [energies(list(results[name].values()), target) for name in names]
        reached[target] = [
            (k, estimate(1e3 * value for value in values if value is not None))
            for k, values in enumerate(found)
            if values and None not in values
        ]
    least = min((one.mean for whole in reached.values() for _, one in whole), default=1.0)
    series = []
    for place, (target, whole) in enumerate(reached.items()):
        if whole:
            style = Style(PALETTE[place], MARKERS[place])
            points = [k for k, _ in whole], [one for _, one in whole]
            limits = (least / 3.0, float("inf"))  # an interval of few seeds may reach below 0
            series.append(estimated(f"{100 * target:g} %", *points, style, "points", limits=limits))
    panel = Panel("", "", "energy to this accuracy (mJ)", tuple(series), y_log=True, categories=tuple(names))
    missing = "a missing point: not run, or not reached with every seed"
    caption = f"{task.name}, β = 300, the paper's cost model. {INTERVALS}; {missing}."
    return Chart("ladder", "Joules to an accuracy, one change at a time", caption, (panel,), 1, (8.0, 4.0))


def finished(
    jobs: Mapping[str, tuple[TrainingJob, float]], known: dict[str, Figures], file: Path | None, task: Task = EMNIST
) -> dict[str, Figures]:
    """The figures of the runs that are recorded or finished; those of finished runs are recorded.

    Other processes may record theirs at the same time.
    """
    found = {
        key: measures(read_run(job.folder), until, task) for key, (job, until) in jobs.items() if job.is_finished()
    }
    if file is None:
        return {**known, **found}
    with one_at_a_time(file.parent):
        figures = {**known, **read_record(file), **found}
        write_text_whole(file, json.dumps(figures, indent=1, sort_keys=True) + "\n")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=tuple(TASKS), default="emnist")
    parser.add_argument("--rungs", metavar="A,B,…", help=f"default all: {', '.join(rungs())}")
    parser.add_argument("--seeds", default="0,1,2,3,4", metavar="0,1,…")
    parser.add_argument("--rounds", type=int, help=f"the most rounds of a run; default as planned, {MOST_ROUNDS}")
    parser.add_argument("--until", type=float, help="accuracy at which runs stop; default as planned")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--out", type=Path, default=Path("runs/ladder"))
    parser.add_argument("--record", type=Path, metavar="FILE", help="figures of finished runs, read and written")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write the figure here")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--show", action="store_true", help="print the table of what is finished and stop")
    options = parser.parse_args()
    task = TASKS[options.task]
    chosen = named_rungs(options.rungs) if options.rungs else list(rungs())
    if not chosen:
        parser.error(f"--rungs {options.rungs} names others than {'; '.join(rungs())}")
    data_dir, known = data_folder(options.data_dir), read_record(options.record)
    keys: dict[tuple[str, int], str] = {}
    jobs: dict[str, tuple[TrainingJob, float]] = {}
    for name, seed in planned(chosen, [int(seed) for seed in options.seeds.split(",")], task):
        changes, until = rungs()[name], options.until or stops_at(name, task)
        rounds = options.rounds or MORE_ROUNDS.get(name, MOST_ROUNDS)
        key = keys[name, seed] = record_key(name, changes, rounds, seed, task)
        if known.get(key, {"until": 0.0})["until"] < until:
            scenario = rung_scenario(changes, rounds=rounds, until=until, seed=seed, task=task)
            jobs[key] = training_job(scenario, options.out, data_dir, note=name), until
    code = 0
    if not options.show:
        console = Console()

        def record(progress: QueueProgress, index: int) -> None:
            if progress.states[index] == "done":
                finished(jobs, known, options.record, task)

        progress = run_with_view(console, [job for job, _ in jobs.values()], LocalEngine(options.jobs), record)
        code = print_outcome(console, progress)
    figures = finished(jobs, known, None if options.show else options.record, task)
    results: dict[str, dict[int, Figures]] = {}
    for (name, seed), key in keys.items():
        if key in figures:
            results.setdefault(name, {})[seed] = figures[key]
    results = {name: results[name] for name in rungs() if name in results}
    lines = [*table(results, task), "", *charges_table(results, task), "", coding_line(task), *ends_lines(results)]
    others = other_lines(figures, set(keys.values())) if len(chosen) == len(rungs()) else []
    print("\n".join([*lines, *others]))
    if options.figure is not None and results:
        save_chart(figure(results, task), options.figure)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
