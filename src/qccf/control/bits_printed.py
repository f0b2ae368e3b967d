"""P3.2 exactly as the paper prints it, including its errata, so that their effect can be shown.

Do not use it for decisions. If no printed case applies, or a printed solution violates the deadline or the frequency
range, the pair counts as unusable. This is how the errata cost energy.
"""

from typing import Any

import numpy as np

from qccf.control.bits_closed_form import LN2, ClosedFormPairs, Prices, Relaxed, Terms, marginal_gain, terms
from qccf.control.problem import Problem
from qccf.core.contracts import FloatArray

FIRST_BITS = 4.0
"""Start of the printed Taylor step for a client that has never participated; the paper gives none."""


def printed_optimum(problem: Problem, total: Any, rows: Any, columns: Any, *, last_bits: Any = np.nan) -> Relaxed:
    """The five printed cases in the printed order, without any check of the result.

    E3: Pre1 has neither the deadline's multiplier nor the limit f_max. E4: Pre3 and Pre4 compare X itself. E5: Case 2
    has no real value for A4 > 27/4. E2: Case 5 divides by the wrong derivative.
    """
    c = problem.constants.of(rows)
    t = terms(problem, total, rows, columns)
    slope, price, speed_price = Prices.of(problem, rows)
    with np.errstate(all="ignore"):
        first_hz = np.maximum(c.frequency_min_hz, t.cycle_bits / (t.slack_bits - slope))
        is_first = price - marginal_gain(1.0, t.gain) >= 0.0

        a4 = t.gain / price
        root = np.sqrt(0.25 - a4 / 27.0)
        second = np.log2(1.0 + np.cbrt(a4) * (np.cbrt(0.5 + root) + np.cbrt(0.5 - root)))
        is_second = (t.cycle_bits / c.frequency_min_hz + slope * second < t.slack_bits) & (second > 1.0)

        third = (t.slack_bits - t.cycle_bits / c.frequency_max_hz) / slope
        kappa = marginal_gain(third, t.gain)
        is_third = (kappa >= price) & (speed_price * c.frequency_max_hz**3 <= kappa) & (third > 1.0)

        fourth = (t.slack_bits - t.cycle_bits / c.frequency_min_hz) / slope
        kappa = marginal_gain(fourth, t.gain)
        is_fourth = (kappa >= price) & (speed_price * c.frequency_min_hz**3 >= kappa) & (fourth > 1.0)

        start = np.where(np.isnan(last_bits), FIRST_BITS, last_bits)
        fifth = _printed_taylor(start, t, slope, price, speed_price)
        fifth_hz = t.cycle_bits / (t.slack_bits - slope * fifth)
        is_fifth = (fifth_hz > c.frequency_min_hz) & (fifth_hz < c.frequency_max_hz) & (fifth > 1.0)
    conditions = [is_first, is_second, is_third, is_fourth, is_fifth]
    low_hz, high_hz = np.full_like(t.gain, c.frequency_min_hz), np.full_like(t.gain, c.frequency_max_hz)
    return Relaxed(
        np.select(conditions, [np.ones_like(t.gain), second, third, fourth, fifth], default=np.nan),
        np.select(conditions, [first_hz, low_hz, high_hz, low_hz, fifth_hz], default=np.nan),
        np.select(conditions, [1, 2, 3, 4, 5], default=0).astype(np.int64),
    )


def _printed_taylor(last: Any, t: Terms, slope: float, price: Any, speed_price: Any) -> Any:
    """The printed step of Case 5, with 2·2^(2q) + 1 in its denominator (E2)."""
    power = np.exp2(last)
    room = t.slack_bits - slope * last
    numerator = marginal_gain(last, t.gain) - speed_price * (t.cycle_bits / room) ** 3 - price
    denominator = t.gain * LN2 * power * (2.0 * power**2 + 1.0) / (power - 1.0) ** 4
    denominator = denominator + 3.0 * speed_price * slope * t.cycle_bits**3 / room**4
    return last + numerator / denominator


class PrintedPairs(ClosedFormPairs):
    """The printed form as a `PairModel`. A solution that violates a constraint makes its pair unusable."""

    def _relaxed(self, total: Any, rows: Any, columns: Any) -> FloatArray:
        return printed_optimum(self.problem, total, rows, columns, last_bits=self._last_of(rows)).num_bits
