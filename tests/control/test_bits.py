"""Bits and frequency of one pair, compared with brute force, SciPy and the KKT conditions of each case."""

from dataclasses import replace
from math import cbrt, log, log2, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from qccf.control import bits_closed_form
from qccf.control.bits_closed_form import (
    ClosedFormPairs,
    Prices,
    marginal_gain,
    marginal_gain_slope,
    relaxed_optimum,
    terms,
    unconstrained_bits,
)
from qccf.control.bits_exact import ExactPairs
from qccf.control.bits_printed import PrintedPairs, printed_optimum
from qccf.control.problem import RoundProblem
from qccf.core.contracts import Observation
from support.problems import CONSTANTS, coded_problem, equal_statistics, random_problem
from tests.helpers import brute


def all_pairs(problem: RoundProblem) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.indices(problem.rates_bps.shape)
    return rows.ravel(), columns.ravel()


def some_total(problem: RoundProblem, rng: np.random.Generator) -> float:
    """A possible S of a round in which the largest client participates."""
    taken = int(rng.integers(1, len(problem.dataset_sizes) + 1))
    return float(max(problem.dataset_sizes[:taken].sum(), problem.dataset_sizes.max()))


@pytest.mark.parametrize("codec", ["the paper's", "affine", "listed"])
def test_exact_is_brute_force(codec: str) -> None:
    rng = np.random.default_rng(21)
    for _ in range(15):
        problem = random_problem(rng, below=0.3)
        if codec != "the paper's":
            problem = coded_problem(problem, rng, listed=codec == "listed")
        total = some_total(problem, rng)
        pairs = ExactPairs(problem)
        rows, columns = all_pairs(problem)
        bits, costs = pairs.bits(total, rows, columns), pairs.costs(total)
        shared = problem.presence_costs + problem.spread_costs / total
        for i, c, q in zip(rows, columns, bits, strict=True):
            best_q, best_value = brute.best_bits(problem, i, c, total)
            assert q == best_q
            assert costs[i, c] - shared[i] == pytest.approx(best_value, rel=1e-9) or best_q == 0
            assert np.isinf(costs[i, c]) == (best_q == 0)
        np.testing.assert_allclose(pairs.chosen_costs(total, rows, columns), costs.ravel(), rtol=1e-12)


def test_closed_form_is_the_exact_optimum_on_100_000_pairs() -> None:
    rng = np.random.default_rng(22)
    seen = np.zeros(6, dtype=int)
    compared = 0
    while compared < 100_000:
        problem = random_problem(rng, num_clients=20, num_channels=20)
        if compared % 800 == 0:  # use another codec in every second round
            problem = coded_problem(problem, rng, listed=False)
        total = some_total(problem, rng)
        rows, columns = all_pairs(problem)
        exact, closed = ExactPairs(problem), ClosedFormPairs(problem)
        np.testing.assert_array_equal(closed.bits(total, rows, columns), exact.bits(total, rows, columns))
        np.testing.assert_allclose(closed.costs(total), exact.costs(total), rtol=1e-9)
        seen += np.bincount(relaxed_optimum(problem, total, rows, columns, case_five="iterated").case, minlength=6)
        compared += len(rows)
    assert (seen > 500).all(), f"all five cases and infeasible pairs must occur: {seen}"


def test_relaxed_optimum_is_scipys() -> None:
    """Minimise J3(q, S(q)) over real q with a bounded scalar search, independently of the cases."""
    rng = np.random.default_rng(23)
    checked = 0
    for _ in range(12):
        problem = random_problem(rng, num_clients=6, num_channels=6, below=0.0)
        total = some_total(problem, rng)
        rows, columns = all_pairs(problem)
        relaxed = relaxed_optimum(problem, total, rows, columns, case_five="iterated")
        t = terms(problem, total, rows, columns)
        top = (t.slack_bits - t.cycle_bits / problem.constants.frequency_max_hz) / problem.slope_bits
        for k in np.flatnonzero(relaxed.case > 0):
            i, c = rows[k : k + 1], columns[k : k + 1]

            def value(q: float, i=i, c=c, total=total, problem=problem) -> float:
                error = problem.error_costs[i] / total / (2.0**q - 1.0) ** 2
                return float((error + problem.energy_costs(q, i, c))[0])

            if top[k] <= 1.0 + 1e-6:
                continue
            found = minimize_scalar(
                value, bounds=(1.0, top[k] * (1 - 1e-12)), method="bounded", options={"xatol": 1e-10}
            )
            assert value(min(relaxed.num_bits[k], top[k] * (1 - 1e-12))) <= found.fun * (1 + 1e-7)
            checked += 1
    assert checked > 200


@pytest.mark.parametrize("case", [1, 2, 3, 4, 5])
def test_kkt_conditions(case: int) -> None:
    """Feasibility, dual sign, complementarity and stationarity, separately. Paper: the KKT conditions of P3.2''."""
    rng = np.random.default_rng(24)
    tested = 0
    while tested < 200:
        problem = random_problem(rng, num_clients=10, num_channels=10, below=0.0)
        total = some_total(problem, rng)
        rows, columns = all_pairs(problem)
        relaxed = relaxed_optimum(problem, total, rows, columns, case_five="iterated")
        chosen = relaxed.case == case
        if not chosen.any():
            continue
        c, prices = problem.constants, Prices.of(problem, rows)
        t = terms(problem, total, rows[chosen], columns[chosen])
        q, f = relaxed.num_bits[chosen], relaxed.frequencies_hz[chosen]
        slack = (t.slack_bits - problem.slope_bits * q - t.cycle_bits / f) / t.slack_bits

        assert (slack >= -1e-9).all()
        assert (q >= 1.0).all()
        assert (f >= c.frequency_min_hz).all()
        assert (f <= c.frequency_max_hz * (1 + 1e-9)).all()

        # Multipliers from stationarity in f: 2Vα·f³ = κ1 between the limits of f; κ2 and κ3 are the rest at the limits.
        gain = marginal_gain(q, t.gain)
        kappa_1 = np.where(slack > 1e-9, 0.0, prices.of_speed(f)) if case in (1, 5) else gain - prices.upload
        kappa_1 = np.zeros_like(q) if case == 2 else kappa_1
        kappa_4 = prices.upload + kappa_1 - gain if case == 1 else np.zeros_like(q)
        scale = prices.upload + prices.of_speed(f)
        assert (kappa_1 >= -1e-9 * scale).all()
        assert (kappa_4 >= -1e-9 * scale).all()
        assert (np.abs(kappa_1 * slack) <= 1e-6 * scale).all()
        assert (np.abs(prices.upload + kappa_1 - kappa_4 - gain) <= 1e-6 * np.maximum(scale, gain)).all()
        excess = prices.of_speed(f) - kappa_1
        if case == 3:
            assert (excess <= 1e-9 * scale).all(), "κ3 must not be negative"
        elif case in (2, 4):
            assert (excess >= -1e-9 * scale).all(), "κ2 must not be negative"
        tested += int(chosen.sum())


def test_unconstrained_bits_solve_the_cubic_on_both_sides_of_27_over_4() -> None:
    a4 = np.geomspace(2.01, 1e12, 4000)
    x = 2.0 ** unconstrained_bits(a4, 1.0) - 1.0
    np.testing.assert_allclose(x**3, a4 * (x + 1.0), rtol=1e-9)
    assert (a4 < 27 / 4).any()


def test_marginal_gain_slope_is_the_derivative() -> None:
    q = np.linspace(1.1, 14.0, 60)
    step = 1e-6
    numeric = (marginal_gain(q + step, 3.0) - marginal_gain(q - step, 3.0)) / (2 * step)
    np.testing.assert_allclose(marginal_gain_slope(q, 3.0), numeric, rtol=1e-6)


def test_taylor_step_from_the_optimum_stays_there() -> None:
    rng = np.random.default_rng(25)
    moved = 0
    for _ in range(20):
        problem = random_problem(rng, num_clients=10, num_channels=10, below=0.0)
        total = some_total(problem, rng)
        rows, columns = all_pairs(problem)
        iterated = relaxed_optimum(problem, total, rows, columns, case_five="iterated")
        fifth = iterated.case == 5
        step = relaxed_optimum(problem, total, rows, columns, case_five="taylor", last_bits=iterated.num_bits)
        np.testing.assert_allclose(step.num_bits[fifth], iterated.num_bits[fifth], rtol=1e-6)
        near = relaxed_optimum(problem, total, rows, columns, case_five="taylor", last_bits=iterated.num_bits * 1.02)
        error = np.abs(near.num_bits - iterated.num_bits)[fifth]
        assert (error <= 0.02 * iterated.num_bits[fifth]).all(), "a step must not move away from the optimum"
        t, c, slope = terms(problem, total, rows, columns), problem.constants, problem.slope_bits
        ends = [(t.slack_bits - t.cycle_bits / hertz) / slope for hertz in (c.frequency_min_hz, c.frequency_max_hz)]
        middle = np.mean(np.maximum(ends, 1.0), axis=0)
        first, there = (
            relaxed_optimum(problem, total, rows, columns, case_five="taylor", last_bits=last).num_bits[fifth]
            for last in (np.nan, middle)
        )
        np.testing.assert_allclose(first, there, rtol=1e-12, err_msg="without last bits a step starts in the middle")
        moved += int(fifth.sum())
    assert moved > 100


def as_printed(
    gain: float,
    slack: float,
    cycles: float,
    slope: float,
    upload: float,
    speed: float,
    low_hz: float,
    high_hz: float,
    last: float,
) -> tuple[int, float, float]:
    """Case, bits and frequency of one pair: the printed conditions, one after the other. Paper: Pre1 to Pre5."""

    def gain_of_a_bit(q: float) -> float:
        return gain * 2.0**q / (2.0**q - 1.0) ** 3

    if upload >= gain_of_a_bit(1.0):
        return 1, 1.0, max(low_hz, cycles / (slack - slope))
    a4 = gain / upload
    if a4 <= 27.0 / 4.0:
        root = sqrt(1.0 / 4.0 - a4 / 27.0)
        bits = log2(1.0 + cbrt(a4) * (cbrt(1.0 / 2.0 + root) + cbrt(1.0 / 2.0 - root)))
        if bits > 1.0 and cycles / low_hz + slope * bits < slack:
            return 2, bits, low_hz
    bits = (slack - cycles / high_hz) / slope
    if bits > 1.0 and gain_of_a_bit(bits) >= max(upload, speed * high_hz**3):
        return 3, bits, high_hz
    bits = (slack - cycles / low_hz) / slope
    if bits > 1.0 and upload <= gain_of_a_bit(bits) <= speed * low_hz**3:
        return 4, bits, low_hz
    power, room = 2.0**last, slack - slope * last
    excess = gain_of_a_bit(last) - speed * (cycles / room) ** 3 - upload
    fall = log(2.0) * gain * power * (2.0 * power * power + 1.0) / (power - 1.0) ** 4
    bits = last + excess / (fall + 3.0 * speed * slope * cycles**3 / room**4)
    hertz = cycles / (slack - slope * bits)
    return (5, bits, hertz) if bits > 1.0 and low_hz < hertz < high_hz else (0, np.nan, np.nan)


@pytest.mark.parametrize("started", [False, True])
def test_the_printed_form_is_what_the_paper_prints(started: bool) -> None:
    """A client without last bits starts its Taylor step at four."""
    rng = np.random.default_rng(26)
    seen = np.zeros(6, dtype=int)
    for _ in range(40):
        problem = random_problem(rng, num_clients=6, num_channels=6, below=0.05)
        if rng.random() < 0.5:  # Case 4 needs a CPU that takes much power also at its lowest frequency
            least_hz = 0.7 * problem.constants.frequency_max_hz
            problem = replace(problem, constants=replace(problem.constants, frequency_min_hz=least_hz))
        rows, columns = all_pairs(problem)
        worth = terms(problem, 1.0, rows, columns).gain / Prices.of(problem, rows).upload
        total = float(np.median(worth) / rng.choice([1.0, 4.0, 1e3]))  # below 2 Case 1, above 27/4 no printed Case 2
        last = rng.uniform(1.5, 8.0, len(rows)) if started else np.full(len(rows), np.nan)
        printed = printed_optimum(problem, total, rows, columns, last_bits=last)
        t, prices, c = terms(problem, total, rows, columns), Prices.of(problem, rows), problem.constants
        for k, start in enumerate(last if started else np.full(len(rows), 4.0)):
            pair = (float(t.gain[k]), float(t.slack_bits[k]), float(t.cycle_bits[k]))
            limits = (c.frequency_min_hz, c.frequency_max_hz)
            case, bits, hertz = as_printed(*pair, *prices, *limits, float(start))
            assert printed.case[k] == case
            assert printed.num_bits[k] == pytest.approx(bits, rel=1e-9, nan_ok=True)
            assert printed.frequencies_hz[k] == pytest.approx(hertz, rel=1e-9, nan_ok=True)
            seen[case] += 1
    assert (seen > 10).all(), f"all cases must occur: {seen}"


def exact_pair(**changes: float) -> RoundProblem:
    """One pair whose deadline leaves exactly 6 bits at the highest and 3 at the lowest frequency: all powers of 2.

    2^21 bits fit in the deadline, of which 2^18 are overhead, and 2^18 or 2^20 pass while the client trains.
    """
    constants = replace(
        CONSTANTS,
        deadline_s=2.0**-6,
        cycles_per_sample=2.0**10,
        frequency_min_hz=2.0**28,
        frequency_max_hz=2.0**30,
        bits_per_index=2.0**18,
        overhead_bits=2.0**18,
        energy_weight=1.0,
    )
    seen = Observation(np.array([[2.0**27]]), equal_statistics(2.0**10))
    return RoundProblem(seen, replace(constants, **changes), 1.0, 1.0)


ONE = np.zeros(1, dtype=np.int64)


def gain_of_a_bit(problem: RoundProblem, num_bits: float) -> float:
    return float(marginal_gain(num_bits, terms(problem, 1024.0, ONE, ONE).gain)[0])


def test_a_second_bit_that_is_worth_exactly_its_price_is_not_sent() -> None:
    price = gain_of_a_bit(exact_pair(), 1.0)
    for factor, case in ((1.0, 1), (1.0 - 1e-9, 2)):
        problem = exact_pair(transmit_power_w=factor * price)
        relaxed = relaxed_optimum(problem, 1024.0, ONE, ONE, case_five="iterated")
        assert (relaxed.case[0], relaxed.frequencies_hz[0]) == (case, 2.0**28)
        assert relaxed.num_bits[0] == pytest.approx(1.0, abs=1e-6)
        assert printed_optimum(problem, 1024.0, ONE, ONE).case[0] == case


def test_one_bit_that_just_fits_into_the_deadline_is_sent() -> None:
    """Five bits more of overhead leave one at the highest frequency."""
    for overhead_bits, bits in ((6.0 * 2.0**18, 1), (6.0 * 2.0**18 + 1.0, 0)):
        problem = exact_pair(overhead_bits=overhead_bits)
        assert ClosedFormPairs(problem).bits(1024.0, ONE, ONE).tolist() == [bits]
        assert ExactPairs(problem).bits(1024.0, ONE, ONE).tolist() == [bits]
        relaxed = relaxed_optimum(problem, 1024.0, ONE, ONE, case_five="iterated")
        assert relaxed.frequencies_hz.tolist() == ([2.0**30] if bits else pytest.approx([np.nan], nan_ok=True))


@pytest.mark.parametrize(("case", "bits", "hertz"), [(3, 6.0, 2.0**30), (4, 3.0, 2.0**28)])
def test_at_the_border_of_a_printed_case_it_applies(case: int, bits: float, hertz: float) -> None:
    """The price of speed, 2α·f³, is exactly what the last bit is worth; then the price of sending is."""
    worth = gain_of_a_bit(exact_pair(), bits)
    speed = exact_pair(transmit_power_w=worth / 8.0, energy_coefficient=worth / 2.0 / hertz**3)
    sending = exact_pair(transmit_power_w=worth, energy_coefficient=1e-40 if case == 3 else 1e-20)
    for problem in (speed, sending):
        found = printed_optimum(problem, 1024.0, ONE, ONE)
        assert (found.case[0], found.num_bits[0], found.frequencies_hz[0]) == (case, bits, hertz)


def test_case_five_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's method doubles the digits with a step; bisection alone would take about 40."""
    steps = 0

    def counted(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        return excess(*arguments)

    excess = bits_closed_form._excess
    monkeypatch.setattr(bits_closed_form, "_excess", counted)
    rng = np.random.default_rng(27)
    most = []
    for _ in range(40):
        problem = random_problem(rng, num_clients=5, num_channels=5, below=0.0)
        steps = 0
        relaxed_optimum(problem, some_total(problem, rng), *all_pairs(problem), case_five="iterated")
        most.append(steps)
    assert 3 < max(most) < 20


def test_the_last_bits_of_a_client_are_the_start_of_its_step_if_it_has_any() -> None:
    problem = random_problem(np.random.default_rng(28), num_clients=3, num_channels=2)
    rows = np.array([2, 1, 0, 0])
    for pairs in (ClosedFormPairs, PrintedPairs):
        np.testing.assert_array_equal(pairs(problem, np.array([0, 1, 3]))._last_of(rows), [3.0, 1.0, np.nan, np.nan])
        assert np.isnan(pairs(problem)._last_of(rows))


def test_a_taylor_step_starts_and_ends_in_its_interval() -> None:
    """From below it starts at 3 bits, from above at 6, the bits at the lowest and the highest frequency."""
    worth = gain_of_a_bit(exact_pair(), 4.0)
    problem = exact_pair(transmit_power_w=worth / 4.0, energy_coefficient=worth / 2.0 / 2.0**86)
    best = relaxed_optimum(problem, 1024.0, ONE, ONE, case_five="iterated")
    assert best.case.tolist() == [5]
    for last, start in ((1.0, 3.0), (2.999, 3.0), (6.001, 6.0), (32.0, 6.0)):
        found, there = (
            relaxed_optimum(problem, 1024.0, ONE, ONE, case_five="taylor", last_bits=bits).num_bits[0]
            for bits in (last, start)
        )
        assert found == there
        assert 3.0 <= found <= 6.0


def test_the_least_energy_of_a_client_is_one_bit_on_its_best_channel() -> None:
    rng = np.random.default_rng(29)
    able = 0
    for _ in range(10):
        problem = random_problem(rng, num_clients=4, num_channels=3)
        problem.rates_bps[0] = 1e3
        pairs = ExactPairs(problem)
        for client, (found, feasible) in enumerate(zip(pairs.cheapest_energy(), pairs.feasible(), strict=True)):
            clocks = [brute.slowest_frequency(problem, client, channel, 1) for channel in range(3)]
            spent = [brute.energy(problem, client, c, 1, f) for c, f in enumerate(clocks) if f is not None]
            assert feasible.tolist() == [clock is not None for clock in clocks]
            assert found == pytest.approx(problem.constants.energy_weight * min(spent, default=np.inf))
            able += len(spent) > 1
        assert not pairs.feasible()[0].any()
    assert able > 10


def test_the_excess_of_case_five_has_its_derivative() -> None:
    problem = exact_pair()
    t, prices = terms(problem, 1024.0, ONE, ONE), Prices.of(problem, ONE)
    for bits in (1.5, 3.0, 5.9):
        _, derivative = bits_closed_form._excess(np.array([bits]), t, prices)
        low, high = (bits_closed_form._excess(np.array([bits + step]), t, prices)[0] for step in (-1e-6, 1e-6))
        assert derivative == pytest.approx((high - low) / 2e-6, rel=1e-4)
