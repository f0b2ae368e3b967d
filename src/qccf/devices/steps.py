"""Devices that offer some frequencies only, each with its own power, as a governor does.

The best step for a deadline is the one with the least energy per cycle among those that are fast enough. A step that a
faster one beats is never the best, so `useful_steps` leaves it out. Of the others the energy per cycle rises with the
frequency, and the best is the slowest that is fast enough: the rule that also holds for a continuous frequency.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from qccf.core.contracts import Constants, FloatArray

SAME = 1e-12
"""A frequency above a step by at most this share is a rounding error and counts as that step."""


def useful_steps(table: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Frequency and energy per cycle of the steps that are the best for some deadline, in rising order.

    `table` has pairs of frequency and power.
    """
    kept: list[tuple[float, float]] = []
    for frequency_hz, power_w in sorted(table, reverse=True):
        energy_j = power_w / frequency_hz
        if not kept or energy_j < kept[-1][1]:
            kept.append((frequency_hz, energy_j))
    return kept[::-1]


def step_arrays(tables: Sequence[Sequence[tuple[float, float]]]) -> tuple[FloatArray, FloatArray]:
    """Frequencies and energies per cycle [client, step] of the useful steps; infinite where a client has fewer."""
    useful = [useful_steps(table) for table in tables]
    shape = (len(useful), max(len(one) for one in useful))
    frequencies_hz, energies_j = np.full(shape, np.inf), np.full(shape, np.inf)
    for client, one in enumerate(useful):
        for step, (frequency_hz, energy_j) in enumerate(one):
            frequencies_hz[client, step], energies_j[client, step] = frequency_hz, energy_j
    return frequencies_hz, energies_j


def offered_frequency_hz(frequency_hz: Any, constants: Constants) -> Any:
    """The slowest step that is at least this fast, infinite if none is; the frequency itself without steps."""
    steps_hz = constants.step_frequencies_hz
    assert steps_hz is not None
    found: Any = np.inf
    for step in reversed(range(steps_hz.shape[-1])):
        step_hz = steps_hz[..., step]
        found = np.where(step_hz * (1.0 + SAME) >= frequency_hz, step_hz, found)
    return np.where(np.isfinite(steps_hz[..., 0]), found, frequency_hz)


def energy_per_cycle_j(frequency_hz: Any, without_steps_j: Any, constants: Constants) -> Any:
    """Energy of a cycle at the step that serves this frequency, infinite if none does.

    `without_steps_j` is what a device without steps takes.
    """
    steps_hz, steps_j = constants.step_frequencies_hz, constants.step_energies_j
    assert steps_hz is not None
    assert steps_j is not None
    found: Any = np.inf
    for step in reversed(range(steps_hz.shape[-1])):
        found = np.where(steps_hz[..., step] * (1.0 + SAME) >= frequency_hz, steps_j[..., step], found)
    return np.where(np.isfinite(steps_hz[..., 0]), found, without_steps_j)
