"""The devices of all clients of a federation, as the decision core takes them: one number, or one for each client."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray, IntArray
from qccf.core.errors import ConfigError
from qccf.core.streams import stream
from qccf.devices.profile import FIGURES, LAW, Profile, figures_of_steps, require_plausible
from qccf.devices.steps import step_arrays, useful_steps


@dataclass(frozen=True, eq=False)
class Fleet:
    """`constants` are fields of `Constants`; the rest is None where the table of clients does not state it.

    `batteries_j` is what each battery holds at the start, infinite on mains; None if nobody has one.
    """

    names: tuple[str, ...]
    constants: Mapping[str, Any]
    batteries_j: FloatArray | None = None
    dataset_sizes: FloatArray | None = None
    positions_m: FloatArray | None = None


def shares_to_counts(shares: Mapping[str, float], count: int) -> dict[str, int]:
    """How many of `count` clients have each name: exact shares, rounded by the largest remainder."""
    total = math.fsum(shares.values())
    exact = {name: share / total * count for name, share in shares.items()}
    counts = {name: math.floor(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_remainder[: count - sum(counts.values())]:
        counts[name] += 1
    return counts


def mixed(shares: Mapping[str, float], count: int, seed: int) -> list[str]:
    """A name for each client: the shares are exact, and who has which is drawn for the seed."""
    counts = shares_to_counts(shares, count)
    names = [name for name, number in counts.items() for _ in range(number)]
    order: IntArray = stream(seed, "devices").permutation(count)
    return [names[index] for index in order]


def build_fleet(profiles: Sequence[Profile], flops: Callable[[], float], *, charge: float) -> Fleet:
    """The fleet with one profile per client. `flops` counts the operations of a sample, if a profile needs them."""
    needs_flops = any(profile.cycles_per_sample == "auto" for profile in profiles)
    per_sample = flops() if needs_flops else 0.0
    kinds = {id(profile): profile for profile in profiles}
    places = {one: place for place, one in enumerate(kinds)}
    index = np.array([places[id(profile)] for profile in profiles])
    own = [_figures(profile, per_sample) for profile in kinds.values()]
    constants = {name: _compact(np.array([figures[name] for figures in own])[index]) for name in own[0]}
    if any(profile.steps for profile in profiles):
        names = ("step_frequencies_hz", "step_energies_j")
        tables = [profile.steps for profile in kinds.values()]
        for name, rows in zip(names, step_arrays(tables), strict=True):
            constants[name] = rows[0] if len(tables) == 1 else rows[index]
    batteries_j = charge * np.array([profile.battery_j for profile in profiles])
    return Fleet(
        tuple(profile.name for profile in profiles), constants, batteries_j if np.isfinite(batteries_j).any() else None
    )


def with_figures(profile: Profile, row: Mapping[str, Any]) -> Profile:
    """The profile with the figures that a row of a table states instead."""
    figures = {name: value for name, value in row.items() if name in (*FIGURES, "steps")}
    if not figures:
        return profile
    if "steps" in figures:
        figures |= figures_of_steps(figures["steps"], figures)
    elif profile.steps and any(name in figures for name in LAW):
        missing = [name for name in LAW if name not in figures]
        if missing:
            raise ConfigError(
                f"{', '.join(name for name in LAW if name in figures)} takes the place of the steps of profile "
                f"{profile.name!r}, but {', '.join(missing)} is missing: state all three, or none."
            )
        profile = replace(profile, steps=())
    profile = replace(profile, **figures)
    if "flops_per_cycle" in figures and profile.cycles_per_sample != "auto":
        raise ConfigError(
            f"flops_per_cycle has no effect with cycles_per_sample = {profile.cycles_per_sample:g} of profile "
            f'{profile.name!r}: set cycles_per_sample to "auto", or leave it out.'
        )
    require_plausible({name: getattr(profile, name) for name in FIGURES})
    return profile


def _figures(profile: Profile, flops_per_sample: float) -> dict[str, float]:
    kept = useful_steps(profile.steps)
    return {
        "cycles_per_sample": profile.cycles(flops_per_sample),
        "energy_coefficient": profile.energy_coefficient,
        "transmit_power_w": profile.transmit_power_w,
        "frequency_min_hz": kept[0][0] if kept else profile.frequency_min_hz,
        "frequency_max_hz": profile.frequency_max_hz,
        "circuit_power_w": profile.circuit_power_w,
        "idle_power_w": profile.idle_power_w,
    }


def _compact(values: FloatArray) -> Any:
    """One number where all are equal."""
    return float(values[0]) if (values == values[0]).all() else values
