"""Transmit power as a decision: how long an upload takes, and with which power, at the least energy.

For a client with C cycles on a channel with the signal-to-noise ratio g per watt, ℓ bits in u seconds take the power
p(u) = (2^(ℓ/(B·u)) - 1)/g, and the CPU has T - u seconds for its cycles. The energy

    (k·p(u) + circuit power)·u + α·C·f(u)²,   f(u) = max(f_min, C/(T - u))

with k watts per radiated watt (1 in the paper) is convex in u: the first term is the perspective of a convex function,
the second is constant until the time left no longer suffices at f_min, and then α·C³/(T - u)². So the best u is where
the slope changes sign, or the end of the interval that p_min, p_max and f_max leave.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import lambertw

from qccf.core.contracts import PER_CLIENT, STEPS, Constants, FloatArray

LN2 = float(np.log(2.0))
LATEST = 1e-12
"""Share of the deadline by which an upload at the highest CPU frequency ends early, because times are rounded."""
MOST_STEPS = 60
PRECISION = 1e-9
"""Newton's method ends with a step of at most this share of the time; the energy is then exact to rounding."""


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
    with np.errstate(divide="ignore", invalid="ignore"):
        shortest_s = bits / rates_bps
        longest_s = bits / rates_at_power_bps(rates_bps, c.transmit_power_min_w, c)
    limits_s = shortest_s, _cheapest_for_the_radio_s(bits, rates_bps, c), longest_s
    if c.step_frequencies_hz is None:
        return _best_continuous_s(bits, rates_bps, cycles, limits_s, c)
    upload_s = _best_with_steps_s(bits, rates_bps, cycles, limits_s, c)
    has_steps = np.isfinite(c.step_frequencies_hz[..., 0])
    if has_steps.all():
        return upload_s
    law = replace(c, energy_coefficient=np.where(has_steps, 1.0, c.energy_coefficient))  # any, where it is not used
    return np.where(has_steps, upload_s, _best_continuous_s(bits, rates_bps, cycles, limits_s, law))


def _best_with_steps_s(
    bits: Any, rates_bps: Any, cycles: Any, limits_s: tuple[Any, Any, Any], constants: Constants
) -> FloatArray:
    """The best upload time of devices with steps: each step leaves the radio a known time, and the best step wins.

    `limits_s` are the shortest upload, the one that is the cheapest for the radio, and the longest.
    """
    c = constants
    shortest_s, cheapest_s, longest_s = limits_s
    steps_hz, steps_j = c.step_frequencies_hz, c.step_energies_j
    assert steps_hz is not None
    assert steps_j is not None
    best_s, least_j = shortest_s, np.full_like(np.asarray(shortest_s, dtype=float), np.inf)
    for step in range(steps_hz.shape[-1]):
        latest_s = c.deadline_s * (1.0 - LATEST) - cycles / steps_hz[..., step]
        with np.errstate(invalid="ignore"):
            upload_s = np.clip(cheapest_s, shortest_s, np.minimum(longest_s, np.maximum(latest_s, shortest_s)))
            radio_w = c.power_per_radiated * needed_power_w(bits, upload_s, rates_bps, c) + c.circuit_power_w
            radio_j = radio_w * upload_s
            spent_j = radio_j + cycles * steps_j[..., step]
        better = (shortest_s <= latest_s) & (spent_j < least_j)
        best_s, least_j = np.where(better, upload_s, best_s), np.where(better, spent_j, least_j)
    return np.asarray(best_s)


def _best_continuous_s(
    bits: Any, rates_bps: Any, cycles: Any, limits_s: tuple[Any, Any, Any], constants: Constants
) -> FloatArray:
    """The best upload time of devices with any frequency between two limits; `limits_s` as above."""
    c = constants
    shortest_s, cheapest_s, longest_s = limits_s
    latest_s = c.deadline_s * (1.0 - LATEST) - cycles / c.frequency_max_hz
    end_s = np.maximum(np.minimum(longest_s, latest_s), shortest_s)
    # As long as the CPU has time enough at its lowest frequency, only the radio counts.
    relaxed_s = np.clip(c.deadline_s - cycles / c.frequency_min_hz, shortest_s, end_s)
    upload_s = np.clip(cheapest_s, shortest_s, relaxed_s)
    longer = np.isfinite(shortest_s) & (upload_s == relaxed_s) & (relaxed_s < end_s)
    if longer.any():

        def chosen(values: Any) -> Any:
            return np.broadcast_to(values, longer.shape)[longer]

        upload_s = np.broadcast_to(upload_s, longer.shape).copy()
        one_by_one = c
        if c.differ:
            given = {name: getattr(c, name) for name in PER_CLIENT if name not in STEPS}
            one_by_one = replace(c, **{name: chosen(values) for name, values in given.items()})
        upload_s[longer] = _cheapest_for_both_s(
            chosen(bits), chosen(rates_bps), chosen(cycles), chosen(relaxed_s), chosen(end_s), one_by_one
        )
    return np.asarray(upload_s)


def _cheapest_for_the_radio_s(bits: Any, rates_bps: Any, constants: Constants) -> Any:
    """Where (p(u) + circuit power)·u is least; infinite without circuit power. With y = ℓ·ln 2/(B·u), the slope is
    (e^y·(1 - y) - 1)/g + circuit power, and its zero is y = 1 + W((g·circuit power - 1)/e)."""
    c = constants
    if not np.any(c.circuit_power_w):
        return np.inf
    gain_per_w = signal_to_noise(rates_bps, c) / (c.power_per_radiated * c.transmit_power_w)
    exact = 1.0 + lambertw((gain_per_w * c.circuit_power_w - 1.0) / np.e).real
    rate = np.where(exact > 0.0, exact, 0.0)  # lambertw is NaN at its branch point, where there is no link
    with np.errstate(divide="ignore"):
        return np.where(np.asarray(c.circuit_power_w) > 0.0, bits * LN2 / (c.bandwidth_hz * rate), np.inf)


def _cheapest_for_both_s(bits: Any, rates_bps: Any, cycles: Any, start_s: Any, end_s: Any, constants: Constants) -> Any:
    """The zero of the slope between `start_s` and `end_s`, where a longer upload makes the CPU run faster.

    There the radio saves as much in a longer upload as the CPU and the circuits lose. Newton's method finds it for the
    logarithm of loss over saving, which is nearly straight, inside a bracket that shrinks with each step; a step out of
    the bracket halves it instead.
    """
    c = constants
    gain_per_w = signal_to_noise(rates_bps, c) / (c.power_per_radiated * c.transmit_power_w)
    nats_hz, cubes = bits * LN2 / c.bandwidth_hz, 2.0 * c.energy_coefficient * cycles**3

    def balance(upload_s: Any) -> tuple[Any, Any]:
        """log(loss/saving), which rises with the time, and its derivative."""
        rate, left_s = nats_hz / upload_s, c.deadline_s - upload_s
        grown, faster = np.exp(rate), cubes / left_s**3
        saving, loss = grown * (rate - 1.0) + 1.0, c.circuit_power_w + faster
        slope = 3.0 * faster / (left_s * loss) + rate * rate * grown / (upload_s * saving)
        return np.log(gain_per_w * loss / saving), slope

    low_s = np.where(balance(end_s)[0] <= 0.0, end_s, start_s)
    high_s = np.where(balance(start_s)[0] >= 0.0, start_s, end_s)
    upload_s = np.minimum(low_s, high_s)
    for _ in range(MOST_STEPS):
        value, slope = balance(upload_s)
        low_s, high_s = np.where(value < 0.0, upload_s, low_s), np.where(value < 0.0, high_s, upload_s)
        guess_s = upload_s - value / slope
        inside = (guess_s >= low_s) & (guess_s <= high_s)
        next_s = np.where(inside, guess_s, 0.5 * (low_s + high_s))
        if (np.abs(next_s - upload_s) <= PRECISION * upload_s).all():
            return next_s
        upload_s = next_s
    return upload_s
