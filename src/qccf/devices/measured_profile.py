"""The profile that follows from a measurement, each figure with where it comes from."""

from typing import Any

from qccf.devices.measuring import Measurement
from qccf.devices.profile import ASSUMED, Profile, profile_from_dict

ASSUMED_J_PER_CYCLE = 1e-9
"""Energy per clock cycle and busy core at the highest frequency where no meter tells it: a core of a phone, a small
board or a laptop takes one or two watts per gigahertz."""
ASSUMED_TRANSMIT_W = 0.2
ASSUMED_CIRCUIT_W = 1.8


def profile_of(
    measured: Measurement, *, name: str, title: str, work: str, flops_per_sample: float, battery_j: float | None
) -> tuple[Profile, list[str]]:
    """The profile, and one sentence for each figure that is assumed. `work` says what was trained, for the sources."""
    fastest = measured.trials[-1]
    flops_per_cycle = flops_per_sample / fastest.cycles_per_sample
    tree: dict[str, Any] = {"title": title, "cycles_per_sample": "auto", "flops_per_cycle": flops_per_cycle}
    sources = {
        "cycles_per_sample": "counted in the model",
        "flops_per_cycle": (
            f"measured: {work} takes {fastest.seconds_per_sample:.3g} s per sample at "
            f"{fastest.frequency_hz / 1e6:.0f} MHz on {fastest.busy_cores:.1f} cores"
        ),
    }
    notes = list(measured.notes)
    figures, origins, said = _energy(measured)
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
    if battery_j is not None:
        tree["battery_j"], sources["battery_j"] = battery_j, "the battery's own file, energy when full"
    return profile_from_dict(tree | {"sources": sources}, name), notes


def _energy(measured: Measurement) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Steps of frequency and power where several were measured, else a coefficient and the limits of the CPU."""
    trials = measured.trials
    if len(trials) > 1 and all(trial.power_w is not None for trial in trials):
        steps = [[trial.frequency_hz, trial.power_w] for trial in trials]
        return {"steps": steps}, {"steps": f"measured with {measured.meter}, above the power at rest"}, []
    fastest = trials[-1]
    low_hz, high_hz = (
        min(measured.limits_hz[0], trials[0].frequency_hz),
        max(measured.limits_hz[1], fastest.frequency_hz),
    )
    notes = []
    if fastest.power_w is None:
        cores = max(1.0, round(fastest.busy_cores, 1))
        coefficient = cores * ASSUMED_J_PER_CYCLE / high_hz**2
        origin = f"{ASSUMED}: {ASSUMED_J_PER_CYCLE * 1e9:g} nJ per cycle and core at the highest frequency; no meter"
        notes.append(
            f"the energy of computing was not measured: assumed {ASSUMED_J_PER_CYCLE * 1e9:g} nJ per cycle and core, "
            f"so {cores * ASSUMED_J_PER_CYCLE * high_hz:.3g} W at {high_hz / 1e6:.0f} MHz."
        )
    else:
        coefficient = fastest.power_w / fastest.frequency_hz**3
        origin = (
            f"measured with {measured.meter}: {fastest.power_w:.3g} W above rest at "
            f"{fastest.frequency_hz / 1e6:.0f} MHz; the cubic law is {ASSUMED}"
        )
        notes.append("power was measured at one frequency only: assumed that it grows with the cube of the frequency.")
    limits = "cpufreq" if low_hz < high_hz else "measured; the machine lists no other frequency"
    figures = {"energy_coefficient": coefficient, "frequency_min_hz": low_hz, "frequency_max_hz": high_hz}
    return figures, {"energy_coefficient": origin, "frequency_min_hz": limits, "frequency_max_hz": limits}, notes
