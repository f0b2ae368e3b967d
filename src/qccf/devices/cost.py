"""Latency and energy of computing and uploading, and the outcome of a decision.

Paper: Section IV-A and IV-B.
"""

from typing import Any, NamedTuple

import numpy as np

from qccf.core.contracts import BoolArray, Constants, Decision, FloatArray, Observation, Outcome
from qccf.devices import power, steps
from qccf.quantization.costs import payload_bits, raw_payload_bits

DEADLINE_SLACK = 1e-9
"""A latency above the deadline by at most this fraction is a rounding error and counts as on time."""


def training_cycles(dataset_sizes: FloatArray, constants: Constants) -> FloatArray:
    """CPU cycles for the local epochs of one round, and for coding where that is charged. Paper: τ_e·γ·D."""
    return constants.local_epochs * constants.cycles_per_sample * dataset_sizes + constants.coding_cycles


def compute_energy_j(cycles: Any, frequency_hz: Any, constants: Constants) -> Any:
    """Energy of these cycles at a fixed frequency. Paper: E_cmp.

    A device with steps runs at the slowest of them that is fast enough.
    """
    c = constants.aligned(cycles, frequency_hz)
    if c.step_frequencies_hz is None:
        return c.energy_coefficient * cycles * np.square(frequency_hz)
    with np.errstate(invalid="ignore"):  # a device with steps has no coefficient, and no frequency may be enough
        return cycles * steps.energy_per_cycle_j(frequency_hz, c.energy_coefficient * np.square(frequency_hz), c)


class Transmission(NamedTuple):
    """How long uploads take, and their transmit power."""

    upload_s: Any
    power_w: Any


def transmission(bits: Any, rates_bps: Any, cycles: Any, constants: Constants) -> Transmission:
    """The upload of these bits at full power, or with the time and power that take the least energy.

    `rates_bps` are those at full power, `cycles` what the CPU has to do within the same deadline.
    """
    c = constants.aligned(bits, rates_bps, cycles)
    if c.adapt_power:
        upload_s = power.best_upload_s(bits, rates_bps, cycles, c)
        return Transmission(upload_s, power.needed_power_w(bits, upload_s, rates_bps, c))
    with np.errstate(divide="ignore"):
        return Transmission(bits / rates_bps, c.transmit_power_w)


def transmit_powers_w(decision: Decision, constants: Constants) -> FloatArray:
    """The transmit power of each client; 0 for a client that sits out."""
    if decision.powers_w is not None:
        return decision.powers_w
    return np.where(decision.participates, constants.transmit_power_w, 0.0)


def upload_energy_j(sent: Transmission, constants: Constants) -> Any:
    """Energy of waking the radio and of the radio while it sends. Paper: E_com."""
    c = constants.aligned(sent.upload_s)
    return c.wake_energy_j + (c.power_per_radiated * sent.power_w + c.circuit_power_w) * sent.upload_s


def slowest_frequency_hz(cycles: Any, upload_time_s: Any, constants: Constants) -> Any:
    """Slowest CPU frequency that still meets the deadline; infinite where no frequency does.

    Energy rises with frequency, so either the deadline or the hardware minimum binds. The result is also infinite
    where the deadline requires more than the hardware maximum. Deviates: E3 and E7, where the paper omits that limit.
    A device with steps takes the slowest of them that is fast enough.

    Paper: S(q), Section V-C.
    """
    c = constants.aligned(cycles, upload_time_s)
    time_left_s = c.deadline_s - upload_time_s
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed_hz = np.where(time_left_s > 0.0, cycles / time_left_s, np.inf)
    frequency_hz = np.maximum(needed_hz, c.frequency_min_hz)
    if c.step_frequencies_hz is not None:
        frequency_hz = steps.offered_frequency_hz(frequency_hz, c)
    return np.where(frequency_hz <= c.frequency_max_hz, frequency_hz, np.inf)


def able_clients(observation: Observation, constants: Constants) -> BoolArray:
    """The clients that meet the deadline with the smallest upload on their best channel at the highest frequency."""
    statistics = observation.statistics
    rows = np.arange(observation.num_clients)
    smallest_bits = (
        payload_bits(1, rows, statistics, constants)
        if statistics.upload_bits is None
        else statistics.upload_bits.min(axis=1)
    )
    with np.errstate(divide="ignore"):
        upload_s = smallest_bits / observation.rates_bps.max(axis=1)
    cycles = training_cycles(statistics.dataset_sizes, constants)
    return np.isfinite(slowest_frequency_hz(cycles, upload_s, constants))


def settle(
    decision: Decision,
    observation: Observation,
    constants: Constants,
    *,
    sizes_bits: FloatArray | None = None,
    failed: BoolArray | None = None,
    received: FloatArray | None = None,
) -> Outcome:
    """Energy and latency of the round, and which uploads arrive. `sizes_bits` are measured sizes, NaN where unknown.

    A client that cannot finish in time computes at full speed and transmits until the deadline: its energy is spent
    and its upload is lost. An exempt decision is carried out to the end, even after the deadline. A client that
    `failed` is charged like a late one, because it is not known how far it got. `received` is what each client receives
    at the start of the round, as a share of the whole model; None is the whole model. The outcome has the statistics of
    the observation and no losses.
    """
    num_clients = observation.num_clients
    rows = np.flatnonzero(decision.participates)
    c = constants.of(rows)
    coding_cycles = 0.0 if decision.raw else constants.coding_cycles
    cycles = training_cycles(observation.statistics.dataset_sizes, constants)[rows]
    cycles = cycles - (constants.coding_cycles - coding_cycles)
    rates_bps = observation.rates_bps[rows, decision.channels[rows]]
    bits = (
        np.full(len(rows), raw_payload_bits(constants.num_parameters + constants.num_buffers))
        if decision.raw
        else payload_bits(decision.num_bits[rows], rows, observation.statistics, constants)
    )
    if sizes_bits is not None:
        bits = np.where(np.isfinite(sizes_bits[rows]), sizes_bits[rows], bits)
    frequency_hz = decision.frequencies_hz[rows]
    if c.step_frequencies_hz is not None:
        frequency_hz = np.minimum(steps.offered_frequency_hz(frequency_hz, c), c.frequency_max_hz)
    power_w: Any = c.transmit_power_w
    if decision.powers_w is not None:
        power_w = decision.powers_w[rows]
        rates_bps = power.rates_at_power_bps(rates_bps, power_w, c)
    with np.errstate(divide="ignore"):
        upload_s = bits / rates_bps
    latency_s = cycles / frequency_hz + upload_s
    failed_rows = np.zeros(len(rows), dtype=bool) if failed is None else failed[rows]
    late = failed_rows | (latency_s > constants.deadline_s * (1.0 + DEADLINE_SLACK))
    lost = failed_rows if decision.deadline_exempt else late

    fastest_s = np.minimum(cycles / c.frequency_max_hz, c.deadline_s)
    frequency_hz = np.where(lost, c.frequency_max_hz, frequency_hz)
    cycles = np.where(lost, fastest_s * c.frequency_max_hz, cycles)
    upload_s = np.where(lost, constants.deadline_s - fastest_s, upload_s)
    latency_s = np.where(lost, constants.deadline_s, latency_s)

    spent_j = compute_energy_j(cycles, frequency_hz, c)
    coding_share = coding_cycles / np.maximum(cycles, coding_cycles) if coding_cycles else 0.0
    end_s = float(latency_s.max(initial=0.0))

    def per_client(values: Any, dtype: Any = float) -> Any:
        full = np.zeros(num_clients, dtype=dtype)
        full[rows] = values
        return full

    return Outcome(
        arrived=per_client(~lost, bool),
        missed=per_client(late, bool),
        compute_energy_j=per_client(spent_j - coding_share * spent_j),
        upload_energy_j=per_client(upload_energy_j(Transmission(upload_s, power_w), c)),
        latency_s=per_client(latency_s),
        statistics=observation.statistics,
        losses=np.full(num_clients, np.nan),
        coding_energy_j=per_client(coding_share * spent_j),
        receive_energy_j=per_client(constants.receive_energy_j * (1.0 if received is None else received[rows])),
        idle_energy_j=per_client(c.idle_power_w * end_s),
    )
