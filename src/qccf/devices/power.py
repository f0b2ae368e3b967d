"""Transmit power as a decision: how long an upload takes, and with which power, at the least energy.

For a client with C cycles on a channel with the signal-to-noise ratio g per watt, ℓ bits in u seconds take the power
p(u) = (2^(ℓ/(B·u)) - 1)/g, and the CPU has T - u seconds for its cycles. The energy

    (k·p(u) + circuit power)·u + α·C·f(u)²,   f(u) = max(f_min, C/(T - u))

with k watts per radiated watt (1 in the paper) is convex in u: the first term is the perspective of a convex function,
the second is constant until the time left no longer suffices at f_min, and then α·C³/(T - u)². So the best u is where
the slope changes sign, or the end of the interval that p_min, p_max and f_max leave.
"""

from typing import Any, NamedTuple

import numpy as np

from qccf.core.contracts import Constants, FloatArray

LN2 = float(np.log(2.0))
LATEST = 1e-12
"""Share of the deadline by which an upload at the highest CPU frequency ends early, because times are rounded."""
LEAST_RATIO = 1e-20
"""A smaller signal-to-noise ratio counts as none."""
MOST_STEPS = 60
PRECISION = 1e-9
"""A search for the best time ends with an error of at most this share of the time. The energy is then exact to
rounding, because it hardly changes around its least value."""
LAST_NEWTON_STEP = 1e-5
"""After a Newton step of this share the error is about its square, below `PRECISION`."""
BLOCK_ELEMENTS = 10_000
"""Uploads computed at once: few enough for the cache, many enough to make the interpreter's cost negligible."""


def signal_to_noise(rates_bps: Any, constants: Constants) -> Any:
    """The ratio at full power that gives these rates."""
    return np.expm1(np.asarray(rates_bps) * (LN2 / constants.bandwidth_hz))


def rates_at_power_bps(rates_bps: Any, powers_w: Any, constants: Constants) -> Any:
    """Rates with these powers, from the rates with the power `constants.transmit_power_w`.

    Paper: v(p), Section IV-A.
    """
    c = constants.aligned(rates_bps, powers_w)
    ratio = signal_to_noise(rates_bps, c) * (np.asarray(powers_w) / c.transmit_power_w)
    return np.log1p(ratio) * (c.bandwidth_hz / LN2)


def needed_power_w(bits: Any, upload_s: Any, rates_bps: Any, constants: Constants) -> Any:
    """The power that sends these bits in this time, between p_min and p_max; p_max where the time is not finite."""
    c = constants.aligned(bits, upload_s, rates_bps)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.expm1(bits * LN2 / (c.bandwidth_hz * upload_s)) / signal_to_noise(rates_bps, c)
    bounded = np.clip(c.transmit_power_w * share, c.transmit_power_min_w, c.transmit_power_w)
    return np.where(np.isfinite(upload_s), bounded, c.transmit_power_w)


def least_energy_per_bit_j(rates_bps: Any, constants: Constants) -> Any:
    """A bound from below on what one more bit costs with any power: that of a vanishing rate. Zero without a link."""
    c = constants.aligned(rates_bps)
    with np.errstate(divide="ignore"):
        per_bit = LN2 * c.power_per_radiated * c.transmit_power_w / (c.bandwidth_hz * signal_to_noise(rates_bps, c))
    return np.where(np.isfinite(per_bit), per_bit, 0.0)


def best_upload_s(bits: Any, rates_bps: Any, cycles: Any, constants: Constants) -> FloatArray:
    """The upload time with the least energy; at full power where the deadline is missed anyway."""
    c = constants.aligned(bits, rates_bps, cycles)
    steps_hz = c.step_frequencies_hz
    shape = np.broadcast_shapes(*(np.shape(x) for x in (bits, rates_bps, cycles, c.frequency_max_hz)))
    if not shape:
        return (_best_continuous_s if steps_hz is None else _best_with_steps_s)(bits, rates_bps, cycles, c)
    has_steps = np.zeros(shape[0], dtype=bool)
    if steps_hz is not None:
        has_steps |= np.isfinite(steps_hz[..., 0]).ravel()

    def of(block: Any, operand: Any) -> Any:
        """An operand with fewer axes, or with one entry for all clients, has no axis of clients to select from."""
        return operand[block] if np.ndim(operand) == len(shape) and len(operand) > 1 else operand

    best_s = np.empty(shape)
    for best, clients in ((_best_with_steps_s, has_steps), (_best_continuous_s, ~has_steps)):
        rows = np.flatnonzero(clients)
        per_block = max(1, BLOCK_ELEMENTS * shape[0] // best_s.size)
        for start in range(0, len(rows), per_block):
            block = rows[start : start + per_block]
            best_s[block] = best(of(block, bits), of(block, rates_bps), of(block, cycles), c.of(block))
    return best_s


class _Uploads(NamedTuple):
    """What the energy of uploads follows from: a time u takes (watts·(e^(nats_hz/u) - 1) + circuit power)·u."""

    nats_hz: Any
    watts: Any
    """What the radio takes for a signal-to-noise ratio of 1, without its circuits; infinite without a link."""
    shortest_s: Any
    """The time at full power."""
    cheapest_s: Any
    """The time with the least energy of the radio alone, with a power between the limits."""


def _uploads(bits: Any, rates_bps: Any, constants: Constants) -> _Uploads:
    c = constants
    ratio = signal_to_noise(rates_bps, c)
    nats_hz = bits * (LN2 / c.bandwidth_hz)
    with np.errstate(divide="ignore", invalid="ignore"):
        watts = c.power_per_radiated * c.transmit_power_w / ratio
        shortest_s = bits / rates_bps
        longest_s = nats_hz / np.log1p(ratio * (c.transmit_power_min_w / c.transmit_power_w))
        cheapest_s = nats_hz / _cheapest_nats(c.circuit_power_w / watts)
    cheapest_s = np.maximum(np.minimum(cheapest_s, longest_s), shortest_s)
    return _Uploads(nats_hz, watts, shortest_s, cheapest_s)


def _cheapest_nats(circuit_ratio: Any) -> Any:
    """The rate y, in nats per hertz and second, with the least energy of the radio: e^y·(y - 1) + 1 = G.

    G is the signal-to-noise ratio that the circuits' power would give; without circuits the slowest upload is the
    cheapest, and y is 0. The solution is 1 + W((G - 1)/e), but SciPy's Lambert W takes several times as long. Here
    Halley's method solves the logarithm of the equation, which is nearly straight. Two steps suffice for G up to 1e12,
    because the start is right to the second order for a small G and at most 11 % too high.
    """
    some = circuit_ratio > LEAST_RATIO
    if not np.any(some):
        return np.zeros_like(circuit_ratio)
    goal = np.where(some, circuit_ratio, 1.0)
    nats = np.log1p(np.sqrt(2.0 * goal) + goal / 3.0)
    for _ in range(2):
        grown = np.expm1(nats)
        steep = nats * (grown + 1.0)
        reached = steep - grown
        value, slope = np.log(reached / goal), steep / reached
        nats = nats - value / (slope - 0.5 * value * (1.0 + 1.0 / nats - slope))
    return np.where(some, nats, 0.0)


def _best_with_steps_s(bits: Any, rates_bps: Any, cycles: Any, constants: Constants) -> FloatArray:
    """The best upload time of devices with steps: each step leaves the radio a known time, and the best step wins.

    A faster step takes more energy and leaves the radio more time. It is left out where the radio would not use that
    time, and where it cannot save enough: the radio's energy is convex in the time, so it lies above its tangent at the
    time of a slower step.
    """
    c = constants
    steps_hz, steps_j = c.step_frequencies_hz, c.step_energies_j
    assert steps_hz is not None
    assert steps_j is not None
    nats_hz, watts, shortest_s, cheapest_s = _uploads(bits, rates_bps, c)
    shape = np.broadcast_shapes(np.shape(shortest_s), np.shape(cycles))
    best_s, least_j = np.array(np.broadcast_to(shortest_s, shape), dtype=float), np.full(shape, np.inf)
    tried_s, tangent_j, tangent_w = np.zeros(shape), np.full(shape, -np.inf), np.zeros(shape)
    for step in range(steps_hz.shape[-1]):
        latest_s = c.deadline_s * (1.0 - LATEST) - cycles / steps_hz[..., step]
        computing_j = cycles * steps_j[..., step]
        upload_s = np.minimum(cheapest_s, latest_s)
        with np.errstate(invalid="ignore"):  # after a device's last step energies are infinite
            worth_it = tangent_j + tangent_w * upload_s + computing_j < least_j
        tried = worth_it & (upload_s > tried_s) & (shortest_s <= latest_s)
        if not tried.any():
            continue
        time_s, per_ratio_w = upload_s[tried], _chosen(watts, tried)
        nats = _chosen(nats_hz, tried) / time_s
        grown = np.expm1(nats)
        radio_w = per_ratio_w * grown + _chosen(c.circuit_power_w, tried)
        slope_w = radio_w - per_ratio_w * nats * (grown + 1.0)
        tried_s[tried], tangent_w[tried], tangent_j[tried] = time_s, slope_w, (radio_w - slope_w) * time_s
        spent_j = radio_w * time_s + _chosen(computing_j, tried)
        better = spent_j < least_j[tried]
        best_s[tried] = np.where(better, time_s, best_s[tried])
        least_j[tried] = np.where(better, spent_j, least_j[tried])
    return best_s


def _best_continuous_s(bits: Any, rates_bps: Any, cycles: Any, constants: Constants) -> FloatArray:
    """The best upload time of devices with any frequency between two limits."""
    c = constants
    nats_hz, watts, shortest_s, cheapest_s = _uploads(bits, rates_bps, c)
    latest_s = c.deadline_s * (1.0 - LATEST) - cycles / c.frequency_max_hz
    # As long as the CPU has time enough at its lowest frequency, only the radio counts.
    relaxed_s = np.maximum(np.minimum(c.deadline_s - cycles / c.frequency_min_hz, latest_s), shortest_s)
    end_s = np.maximum(np.minimum(cheapest_s, latest_s), shortest_s)  # beyond it the radio loses, too
    upload_s = np.array(np.minimum(cheapest_s, relaxed_s))
    longer = np.isfinite(upload_s) & (upload_s < end_s)
    if longer.any():
        cubes = 2.0 * c.energy_coefficient * cycles**3
        given = (nats_hz, watts, c.circuit_power_w, cubes, relaxed_s, end_s, c.deadline_s)
        upload_s[longer] = _cheapest_for_both_s(*(_chosen(x, longer) for x in given))
    return upload_s


def _chosen(values: Any, where: Any) -> Any:
    return np.broadcast_to(values, where.shape)[where]


def _cheapest_for_both_s(
    nats_hz: Any, watts: Any, circuit_w: Any, cubes: Any, start_s: Any, end_s: Any, deadline_s: Any
) -> Any:
    """The zero of the slope between `start_s` and `end_s`, where a longer upload makes the CPU run faster.

    There the radio saves as much in a longer upload as the CPU and the circuits lose. `cubes` is 2·α·C³. Newton's
    method finds the zero for the logarithm of loss over saving, which is nearly straight, inside a bracket that shrinks
    with each step; a step out of the bracket halves it instead.
    """

    def balance(upload_s: Any) -> tuple[Any, Any]:
        """log(loss/saving), which rises with the time, and its derivative."""
        nats, left_s = nats_hz / upload_s, deadline_s - upload_s
        grown, faster_w = np.exp(nats), cubes / (left_s * left_s * left_s)
        saving, loss = watts * (grown * (nats - 1.0) + 1.0), circuit_w + faster_w
        slope = 3.0 * faster_w / (left_s * loss) + watts * nats * nats * grown / (upload_s * saving)
        return np.log(loss / saving), slope

    value, slope = balance(start_s)
    low_s, high_s = np.where(balance(end_s)[0] <= 0.0, end_s, start_s), end_s
    upload_s = low_s
    value = np.where(upload_s == start_s, value, 0.0)
    for _ in range(MOST_STEPS):
        low_s, high_s = np.where(value < 0.0, upload_s, low_s), np.where(value < 0.0, high_s, upload_s)
        guess_s = upload_s - value / slope
        inside = (guess_s >= low_s) & (guess_s <= high_s)
        next_s = np.where(inside, guess_s, 0.5 * (low_s + high_s))
        moved_s, upload_s = np.abs(next_s - upload_s), next_s
        if (moved_s <= np.where(inside, LAST_NEWTON_STEP, PRECISION) * upload_s).all():
            break
        value, slope = balance(upload_s)
    return upload_s
