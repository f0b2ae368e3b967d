"""When a run has reached an accuracy, and what that took.

One evaluation is noisy, so the mean of the last few counts: a run has reached a target after the first round at which
the mean of its last `evaluation.averaged` evaluations is at least the target.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.intervals import estimate
from qccf.core.numbers import NOTHING, Spread, quantity, with_spread
from qccf.core.words import counted
from qccf.rounds.run import Run, run_labels
from qccf.settings.schema import EvaluationSection

STEP = 0.05
MOST_DEFAULTS = 3


class Reached(NamedTuple):
    """What it took to reach a target: rounds, simulated seconds, and energy."""

    rounds: int
    seconds: float
    energy_j: float


def smoothed(accuracies: Sequence[float] | FloatArray, averaged: int) -> FloatArray:
    """The mean of the last `averaged` evaluations at each round; NaN where there are fewer or none took place."""
    values = np.asarray(accuracies, dtype=float)
    result = np.full(len(values), np.nan)
    tested = np.flatnonzero(np.isfinite(values))
    if len(tested) >= averaged:
        sums = np.convolve(values[tested], np.ones(averaged), mode="valid")
        result[tested[averaged - 1 :]] = sums / averaged
    return result


def reached_round(accuracies: Sequence[float] | FloatArray, target: float, averaged: int) -> int | None:
    """The number of rounds after which the target is reached; None if it is not."""
    found = np.flatnonzero(smoothed(accuracies, averaged) >= target)
    return int(found[0]) + 1 if len(found) else None


def may_stop(accuracies: Sequence[float], evaluation: EvaluationSection) -> bool:
    """Whether a run that stops at an accuracy has reached it."""
    target = evaluation.until_accuracy
    return target > 0.0 and reached_round(accuracies, target, evaluation.averaged) is not None


def cost_to(run: Run, target: float) -> Reached | None:
    """What a run took to reach a target; None if it did not reach it."""
    rounds = reached_round(run.accuracy, target, run.scenario.evaluation.averaged)
    if rounds is None:
        return None
    seconds = float(np.sum(run.round_columns["latency_s"][:rounds]))
    return Reached(rounds, seconds, float(run.energy_j[rounds - 1]))


def default_targets(runs: Sequence[Run]) -> list[float]:
    """The highest multiples of 5 % that one of the runs has reached, at most three, in ascending order."""
    best = max((_best(run) for run in runs), default=0.0)
    top = math.floor(best / STEP + 1e-9)
    return [round(STEP * step, 4) for step in range(max(1, top - MOST_DEFAULTS + 1), top + 1)]


def _best(run: Run) -> float:
    values = smoothed(run.accuracy, run.scenario.evaluation.averaged)
    return float(np.nanmax(values)) if np.isfinite(values).any() else 0.0


def target_cells(runs: Sequence[Run], target: float) -> list[str]:
    """Rounds, seconds and joules to a target as texts: means over seeds with 95 % intervals.

    Where not every seed has reached it, a mean would count only the lucky ones, so the cells say how many have.
    """
    costs = [cost_to(run, target) for run in runs]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        some = f"reached by {len(known)} of {len(costs)} seeds" if known else "not reached"
        return [some, NOTHING, NOTHING]
    rounds, seconds, energy_j = (estimate(values) for values in zip(*known, strict=True))
    halves = [one.half if one.known else 0.0 for one in (rounds, seconds, energy_j)]
    return [
        with_spread(Spread(rounds.mean, halves[0]), 0),
        quantity(seconds.mean, "s", halves[1]),
        quantity(energy_j.mean, "J", halves[2]),
    ]


def targets_json(run: Run, targets: Sequence[float]) -> dict[str, dict[str, float] | None]:
    """What a run took to reach each target, as JSON values; null where it was not reached."""
    costs = {f"{target:g}": cost_to(run, target) for target in targets}
    return {target: None if cost is None else cost._asdict() for target, cost in costs.items()}


def until_sentence(run: Run) -> str:
    """Whether a run that stops at an accuracy has reached it, and what that took; empty for other runs."""
    evaluation = run.scenario.evaluation
    target = evaluation.until_accuracy
    if not target:
        return ""
    counted_on = f"mean of {counted(evaluation.averaged, 'evaluation')} on {counted(evaluation.samples, 'test sample')}"
    if (cost := cost_to(run, target)) is not None:
        took = f"{quantity(cost.seconds, 's')} simulated and {quantity(cost.energy_j, 'J')}"
        return f"{100 * target:g} % was reached after {counted(cost.rounds, 'round')}, {took} ({counted_on})."
    best = f"the best {counted_on} was {_best(run):.1%}" if _best(run) else f"there was no {counted_on}"
    return f"{100 * target:g} % was not reached in {counted(run.num_rounds, 'round')}: {best}."


def evaluation_shown(evaluation: EvaluationSection) -> str:
    """On what a target is judged, as a caption says it."""
    return (
        f"An accuracy is reached when the mean of {counted(evaluation.averaged, 'evaluation')} on "
        f"{counted(evaluation.samples, 'test sample')} is at least that high"
    )


MOST_SHARE = 95.0
"""The most that the best may take, in per cent of the other's energy, to be worth a sentence."""


def least_energy_sentence(runs: Sequence[Run], targets: Sequence[float]) -> str:
    """What reached a target with the least energy, beside the first of the runs; empty without such a pair.

    It is the highest of the targets that most kinds of runs have reached, with all their seeds, so that a kind that
    takes little energy per round is not left out for being slow. The first must be among them. A difference of a few
    per cent is not worth remembering.
    """
    labels = run_labels(runs)
    kinds = {label: [run for own, run in zip(labels, runs, strict=True) if own == label] for label in labels}
    first = labels[0]
    found = [(target, _energies_j(kinds, target)) for target in targets]
    common = [(target, known) for target, known in found if first in known and len(known) > 1]
    if not common:
        return ""
    target, known = max(common, key=lambda one: (len(one[1]), one[0]))
    best = min(known, key=lambda label: known[label])
    other = first if best != first else max(known, key=lambda label: known[label])
    share = 100.0 * known[best] / known[other]
    if share > MOST_SHARE:
        return ""
    return (
        f"Remember: to {100 * target:g} % accuracy, {best} took {quantity(known[best], 'J')}, {share:.2g} % of the "
        f"{quantity(known[other], 'J')} that {other} took."
    )


def _energies_j(kinds: Mapping[str, Sequence[Run]], target: float) -> dict[str, float]:
    """The mean energy to a target of each kind of runs whose seeds have all reached it."""
    costs = {label: [cost_to(run, target) for run in mine] for label, mine in kinds.items()}
    return {
        label: estimate(cost.energy_j for cost in mine if cost is not None).mean
        for label, mine in costs.items()
        if all(mine)
    }
