"""Batteries: what is left in them, and what happens to a client whose battery empties."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray, Outcome

ROUNDING = 1e-9
"""Energy above what is left by at most this share is a rounding error."""

KINDS = ("compute_energy_j", "upload_energy_j", "coding_energy_j", "receive_energy_j", "idle_energy_j")
MOST_FACTOR = 1e6
"""An almost empty battery makes energy at most this many times as dear."""


def settled_within(
    batteries_j: FloatArray | None, failed: BoolArray, settle: Callable[[BoolArray], Outcome]
) -> Outcome:
    """The outcome of a round in which nobody spends more than its battery holds.

    A client that would is lost: its battery empties on the way, so its upload fails and all that was left is charged,
    also where it empties after the deadline because the decision is exempt from that. `settle` gives the outcome if
    these clients fail. A lost upload can make the round longer, and so empty another battery.
    """
    outcome = settle(failed)
    if batteries_j is None:
        return outcome
    emptied = np.zeros(len(batteries_j), dtype=bool)
    while True:
        short = ~emptied & (outcome.energy_j > batteries_j * (1.0 + ROUNDING))
        if not short.any():
            break
        emptied |= short
        outcome = settle(failed | emptied)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(emptied, batteries_j / outcome.energy_j, 1.0)
    parts: dict[str, Any] = {name: getattr(outcome, name) * shares for name in KINDS}
    return replace(outcome, **parts) if emptied.any() else outcome


def left_j(batteries_j: FloatArray, outcome: Outcome) -> FloatArray:
    """What is left after a round; what remains by rounding counts as nothing."""
    left = batteries_j - outcome.energy_j
    with np.errstate(invalid="ignore"):
        return np.where(left > ROUNDING * batteries_j, left, np.where(np.isinf(batteries_j), np.inf, 0.0))


def charges(batteries_j: FloatArray, full_j: FloatArray) -> FloatArray:
    """The share of its first charge that each battery still holds; 1 on mains."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(full_j), 1.0, batteries_j / full_j)


def energy_factors(shares: FloatArray | None, weight: float) -> FloatArray | None:
    """How much more a client's energy counts because little is left: the share that is left to the power -weight."""
    if shares is None or weight == 0.0:
        return None
    return np.asarray(np.minimum(np.maximum(shares, 1e-12) ** -weight, MOST_FACTOR))
