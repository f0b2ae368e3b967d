"""Constants of a round's problem that are a list with one number for each client, because their devices differ."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from qccf.core.contracts import Constants, PerClient
from qccf.core.errors import ProblemError

DEVICE_CONSTANTS = (
    "cycles_per_sample", "energy_coefficient", "transmit_power_w", "frequency_min_hz", "frequency_max_hz",
    "circuit_power_w", "transmit_power_min_w",
)  # fmt: skip
"""Constants that may be a list."""


def without_lists(tree: Any) -> tuple[Any, dict[str, Any]]:
    """The problem with the first number of each list of constants, and the lists."""
    constants = tree.get("constants") if isinstance(tree, dict) else None
    if not isinstance(constants, dict):
        return tree, {}
    lists = {name: constants[name] for name in DEVICE_CONSTANTS if isinstance(constants.get(name), list)}
    firsts = {name: values[0] for name, values in lists.items() if values}
    return tree | {"constants": constants | firsts}, lists


def with_lists(
    constants: Constants, lists: Mapping[str, Any], count: int, limits: Mapping[str, tuple[float, float]]
) -> Constants:
    """The constants with a number for each client where the problem lists them."""
    arrays: dict[str, Any] = {}
    for name, values in lists.items():
        if len(values) != count:
            raise ProblemError(
                f"constants.{name} has {len(values)} entries, but rates_bps has {count} clients: give one number for "
                "all, or one for each."
            )
        low, high = limits[f"constants.{name}"]
        for index, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ProblemError(f"constants.{name}[{index}] = {str(value)[:40]!r} is not a number.")
            if not low <= value <= high:
                raise ProblemError(
                    f"constants.{name}[{index}] = {float(value):g} is out of range: it must be from {low:g} to "
                    f"{high:g}."
                )
        arrays[name] = np.array(values, dtype=float)
    return replace(constants, **arrays)


def first_above(low: PerClient, high: PerClient) -> tuple[float, float] | None:
    """The first pair of limits that are in the wrong order."""
    lows, highs = np.broadcast_arrays(np.atleast_1d(low), np.atleast_1d(high))
    wrong = np.flatnonzero(lows > highs)
    return (float(lows[wrong[0]]), float(highs[wrong[0]])) if len(wrong) else None
