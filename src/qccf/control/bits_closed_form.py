"""P3.2 solved by the paper's five cases, with its errata corrected, vectorised over client-channel pairs.

One more bit lowers the error term and raises the energy. In the paper's scaling (the derivative of J3 with respect to
q, times v/Z) gain and cost are equal at the optimum:

    X(q) = v·k·ln 2·2^q / (2^q - 1)³        gain of one more bit, k = 2·error/(S^k·Z)
    pV + κ1                                 its cost: pV for transmitting, κ1 for the tighter deadline

where κ1 = 2Vα·f³ if the deadline binds and f is strictly between its limits. The five cases differ in which bounds
of q and f are active.

Paper: Section V-C. Deviates: E2, E3, E4, E5, E7.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from qccf.control.problem import Problem
from qccf.core.contracts import MAX_NUM_BITS, FloatArray, IntArray

LN2 = float(np.log(2.0))
NEWTON_STEPS = 60
BITS_CAP = 2.0 * MAX_NUM_BITS
"""Upper limit for the number of bits that the deadline allows. It is never optimal and avoids overflow in 2^q."""

CaseFive = Literal["iterated", "taylor"]


class Terms(NamedTuple):
    """The quantities in which the five cases are written, one entry per pair.

    `gain` is A4·pV, the factor of 2^q/(2^q - 1)³ in X(q). `slack_bits` is v·T_max minus the payload's overhead.
    `cycle_bits` is v·τ_e·γ·D, the bits that the link could send while the CPU runs all cycles at 1 Hz.
    """

    gain: FloatArray
    slack_bits: FloatArray
    cycle_bits: FloatArray


class Prices(NamedTuple):
    """The cost of one more bit: `upload` is pV, `speed` is 2Vα, and κ1 = speed·f³."""

    slope_bits: float
    upload: Any
    speed: Any

    @classmethod
    def of(cls, problem: Problem, rows: Any) -> "Prices":
        c = problem.constants.of(rows)
        return cls(
            problem.slope_bits,
            c.upload_power_w * problem.energy_price,
            2.0 * problem.energy_price * c.energy_coefficient,
        )

    def of_speed(self, frequency_hz: Any) -> Any:
        """κ1 at a frequency strictly between the limits."""
        return self.speed * frequency_hz**3


class Relaxed(NamedTuple):
    """The optimum of the relaxed problem: real-valued bits, frequency, number of the case (0 = infeasible)."""

    num_bits: FloatArray
    frequencies_hz: FloatArray
    case: IntArray


def terms(problem: Problem, total: Any, rows: Any, columns: Any) -> Terms:
    """The terms of the pairs (rows, columns) when S = total."""
    rates_bps = problem.rates_bps[rows, columns]
    error = problem.error_costs[rows] / np.asarray(total, dtype=float) ** problem.weight_power
    return Terms(
        gain=2.0 * LN2 * rates_bps * error / problem.slope_bits,
        slack_bits=rates_bps * problem.constants.deadline_s - problem.overhead_bits,
        cycle_bits=rates_bps * problem.cycles[rows],
    )


def marginal_gain(num_bits: Any, gain: Any) -> Any:
    """X(q): the decrease of the error term per additional bit, times v/Z."""
    power = np.exp2(num_bits)
    return gain * power / (power - 1.0) ** 3


def marginal_gain_slope(num_bits: Any, gain: Any) -> Any:
    """dX/dq. Deviates: E2; the paper prints 2·2^(2q) + 1 for 2·2^q + 1."""
    power = np.exp2(num_bits)
    return -gain * LN2 * power * (2.0 * power + 1.0) / (power - 1.0) ** 4


def unconstrained_bits(gain: Any, price: Any) -> FloatArray:
    """Bits where the deadline does not bind (Case 2): x = 2^q - 1 is the positive root of x³ - A4·x - A4 = 0.

    For A4 ≥ 27/4 there are three real roots, and the trigonometric formula gives the largest. Below that there is one
    real root, given by Cardano's formula.

    Deviates: E5; for A4 > 27/4, that is q > 2, the printed formula takes the square root of a negative number.
    """
    a4 = np.maximum(np.asarray(gain, dtype=float) / price, 0.0)
    inner = 0.25 - a4 / 27.0
    root = np.sqrt(np.maximum(inner, 0.0))
    cardano = np.cbrt(a4) * (np.cbrt(0.5 + root) + np.cbrt(0.5 - root))
    with np.errstate(divide="ignore", invalid="ignore"):
        angle = np.arccos(np.clip(1.5 * np.sqrt(3.0 / a4), -1.0, 1.0)) / 3.0
    trigonometric = 2.0 * np.sqrt(a4 / 3.0) * np.cos(angle)
    return np.log2(1.0 + np.where(inner < 0.0, trigonometric, cardano))


def relaxed_optimum(
    problem: Problem, total: Any, rows: Any, columns: Any, *, case_five: CaseFive, last_bits: Any = np.nan
) -> Relaxed:
    """The relaxed optimum of each pair. The Taylor step of Case 5 starts at `last_bits`; NaN means no last bits."""
    c = problem.constants.of(rows)
    t = terms(problem, total, rows, columns)
    prices = Prices.of(problem, rows)
    bits_slow = np.minimum((t.slack_bits - t.cycle_bits / c.frequency_min_hz) / prices.slope_bits, BITS_CAP)
    bits_fast = np.minimum((t.slack_bits - t.cycle_bits / c.frequency_max_hz) / prices.slope_bits, BITS_CAP)
    feasible = bits_fast >= 1.0

    first_hz = np.maximum(c.frequency_min_hz, _frequency_at(1.0, t, prices))
    binds = feasible & (first_hz > c.frequency_min_hz)
    first_kappa = prices.of_speed(np.where(binds, first_hz, 0.0))
    is_first = feasible & (prices.upload + first_kappa >= marginal_gain(1.0, t.gain))
    rest = feasible & ~is_first

    free_bits = unconstrained_bits(t.gain, prices.upload)
    is_second = rest & (free_bits > 1.0) & (free_bits < bits_slow)

    safe_fast = np.maximum(bits_fast, 1.0)
    third_kappa = marginal_gain(safe_fast, t.gain) - prices.upload
    is_third = rest & (bits_fast > 1.0) & (third_kappa >= prices.of_speed(c.frequency_max_hz))

    safe_slow = np.maximum(bits_slow, 1.0)
    fourth_kappa = marginal_gain(safe_slow, t.gain) - prices.upload
    is_fourth = rest & ~is_second & (bits_slow > 1.0) & (fourth_kappa <= prices.of_speed(c.frequency_min_hz))

    is_fifth = rest & ~(is_second | is_third | is_fourth)
    fifth = np.ones_like(t.gain)
    if is_fifth.any():
        where = np.nonzero(is_fifth)
        inner = Terms(*(field[where] for field in t))
        start = np.broadcast_to(last_bits, t.gain.shape)[where]
        own = prices
        if c.differ:
            upload, speed = (np.broadcast_to(one, t.gain.shape)[where] for one in (prices.upload, prices.speed))
            own = Prices(prices.slope_bits, upload, speed)
        fifth[where] = _case_five(inner, safe_slow[where], safe_fast[where], own, case_five, start)

    cases = [is_first, is_second, is_third, is_fourth, is_fifth]
    bits = [np.ones_like(t.gain), free_bits, bits_fast, bits_slow, fifth]
    slow_hz, fast_hz = np.full_like(t.gain, c.frequency_min_hz), np.full_like(t.gain, c.frequency_max_hz)
    frequencies_hz = [first_hz, slow_hz, fast_hz, slow_hz, _frequency_at(fifth, t, prices)]
    return Relaxed(
        np.select(cases, bits, default=np.nan),
        np.select(cases, frequencies_hz, default=np.nan),
        np.select(cases, [1, 2, 3, 4, 5], default=0).astype(np.int64),
    )


def _frequency_at(num_bits: Any, t: Terms, prices: Prices) -> FloatArray:
    """The frequency that finishes exactly at the deadline; infinite where the upload alone takes too long."""
    room = t.slack_bits - prices.slope_bits * num_bits
    return np.where(room > 0.0, t.cycle_bits / np.where(room > 0.0, room, 1.0), np.inf)


def _case_five(
    t: Terms, low: FloatArray, high: FloatArray, prices: Prices, method: CaseFive, start: FloatArray
) -> FloatArray:
    """Bits where the deadline binds and f is strictly between its limits: the root of `_excess` in [low, high].

    Paper: one first-order step from the client's last bits. Here the step is kept in [low, high], because f leaves
    its range outside, and it starts in the middle for a client without last bits.
    """
    if method == "iterated":
        return _solve_case_five(t, low, high, prices)
    start = np.where(np.isnan(start), 0.5 * (low + high), start)
    start = np.clip(start, low, high)
    value, derivative = _excess(start, t, prices)
    return np.clip(start - value / derivative, low, high)


def _excess(num_bits: FloatArray, t: Terms, prices: Prices) -> tuple[FloatArray, FloatArray]:
    """X(q) - pV - 2Vα·f(q)³ and its derivative. It falls from positive to negative between the ends of Case 5."""
    room = t.slack_bits - prices.slope_bits * num_bits
    speed = prices.of_speed(t.cycle_bits / room)
    value = marginal_gain(num_bits, t.gain) - prices.upload - speed
    derivative = marginal_gain_slope(num_bits, t.gain) - 3.0 * prices.slope_bits * speed / room
    return value, derivative


def _solve_case_five(t: Terms, low: FloatArray, high: FloatArray, prices: Prices) -> FloatArray:
    """Newton's method until convergence. A step that leaves the shrinking bracket is replaced by a bisection."""
    guess = 0.5 * (low + high)
    for _ in range(NEWTON_STEPS):
        value, derivative = _excess(guess, t, prices)
        low = np.where(value > 0.0, guess, low)
        high = np.where(value > 0.0, high, guess)
        step = guess - value / derivative
        following = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        if np.all(np.abs(following - guess) <= 1e-12 * guess):
            return np.asarray(following)
        guess = following
    return guess


class ClosedFormPairs:
    """The closed form as a `PairModel`: the relaxed optimum, rounded to the cheaper neighbouring integer."""

    def __init__(self, problem: Problem, last_bits: IntArray | None = None, case_five: CaseFive = "iterated") -> None:
        self.problem = problem
        self.case_five = case_five
        self._last_bits = last_bits

    def _relaxed(self, total: Any, rows: Any, columns: Any) -> FloatArray:
        return relaxed_optimum(
            self.problem, total, rows, columns, case_five=self.case_five, last_bits=self._last_of(rows)
        ).num_bits

    def _last_of(self, rows: Any) -> Any:
        if self._last_bits is None:
            return np.nan
        return np.where(self._last_bits > 0, self._last_bits, np.nan)[rows]

    def costs(self, total: float, rows: Any = None) -> FloatArray:
        p = self.problem
        rows = np.arange(p.rates_bps.shape[0]) if rows is None else rows
        _, costs = self._rounded(total, rows[:, None], np.arange(p.rates_bps.shape[1]))
        return costs + (p.presence_costs[rows] + p.spread_costs[rows] / total**p.weight_power)[:, None]

    def chosen_costs(self, totals: Any, rows: IntArray, columns: IntArray) -> FloatArray:
        p = self.problem
        return (
            self._rounded(totals, rows, columns)[1]
            + p.presence_costs[rows]
            + p.spread_costs[rows] / totals**p.weight_power
        )

    def bits(self, total: float, rows: IntArray, columns: IntArray) -> IntArray:
        num_bits, costs = self._rounded(total, rows, columns)
        return np.where(np.isfinite(costs), num_bits, 0)

    def _rounded(self, total: Any, rows: Any, columns: Any) -> tuple[IntArray, FloatArray]:
        """The cheaper of the two integers next to the relaxed optimum that meets the deadline, and its cost."""
        p = self.problem
        relaxed = self._relaxed(total, rows, columns)
        defined = np.isfinite(relaxed)
        down = np.clip(np.floor(np.where(defined, relaxed, 1.0)), 1, MAX_NUM_BITS)
        up = np.clip(np.ceil(np.where(defined, relaxed, 1.0)), 1, MAX_NUM_BITS)

        def price(num_bits: FloatArray) -> FloatArray:
            error = p.error_costs[rows] / np.asarray(total, dtype=float) ** p.weight_power
            error = error / np.square(np.exp2(num_bits) - 1.0)
            return np.where(defined, error + p.energy_costs(num_bits, rows, columns), np.inf)

        cost_down, cost_up = price(down), price(up)
        better_up = cost_up < cost_down
        return np.where(better_up, up, down).astype(np.int64), np.where(better_up, cost_up, cost_down)
