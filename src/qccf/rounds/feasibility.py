"""Checks before anything runs that some client can ever upload within the deadline.

Every client is assumed to have fading that only one draw in a million exceeds, its highest frequency, and the smallest
upload that its codec can make. If no client meets the deadline even then, no round can ever have a participant.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qccf.core.contracts import Constants, FloatArray
from qccf.core.errors import InfeasibleError
from qccf.core.units import db_to_linear
from qccf.devices.cost import training_cycles
from qccf.quantization.buffers import with_buffers
from qccf.quantization.protocol import Codec
from qccf.quantization.registry import CODECS, build_codec
from qccf.rounds.recordings import bundled_recording, recording_name
from qccf.settings.devices import MAX_DEADLINE_S
from qccf.settings.radio import MAX_GAIN_DB, MAX_RESOURCE_BLOCKS, linear_radio
from qccf.settings.schema import Scenario
from qccf.wireless.cell import Cell
from qccf.wireless.fading import rician_power_quantile
from qccf.wireless.radio import resource_blocks_hz

RARE = 1e-6
MAX_BANDWIDTH_HZ = 10e9

ANY_UPLOAD_BITS = 64.0
"""Of a codec that states nothing it is only known before it runs that an upload has a range and a size."""


def least_upload_bits(codec: Codec | None) -> float:
    """The size of the smallest upload: with one bit where it is affine in q, else the codec's `least_upload_bits`."""
    if codec is not None and codec.affine:
        return codec.bits_per_index + codec.overhead_bits
    return float(getattr(codec, "least_upload_bits", ANY_UPLOAD_BITS))


def _codec(scenario: Scenario) -> Codec | None:
    """The scenario's codec; None while its model is not counted."""
    count = scenario.learning.num_parameters
    if count == 0:
        return None
    codec = build_codec(scenario.codec.name, count, [count], **scenario.codec.options)
    return with_buffers(codec, count, scenario.learning.num_buffers)


def fitting_codecs(scenario: Scenario, room_bits: float) -> list[str]:
    """The built-in codecs whose uploads with one bit fit into `room_bits`, smallest first.

    Codecs of updates come before those of models, which err more with as many bits. Where the size depends on the data
    it is the largest in the recorded training, with the safety margin.
    """
    count = scenario.learning.num_parameters
    recording = bundled_recording(recording_name(scenario.replaced(statistics={"trace": ""})))
    sizes_bits: dict[str, tuple[bool, float]] = {}
    for name in CODECS if count else ():
        codec = with_buffers(build_codec(name, count, [count]), count, scenario.learning.num_buffers)
        if codec.affine:
            sizes_bits[name] = not codec.relative, least_upload_bits(codec)
        elif name in recording.codecs:
            per_parameter = recording.codecs[name].bits_per_parameter
            assert per_parameter is not None
            coded_bits = float(per_parameter[..., 0].max()) * count + 32.0 * scenario.learning.num_buffers
            sizes_bits[name] = not codec.relative, coded_bits * (1.0 + scenario.codec.safety_margin)
    return sorted(
        (name for name, (_, bits) in sizes_bits.items() if bits <= room_bits), key=lambda one: sizes_bits[one]
    )


def needed_rates_bps(scenario: Scenario, dataset_sizes: FloatArray, constants: Constants | None = None) -> FloatArray:
    """The rate at which the smallest upload meets the deadline at the highest frequency; infinite if none does.

    `constants` are the scenario's by default; others are those of a world or of a typical client.
    """
    constants = scenario.constants() if constants is None else constants
    time_left_s = constants.deadline_s - training_cycles(dataset_sizes, constants) / constants.frequency_max_hz
    bits = least_upload_bits(_codec(scenario))
    return np.where(time_left_s > 0.0, bits / np.where(time_left_s > 0.0, time_left_s, 1.0), np.inf)


def best_rates_bps(cell: Cell) -> FloatArray:
    """Each client's rate in fading that only one draw in a million exceeds."""
    radio = cell.radio
    luck = rician_power_quantile(1.0 - RARE, rician_k=radio.rician_k, mean_power=radio.fading_mean_power)
    return cell.best_rates_bps(luck)


def why_never(scenario: Scenario, cell: Cell, dataset_sizes: FloatArray) -> dict[int, str]:
    """The clients that can never upload in time, each with one sentence that says why."""
    constants, best_bps = scenario.constants(cell.seed), best_rates_bps(cell)
    needed_bps = needed_rates_bps(scenario, dataset_sizes, constants)
    compute_s = training_cycles(dataset_sizes, constants) / constants.frequency_max_hz
    reasons = {}
    for client in map(int, np.flatnonzero(best_bps < needed_bps)):
        start = (
            f"training on {dataset_sizes[client]:g} samples takes {compute_s[client]:.3g} s at the highest frequency"
        )
        if np.isfinite(needed_bps[client]):
            reasons[client] = (
                f"{start}; {_smallest(scenario)} then needs {needed_bps[client] / 1e6:.3g} Mb/s, but the link of "
                f"{cell.distances_m[client]:.0f} m has {best_bps[client] / 1e6:.3g} Mb/s at its best."
            )
        else:
            reasons[client] = f"{start}, beyond device.deadline_s = {constants.deadline_s:g}."
    return reasons


def require_feasible(scenario: Scenario, cell: Cell, dataset_sizes: FloatArray) -> None:
    """Refuse a cell in which no client can ever upload, and say which setting would change that."""
    constants = scenario.constants(cell.seed)
    best_bps, needed_bps = best_rates_bps(cell), needed_rates_bps(scenario, dataset_sizes, constants)
    if (best_bps >= needed_bps).any():
        return
    d = scenario.device
    best = int(np.argmax(best_bps / needed_bps))
    if not np.isfinite(needed_bps[best]):
        takes_s = training_cycles(dataset_sizes, constants) / constants.frequency_max_hz
        fastest = int(np.argmin(takes_s))
        fastest_hz = float(constants.of(fastest).frequency_max_hz)
        name = "device.frequency_max_hz = " if scenario.devices.is_papers else "the highest frequency in hertz, "
        coded = scenario.accounts.coding_cycles_per_parameter > 0.0
        coding, lower = (" and coding", " or accounts.coding_cycles_per_parameter") if coded else ("", "")
        raise InfeasibleError(
            f"no client can ever finish: training on {dataset_sizes[fastest]:g} samples{coding} takes "
            f"{takes_s[fastest]:.3g} s at {name}{fastest_hz:g}, beyond device.deadline_s = {d.deadline_s:g}: "
            f"{_faster(scenario, float(takes_s[fastest]))}{lower}."
        )
    if cell.trace is not None:
        raise InfeasibleError(
            f"no client can ever upload within device.deadline_s = {d.deadline_s:g}: {_smallest(scenario)} needs "
            f"{needed_bps[best] / 1e6:.3g} Mb/s after training on {dataset_sizes[best]:g} samples, but the best link "
            f"of radio.trace has {best_bps[best] / 1e6:.3g} Mb/s: raise the deadline, or use another trace."
        )
    mean_size = scenario.data.dataset_size_mean
    typical_bps = float(needed_rates_bps(scenario, np.array([mean_size]), constants.typical())[0])
    typical = f"{typical_bps / 1e6:.3g} Mb/s" if np.isfinite(typical_bps) else "more time than is left"
    raise InfeasibleError(
        f"no client can ever upload within device.deadline_s = {d.deadline_s:g}: {_smallest(scenario)} needs {typical} "
        f"after training on {mean_size:g} samples ({needed_bps[best] / 1e6:.3g} Mb/s on {dataset_sizes[best]:g}), but "
        f"the best link ({cell.distances_m[best]:.0f} m, radio.bandwidth_hz = {scenario.radio.bandwidth_hz:g}) has "
        f"{best_bps[best] / 1e6:.3g} Mb/s at its best; {_remedies(scenario, typical_bps)}."
    )


def _faster(scenario: Scenario, compute_s: float) -> str:
    """What lets a client finish, whose training takes this long."""
    if scenario.devices.is_papers:
        return "raise the deadline or the frequency, or lower device.cycles_per_sample"
    return f"raise the deadline to more than {compute_s:.3g} s, or give clients fewer samples or faster devices"


def _smallest(scenario: Scenario) -> str:
    """The smallest upload in words."""
    codec = _codec(scenario)
    if codec is not None and codec.affine:
        return f"one bit for each of {scenario.learning.num_parameters:,} parameters"
    if not hasattr(codec, "least_upload_bits"):
        return f"an upload of {ANY_UPLOAD_BITS:g} bits"
    return f"the smallest upload of codec {scenario.codec.name!r} ({least_upload_bits(codec):,.0f} bits)"


def _loss_db(scenario: Scenario, distance_m: float) -> float:
    radio = linear_radio(scenario.cell, scenario.radio)
    in_sight = np.array([radio.line_of_sight != "never"])
    return float(radio.path_loss_model().loss_db(np.array([distance_m]), in_sight)[0])


def _remedies(scenario: Scenario, needed_bps: float) -> str:
    """The values of three settings and the codecs, each of which lets the median client upload with average fading."""
    median_m = float(np.sqrt(0.5 * (scenario.cell.radius_m**2 + scenario.cell.distance_min_m**2)))
    constants = scenario.constants().typical()
    radio = replace(linear_radio(scenario.cell, scenario.radio), transmit_power_w=constants.transmit_power_w)
    gain = db_to_linear(radio.gain_db - _loss_db(scenario, median_m)) * radio.fading_mean_power
    rate_bps = float(radio.rates_bps(gain))
    cycles = training_cycles(np.array([scenario.data.dataset_size_mean]), constants)[0]
    compute_s = float(cycles) / constants.frequency_max_hz
    deadline_s = compute_s + (least_upload_bits(_codec(scenario)) / rate_bps if rate_bps > 0.0 else np.inf)
    remedies = [f"device.deadline_s = {_rounded_up(deadline_s)}"] if deadline_s < MAX_DEADLINE_S else []

    def rate_at(bandwidth_hz: float) -> float:
        return float(replace(radio, bandwidth_hz=bandwidth_hz).rates_bps(gain))

    def rate_with(gain_db: float) -> float:
        return float(radio.rates_bps(gain * db_to_linear(gain_db - radio.gain_db)))

    if rate_at(MAX_BANDWIDTH_HZ) >= needed_bps:
        wanted_hz = _least(rate_at, needed_bps, radio.bandwidth_hz, MAX_BANDWIDTH_HZ)
        remedies = _bandwidth_remedy(scenario, wanted_hz) + remedies
    if rate_with(MAX_GAIN_DB) > needed_bps:
        wanted_db = _least(rate_with, needed_bps, radio.gain_db, MAX_GAIN_DB)
        remedies.append(f"radio.gain_db = {_rounded_up(wanted_db)}")
    codecs = fitting_codecs(scenario, rate_bps * (constants.deadline_s - compute_s))
    if codecs:
        remedies.append(f"codec.name = {' or '.join(codecs)}")
    if not remedies:
        return "no single setting changes that: shrink the cell or the model"
    return f"for the median client ({median_m:.0f} m) one of these is enough: {', '.join(remedies)}"


def _bandwidth_remedy(scenario: Scenario, wanted_hz: float) -> list[str]:
    if not scenario.radio.resource_blocks:
        return [f"radio.bandwidth_hz = {_rounded_up(wanted_hz)}"]
    blocks = int(np.ceil(wanted_hz / resource_blocks_hz(1, scenario.radio.numerology)))
    return [f"radio.resource_blocks = {blocks}"] if blocks <= MAX_RESOURCE_BLOCKS else []


def _least(rate_bps: Callable[[float], float], needed_bps: float, low: float, high: float) -> float:
    """The least argument with this rate, which rises with it, by bisection."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rate_bps(middle) < needed_bps else (low, middle)
    return high


def _rounded_up(value: float) -> str:
    """Two significant digits, never below the value."""
    unit = 10.0 ** (np.floor(np.log10(abs(value))) - 1.0)
    return f"{np.ceil(value / unit) * unit:g}"
