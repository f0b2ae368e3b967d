"""What claims measure on a run, or on a pair of runs of the same seed."""

import numpy as np
import pandas as pd

from qccf.core.contracts import FloatArray
from qccf.core.correlation import relation, relation_within_rounds
from qccf.paper.families import Family, Setting, setting_of
from qccf.rounds.run import Run
from qccf.rounds.targets import reached_round, smoothed

AVERAGED = 3
"""Evaluations whose mean counts, because one is noisy."""

TARGET = 0.95
"""The target accuracy of a seed, as a share of the best final accuracy that a policy reaches on this seed."""


def rounds_to(run: Run, target: float) -> int | None:
    """The first round at which the mean of the last three evaluations reaches the target; None if there is none."""
    return reached_round(run.accuracy, target, AVERAGED)


def target_accuracies(family: Family, setting: Setting) -> dict[int, float]:
    """The target accuracy of each seed, the same for every policy."""
    best: dict[int, float] = {}
    for run in family.records:
        if setting_of(run) == setting:
            best[run.seed] = float(np.fmax(best.get(run.seed, np.nan), run.final_accuracy()))
    return {seed: TARGET * accuracy for seed, accuracy in best.items()}


def rounds_ahead(theirs: Run, ours: Run, target: float) -> float:
    """How many rounds earlier QCCF reaches the target. Never reached counts as one round after the last."""
    a, b = rounds_to(theirs, target), rounds_to(ours, target)
    if a is None and b is None:
        return np.nan
    return float((a or len(theirs.rounds) + 1) - (b or len(ours.rounds) + 1))


def energy_saved_to_target(theirs: Run, ours: Run, target: float) -> float:
    """The share of the baseline's energy that QCCF saves until it reaches the target.

    A baseline that never reaches the target counts with all the energy that it spent. If QCCF never reaches it, QCCF
    saves nothing, however little it spent.
    """
    a, b = rounds_to(theirs, target), rounds_to(ours, target)
    if a is None and b is None:
        return np.nan
    saved = float(1.0 - ours.energy_j[(b or 0) - 1] / theirs.energy_j[(a or 0) - 1])
    return min(0.0, saved) if b is None else saved


def energy_saved(theirs: Run, ours: Run) -> float:
    """The share of the baseline's energy that QCCF saves over all rounds."""
    return float(1.0 - ours.energy_j[-1] / theirs.energy_j[-1])


def last_third_gain(run: Run) -> float:
    """How much the smoothed accuracy rises over the last third of the evaluations."""
    smooth = smoothed(run.accuracy, AVERAGED)
    known = smooth[np.isfinite(smooth)]
    return float(known[-1] - known[-max(1, len(known) // 3) - 1]) if len(known) > 1 else np.nan


def relation_to_sizes(run: Run, name: str, *, varying_only: bool = False) -> float:
    rounds, sizes, values = (column(run.uploads, one) for one in ("round", "dataset_size", name))
    return relation_within_rounds(rounds.astype(int), sizes, values, varying_only=varying_only)


def column(frame: pd.DataFrame, name: str) -> FloatArray:
    return frame[name].to_numpy(dtype=float)


def bits_over_rounds(run: Run) -> float:
    """Rank correlation of a round's mean bits with its number."""
    return relation(column(run.rounds, "round"), run.mean_bits)


def bits_over_sizes(run: Run) -> float:
    """Rank correlation of bits with dataset sizes among the uploads of a round, averaged over rounds."""
    return relation_to_sizes(run, "num_bits")


def missed_over_rounds(run: Run) -> float:
    """Rank correlation of a round's number of late uploads with its number."""
    return relation(column(run.rounds, "round"), column(run.rounds, "missed"))


def missed_over_sizes(run: Run) -> float:
    """Rank correlation of late uploads with dataset sizes within a round, over the rounds with late uploads."""
    return relation_to_sizes(run, "missed", varying_only=True)
