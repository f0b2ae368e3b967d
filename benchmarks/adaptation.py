"""Does adaptation still pay with each codec? Every policy with every codec, and fixed bits as the yardstick.

Run: python -m benchmarks.adaptation [--preset femnist] [--rounds 40] [--seeds 10] [--train [--targets 0.2,…]]

By default nothing is trained: decisions follow recorded statistics. A run has two figures that count: its energy, and
the expected squared error of its aggregates in squared update norms, mean over rounds. A policy is compared with fixed
bits at the same error (energy saved) and at the same energy (how much more fixed bits err), interpolated between whole
numbers of bits. Where no fixed bits reach that error or energy, the nearest are taken. With --train the preset's
federation trains with each policy and with fixed bits, and accuracy and joules to an accuracy stand beside energy, with
95 % intervals over seeds.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qccf.core.intervals import Estimate, estimate
from qccf.core.steps import usual_steps
from qccf.rounds.run import Run
from qccf.rounds.targets import cost_to, default_targets
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan_run
from qccf.settings.loading import load_scenario
from qccf.settings.schema import Scenario

CODECS = ("model", "update", "update+entropy", "sparse")
FIXED_BITS = tuple(range(1, 9))
NOTABLE = 0.02
"""A saving of less than this share of the energy is called none."""
NOTABLE_ERROR = 1.1
"""Fixed bits that err less than this many times as much as a policy are called equal to it."""


@dataclass(frozen=True)
class Kind:
    """A policy as the table names it: the registered name and settings that go with it."""

    label: str
    policy: str
    settings: tuple[str, ...] = ()


ADAPTIVE = (
    Kind("qccf, scale-free", "qccf"),
    Kind("qccf, paper's form", "qccf", ("control.form=paper",)),
    Kind("same-size", "same-size"),
    Kind("channel-allocate", "channel-allocate"),
    Kind("principle", "principle"),
    Kind("no-quantization", "no-quantization"),
)


@dataclass(frozen=True)
class Point:
    """Energy of a run, its mean error in squared update norms, the share of uploads that arrived, and mean bits."""

    energy_j: float
    error: float
    arrived: float
    bits: float


def fixed(bits: int) -> Kind:
    return Kind(f"fixed-bits {bits}", "fixed-bits", (f"fixed_bits.bits={bits}",))


def scenario_of(preset: str, rounds: int, codec: str, kind: Kind) -> Scenario:
    return load_scenario(preset, [f"federation.rounds={rounds}", f"codec.name={codec}", *kind.settings])


def point(run: Run) -> Point:
    """What counts of a run."""
    learning = run.scenario.learning
    norms_sq = run.statistics_columns["gradient_norm_sq"].reshape(run.num_rounds, -1)
    steps = usual_steps(run.client_columns["dataset_size"].reshape(run.num_rounds, -1)[0], run.scenario.constants())
    updates_sq = (learning.learning_rate * steps) ** 2 * np.median(norms_sq, axis=1)
    error = np.asarray(run.round_columns["aggregate_error"]) / updates_sq
    on = run.client_columns["participated"]
    return Point(
        float(run.energy_j[-1]),
        float(np.nanmean(error)) if np.isfinite(error).any() else float("nan"),
        float(run.client_columns["arrived"].mean()),
        float(run.client_columns["num_bits"][on].mean()) if on.any() else float("nan"),
    )


def energy_at_error(points: Sequence[Point], error: float) -> float:
    """The energy of fixed bits with this error, interpolated in its logarithm; at the ends the nearest energy."""
    best = front(points)
    logs = np.log([one.error for one in best])
    return float(np.interp(np.log(error) if error > 0.0 else -np.inf, logs, [one.energy_j for one in best]))


def error_at_energy(points: Sequence[Point], energy_j: float) -> float:
    """The error of fixed bits with this energy, interpolated in its logarithm; at the ends the nearest error."""
    best = front(points)[::-1]
    logs = np.log([one.error for one in best])
    return float(np.exp(np.interp(energy_j, [one.energy_j for one in best], logs)))


def front(points: Sequence[Point]) -> list[Point]:
    """Points by error, without those that cost more than one that errs less: bits that the links do not carry."""
    found: list[Point] = []
    for one in sorted((one for one in points if one.error > 0.0), key=lambda one: (one.error, one.energy_j)):
        if not found or one.energy_j < found[-1].energy_j:
            found.append(one)
    return found


def saving(own: Sequence[Point], yardsticks: Sequence[Sequence[Point]]) -> Estimate:
    """Share of the energy of fixed bits, at the same error and in the same cell, that a policy saves."""
    return estimate(
        1.0 - one.energy_j / energy_at_error(fixed_points, one.error)
        for one, fixed_points in zip(own, yardsticks, strict=True)
    )


def excess(own: Sequence[Point], yardsticks: Sequence[Sequence[Point]]) -> float:
    """How many times as much fixed bits err with the same energy: the geometric mean over cells; NaN without error."""
    logs = [
        np.log(error_at_energy(fixed_points, one.energy_j) / one.error) if one.error > 0.0 else np.nan
        for one, fixed_points in zip(own, yardsticks, strict=True)
    ]
    return float(np.exp(np.mean(logs)))


def verdict(codec: str, saved: Estimate, times: float) -> str:
    """One sentence: whether QCCF's adaptation pays with a codec. A difference inside its interval is none."""
    figures = (
        f"{saved.shown('+.1f', 100.0, ' %')} energy saved at the same error, fixed bits err {times:.2f} times as much"
    )
    low, high = (saved.low, saved.high) if saved.known else (saved.mean, saved.mean)
    if low > NOTABLE or (low > -NOTABLE and times > NOTABLE_ERROR):
        found = "adaptation pays"
    elif high < -NOTABLE:
        found = "adaptation costs more than it brings"
    else:
        found = "no difference" if low > -NOTABLE and high < NOTABLE else "no clear difference"
    return f"- `{codec}`: {found} ({figures} with the same energy)."


def planned_points(preset: str, rounds: int, codec: str, kind: Kind, seeds: Iterable[int]) -> list[Point]:
    scenario = scenario_of(preset, rounds, codec, kind)
    return [point(plan_run(build_world(scenario, seed), kind.policy)) for seed in seeds]


def cell(own: Sequence[Point], saved: Estimate | None) -> str:
    """A policy with a codec, as a cell of the table."""
    energy_j, error, arrived = (
        float(np.mean([getattr(one, name) for one in own])) for name in ("energy_j", "error", "arrived")
    )
    words = [f"{energy_j:.3g} J", f"error {error:.2g}"]
    words += [] if saved is None else [saved.shown("+.0f", 100.0, " %")]
    return ", ".join(words) + (f" ({arrived:.0%} arrive)" if arrived < 0.995 else "")


def planned(preset: str, rounds: int, seeds: int) -> None:
    print(f"{preset}, {rounds} rounds, {seeds} cells, no training\n")
    kinds = (*ADAPTIVE, *map(fixed, FIXED_BITS[:4]))
    cells: dict[str, list[str]] = {kind.label: [] for kind in kinds}
    verdicts = []
    for codec in CODECS:
        by_bits = [planned_points(preset, rounds, codec, fixed(bits), range(seeds)) for bits in FIXED_BITS]
        yardsticks = list(zip(*by_bits, strict=True))
        for kind in ADAPTIVE:
            own = planned_points(preset, rounds, codec, kind, range(seeds))
            saved = saving(own, yardsticks)
            cells[kind.label].append(cell(own, saved))
            if kind is ADAPTIVE[0]:
                verdicts.append(verdict(codec, saved, excess(own, yardsticks)))
        for bits in FIXED_BITS[:4]:
            cells[fixed(bits).label].append(cell(by_bits[bits - 1], None))
    print(f"| policy | {' | '.join(f'`{codec}`' for codec in CODECS)} |")
    print("|---" * (len(CODECS) + 1) + "|")
    for label, found in cells.items():
        print(f"| {label} | {' | '.join(found)} |")
    print("\n" + "\n".join(verdicts))


TRAINED = (*ADAPTIVE, fixed(1), fixed(4))


def trainings() -> list[tuple[str, Kind]]:
    """Codecs and policies. Without quantization floats are sent, whatever the codec, so that policy trains once."""
    whole = [(codec, kind) for codec in CODECS for kind in TRAINED]
    return [(codec, kind) for codec, kind in whole if kind.policy != "no-quantization" or codec == CODECS[0]]


def joules_to(runs: Sequence[Run], target: float) -> str:
    """The energy to a target, with its interval, or how many seeds have reached it."""
    known = [cost.energy_j for cost in (cost_to(run, target) for run in runs) if cost is not None]
    if len(known) < len(runs):
        return f"reached by {len(known)} of {len(runs)}" if known else "not reached"
    return estimate(known).shown(".3g")


def trained_table(found: Mapping[tuple[str, str], Sequence[Run]], targets: Sequence[float]) -> list[str]:
    """Codec and policy with its runs, one for each seed."""
    heads = ["codec", "policy", "bits", "accuracy (%)", "energy (J)", *(f"J to {100 * one:g} %" for one in targets)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (codec, label), runs in found.items():
        cells = [
            estimate(run.mean_upload_bits() for run in runs).shown(".2f"),
            estimate(run.final_accuracy() for run in runs).shown(".1f", scale=100.0),
            estimate(float(run.energy_j[-1]) for run in runs).shown(".3g"),
            *(joules_to(runs, target) for target in targets),
        ]
        lines.append(f"| {codec} | {label} | {' | '.join(cells)} |")
    return lines


def trained(preset: str, rounds: int, seeds: int, targets: Sequence[float]) -> None:
    """Without targets the highest multiples of 5 % that a run has reached are taken."""
    from qccf import simulate

    found = {}
    for codec, kind in trainings():
        scenario = scenario_of(preset, rounds, codec, kind)
        found[codec, kind.label] = [
            simulate(scenario.replaced(federation={"seed": seed}), policy=kind.policy) for seed in range(seeds)
        ]
        print(f"{codec}, {kind.label}: trained", file=sys.stderr, flush=True)
    print(f"{preset}, {rounds} rounds, {seeds} cells, trained\n")
    chosen = targets or default_targets([run for runs in found.values() for run in runs])
    print("\n".join(trained_table(found, chosen)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="femnist")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--train", action="store_true", help="train instead of using recorded statistics")
    parser.add_argument("--targets", metavar="0.2,…", help="accuracies; default the highest multiples of 5 %% reached")
    options = parser.parse_args()
    if options.train:
        targets = [float(target) for target in options.targets.split(",")] if options.targets else []
        trained(options.preset, options.rounds, options.seeds, targets)
    else:
        planned(options.preset, options.rounds, options.seeds)


if __name__ == "__main__":
    main()
