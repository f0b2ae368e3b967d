"""The profile that follows from a measurement, each figure with where it comes from."""

from typing import Any

from qccf.devices.measuring import Measurement
from qccf.devices.profile import ASSUMED, FIGURES, MAX_COMPUTE_POWER_W, MAX_LAW_POWER_W, Profile, profile_from_dict

ASSUMED_J_PER_CYCLE = 1e-9
"""Energy per clock cycle and busy core at the highest frequency where no meter tells it: a core of a phone, a small
board or a laptop takes one or two watts per gigahertz."""
ASSUMED_TRANSMIT_W = 0.2
ASSUMED_CIRCUIT_W = 1.8


def profile_of(
    measured: Measurement, *, name: str, title: str, work: str, flops_per_sample: float, battery_j: float | None
) -> tuple[Profile, list[str]]:
    """The profile, and one sentence for each figure that is assumed. `work` says what was trained, for the sources."""
    tree: dict[str, Any] = {"title": title}
    sources: dict[str, str] = {}
    notes = list(measured.notes)
    for figures, origins, said in (_work(measured, work, flops_per_sample), _energy(measured)):
        tree |= figures
        sources |= origins
        notes += said
    tree |= {"transmit_power_w": ASSUMED_TRANSMIT_W, "circuit_power_w": ASSUMED_CIRCUIT_W}
    sources["transmit_power_w"] = f"{ASSUMED}: a cellular modem of 3GPP power class 3, 23 dBm"
    sources["circuit_power_w"] = f"{ASSUMED} as for a phone"
    notes.append(
        f"the radio was not measured: assumed that it radiates {ASSUMED_TRANSMIT_W:g} W and takes "
        f"{ASSUMED_CIRCUIT_W:g} W besides."
    )
    if measured.idle_power_w is None:
        notes.append("the power at rest was not measured: assumed 0 W.")
    else:
        tree["idle_power_w"] = measured.idle_power_w
        sources["idle_power_w"] = f"measured with {measured.meter}"
    if battery_j is not None and battery_j >= FIGURES["battery_j"].least:
        tree["battery_j"], sources["battery_j"] = battery_j, "the battery's own file, energy when full"
    return profile_from_dict(tree | {"sources": sources}, name), notes


Part = tuple[dict[str, Any], dict[str, str], list[str]]
"""Figures, their sources, and sentences about what is assumed."""


def _work(measured: Measurement, work: str, flops_per_sample: float) -> Part:
    """Operations per cycle, or the cycles themselves where a profile cannot hold so few or so many operations."""
    fastest = measured.trials[-1]
    origin = (
        f"measured: {work} takes {fastest.seconds_per_sample:.3g} s per sample at "
        f"{fastest.frequency_hz / 1e6:.0f} MHz on {fastest.busy_cores:.1f} cores"
    )
    per_cycle = flops_per_sample / fastest.cycles_per_sample
    held = _within("flops_per_cycle", per_cycle)
    if held == per_cycle:
        sources = {"cycles_per_sample": "counted in the model", "flops_per_cycle": origin}
        return {"cycles_per_sample": "auto", "flops_per_cycle": per_cycle}, sources, []
    cycles = _within("cycles_per_sample", fastest.cycles_per_sample)
    note = (
        f"{per_cycle:.3g} operations per cycle are out of range, so the profile states {cycles:.3g} cycles per sample, "
        "which hold for this model only."
    )
    sources = {"cycles_per_sample": origin, "flops_per_cycle": f"{ASSUMED}: the limit of a profile; not used"}
    return {"cycles_per_sample": cycles, "flops_per_cycle": held}, sources, [note]


def _within(name: str, value: float) -> float:
    """The value that a profile may hold which is nearest."""
    return min(max(value, FIGURES[name].least), FIGURES[name].most)


def _energy(measured: Measurement) -> Part:
    """Steps of frequency and power where several were measured, else a coefficient and the limits of the CPU."""
    trials = measured.trials
    if len(trials) > 1 and all(trial.power_w is not None for trial in trials):
        steps = [[trial.frequency_hz, trial.power_w] for trial in trials]
        return {"steps": steps}, {"steps": f"measured with {measured.meter}, above the power at rest"}, []
    fastest = trials[-1]
    low_hz = _within("frequency_min_hz", min(measured.limits_hz[0], trials[0].frequency_hz))
    high_hz = _within("frequency_max_hz", max(measured.limits_hz[1], fastest.frequency_hz))
    if fastest.power_w is None:
        cores = max(1.0, round(fastest.busy_cores, 1))
        power_w, at_hz = min(cores * ASSUMED_J_PER_CYCLE * high_hz, MAX_COMPUTE_POWER_W), high_hz
        origin = f"{ASSUMED}: {ASSUMED_J_PER_CYCLE * 1e9:g} nJ per cycle and core at the highest frequency; no meter"
        note = (
            f"the energy of computing was not measured: assumed {ASSUMED_J_PER_CYCLE * 1e9:g} nJ per cycle and core, "
            f"so {power_w:.3g} W at {high_hz / 1e6:.0f} MHz."
        )
    else:
        power_w, at_hz = fastest.power_w, fastest.frequency_hz
        meter = measured.meter or "a meter that failed later"
        origin = f"measured with {meter}: {power_w:.3g} W above rest at {at_hz / 1e6:.0f} MHz"
        note = "power was measured at one frequency only: assumed that it grows with the cube of the frequency."
    coefficient = power_w / at_hz**3
    highest_w = coefficient * high_hz**3
    if highest_w > MAX_LAW_POWER_W or coefficient != _within("energy_coefficient", coefficient):
        note = (
            f"{power_w:.3g} W at {at_hz / 1e6:.0f} MHz would be {highest_w:.3g} W at {high_hz / 1e6:.0f} MHz with "
            "the cube of the frequency, which is not plausible: the profile has this one frequency only."
        )
        return {"steps": [[at_hz, power_w]]}, {"steps": origin}, [note]
    law = f"; the cubic law is {ASSUMED}" if fastest.power_w is not None else ""
    limits = "cpufreq" if low_hz < high_hz else "measured; the machine lists no other frequency"
    figures = {"energy_coefficient": coefficient, "frequency_min_hz": low_hz, "frequency_max_hz": high_hz}
    sources = {"energy_coefficient": origin + law, "frequency_min_hz": limits, "frequency_max_hz": limits}
    return figures, sources, [note]
