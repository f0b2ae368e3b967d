"""The default form of a round's problem, compared with brute force."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qccf.control import scale_free
from qccf.control.bits_closed_form import ClosedFormPairs
from qccf.control.bits_exact import ExactPairs, useful_levels
from qccf.control.problem import Problem
from qccf.control.scale_free import ScaleFreeProblem, serve
from qccf.core.contracts import MAX_NUM_BITS, Decision, Observation
from qccf.core.errors import SolverError
from qccf.devices.cost import settle
from support.problems import CONSTANTS, coded_problem, equal_statistics, random_problem, random_scale_free_problem
from tests.helpers import brute


def cost(problem: ScaleFreeProblem, decision: Decision) -> float:
    """J of a decision."""
    return brute.scale_free_cost(problem, decision.channels.tolist(), decision.num_bits.tolist())


def test_everybody_is_served_at_the_least_cost() -> None:
    rng = np.random.default_rng(51)
    shapes = set()
    for _ in range(60):
        problem = random_scale_free_problem(rng, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        decision = serve(problem)
        best = brute.scale_free_optimum(problem)
        assert cost(problem, decision) == pytest.approx(best, rel=1e-9)
        assert decision.participates.all()
        certificate = decision.certificate
        assert certificate is not None
        assert certificate.objective == pytest.approx(best, rel=1e-9)
        assert 0.0 <= certificate.gap <= 1e-12 * best
        assert certificate.solver == "assignment/exact"
        assert certificate.wall_time_s > 0.0
        shapes.add(problem.rates_bps.shape)
    assert len(shapes) > 6


@pytest.mark.parametrize(("clients", "channels"), [(50, 20), (30, 5), (60, 90), (10_000, 10)])
def test_larger_rounds_satisfy_every_constraint_and_no_swap_is_better(clients: int, channels: int) -> None:
    rng = np.random.default_rng(54)
    for _ in range(3):
        problem = random_scale_free_problem(rng, clients, channels)
        decision = serve(problem)
        assert len(set(decision.channels.tolist())) == len(problem.dataset_sizes)
        for i in range(len(problem.dataset_sizes)):
            frequency = brute.slowest_frequency(problem, i, int(decision.channels[i]), int(decision.num_bits[i]))
            assert decision.frequencies_hz[i] == pytest.approx(frequency)
        costs = ExactPairs(problem).costs(problem.total)
        rows = np.arange(len(costs))
        here = costs[rows, decision.channels]
        swapped = costs[rows[:, None], decision.channels[None, :]]
        assert (here[:, None] + here[None, :] <= swapped + swapped.T + 1e-9 * here.sum()).all()
        unused = np.setdiff1d(np.arange(channels), decision.channels)
        assert (here[:, None] <= costs[:, unused] + 1e-9 * here.sum()).all()


def test_clients_that_cannot_all_be_served_are_refused() -> None:
    seen = Observation(np.array([[1e8, 0.0], [1e8, 0.0]]), equal_statistics(1e3, 1e3))
    with pytest.raises(SolverError, match="the 2 clients of this round cannot all be served at once"):
        serve(ScaleFreeProblem(seen, CONSTANTS, 1.0, 1.0))


def pair_cost(problem: Problem, client: int, channel: int, total: float) -> float:
    """The least cost of a pair over all 32 bits, straight from the terms of the problem."""
    shared = problem.presence_costs[client] + problem.spread_costs[client] / total
    values = []
    for bits in range(1, MAX_NUM_BITS + 1):
        frequency = brute.slowest_frequency(problem, client, channel, bits)
        if frequency is not None:
            spent = problem.energy_price * brute.energy(problem, client, channel, bits, frequency)
            values.append(shared + spent + problem.level_costs[client, bits - 1] / total**problem.weight_power)
    return min(values, default=math.inf)


@pytest.mark.parametrize("form", ["paper", "paper, listed sizes", "scale-free"])
def test_useful_levels_never_cut_the_optimum(form: str) -> None:
    """Every pair at the least S that it can have: there an upload's error counts most."""
    rng = np.random.default_rng(57)
    tight, largest = 0, 0
    for _ in range(60):
        problem: Problem = random_scale_free_problem(rng) if form == "scale-free" else random_problem(rng, below=0.3)
        if form == "paper, listed sizes":
            problem = coded_problem(problem, rng, listed=True)  # type: ignore[arg-type]
        sizes = problem.dataset_sizes
        pairs = ExactPairs(problem)
        for client in range(len(sizes)):
            total = float(sizes.sum() if form == "scale-free" else sizes[client])
            assert problem.least_totals[client] == total
            costs = pairs.costs(total, np.array([client]))[0]
            for channel in range(problem.rates_bps.shape[1]):
                best = pair_cost(problem, client, channel, total)
                assert costs[channel] == pytest.approx(best, rel=1e-9, abs=1e-9 * abs(problem.presence_costs[client]))
            bits = pairs.bits(total, np.full(len(costs), client), np.arange(len(costs)))
            tight += int((bits == useful_levels(problem)[client]).any())
            largest = max(largest, int(bits.max()))
    assert tight > 10, "the limit must be attained in some rounds"
    assert largest > 5


def test_closed_form_is_the_exact_optimum_without_tables() -> None:
    rng = np.random.default_rng(58)
    compared, distinct = 0, set()
    for _ in range(40):
        problem = random_scale_free_problem(rng, 12, 12, tables=False)
        total = float(problem.dataset_sizes.sum())
        rows, columns = (index.ravel() for index in np.indices(problem.rates_bps.shape))
        exact, closed = ExactPairs(problem), ClosedFormPairs(problem)
        bits = exact.bits(total, rows, columns)
        np.testing.assert_array_equal(closed.bits(total, rows, columns), bits)
        np.testing.assert_allclose(closed.costs(total), exact.costs(total), rtol=1e-9)
        compared += len(rows)
        distinct |= set(bits.tolist())
    assert compared > 3000
    assert len(distinct) > 8


def test_a_problem_of_one_client_by_hand() -> None:
    """1,000 samples: 2e6 cycles at 200 MHz take 10 ms and 0.8 mJ. At 1e8 b/s three bits take 9.86 ms and 1.97 mJ."""
    statistics = equal_statistics(1000.0, weight_range=0.5)
    problem = ScaleFreeProblem(Observation(np.array([[1e8]]), statistics), CONSTANTS, 1000.0, 3e-4)
    errors = 246_590 * 0.25 / 4 / (2.0 ** np.arange(1, 5) - 1) ** 2
    sent_j = 0.2 * (246_590 * np.arange(2, 6) + 32) / 1e8
    compute_j = np.array([0.8e-3] * 3 + [1e-26 * 2e6 * (2e6 / (0.02 - sent_j[3] / 0.2)) ** 2])
    by_hand = 1000.0 * (sent_j + compute_j) + 3e-4 * errors
    decision = serve(problem)
    assert decision.num_bits.tolist() == [1 + int(by_hand.argmin())] == [2]
    assert decision.certificate is not None
    assert cost(problem, decision) == pytest.approx(by_hand.min())
    assert decision.certificate.objective == pytest.approx(by_hand.min(), rel=1e-9)


def with_power(problem: ScaleFreeProblem, **changes: float) -> ScaleFreeProblem:
    """The same round with transmit power as a decision. Rates are those of channels of 10 MHz at full power."""
    free = {"adapt_power": True, "bandwidth_hz": 1e7, "transmit_power_min_w": 0.002, **changes}
    return replace(problem, constants=replace(problem.constants, **free))


def least_over_powers(problem: ScaleFreeProblem, powers_w: np.ndarray) -> float:
    """The least J with one of these powers for each client, by brute force: each power is a world of its own rates."""
    c, count = problem.constants, len(problem.dataset_sizes)
    table = np.full((count, problem.rates_bps.shape[1]), np.inf)
    for power_w in powers_w:
        rates_bps = 1e7 * np.log2(1.0 + (2.0 ** (problem.rates_bps / 1e7) - 1.0) * power_w / c.transmit_power_w)
        other = replace(
            problem,
            observation=replace(problem.observation, rates_bps=rates_bps),
            constants=replace(c, adapt_power=False, transmit_power_w=float(power_w)),
        )
        table = np.minimum(table, ExactPairs(other).costs(problem.total))
    orders = itertools.permutations(range(table.shape[1]), count)
    return min(float(table[range(count), list(order)].sum()) for order in orders)


@pytest.mark.parametrize("circuit_power_w", [0.0, 0.03])
def test_with_power_as_a_decision_everybody_is_served_at_the_least_cost(circuit_power_w: float) -> None:
    rng = np.random.default_rng(81)
    powers_w = np.geomspace(0.002, CONSTANTS.transmit_power_w, 400)
    saved = []
    for _ in range(8):
        plain = random_scale_free_problem(rng, 3, 3)
        problem = with_power(plain, circuit_power_w=circuit_power_w)
        decision = serve(problem)
        assert decision.certificate is not None
        assert decision.powers_w is not None
        best = least_over_powers(problem, powers_w)
        assert decision.certificate.objective <= best * (1.0 + 1e-9)
        assert decision.certificate.objective >= best * (1.0 - 1e-3), "the grid of powers is fine enough"
        assert decision.certificate.gap <= 1e-12 * best
        settled = settle(decision, problem.observation, problem.constants)
        assert settled.arrived.all(), "what is decided meets the deadline with its power"
        rows = np.arange(len(problem.dataset_sizes))
        costs_j = problem.energy_costs(decision.num_bits, rows, decision.channels) / problem.energy_price
        np.testing.assert_allclose(settled.energy_j, costs_j, rtol=1e-9)
        fixed = serve(replace(plain, constants=replace(plain.constants, circuit_power_w=circuit_power_w)))
        assert fixed.certificate is not None
        saved.append(1.0 - decision.certificate.objective / fixed.certificate.objective)
    assert min(saved) >= -1e-12
    assert max(saved) > 0.02


def test_useful_levels_with_power_as_a_decision_hold_every_optimum() -> None:
    rng = np.random.default_rng(82)
    for _ in range(10):
        problem = with_power(random_scale_free_problem(rng, 3, 3))
        rows = np.arange(len(problem.dataset_sizes))[:, None, None]
        levels = np.arange(1, MAX_NUM_BITS + 1)[:, None]
        table = problem.energy_costs(levels, rows, np.arange(3)) + (problem.level_costs[:, :, None] / problem.total**2)
        best = table.min(axis=1)
        np.testing.assert_allclose(ExactPairs(problem).costs(problem.total), best, rtol=1e-12)


@pytest.mark.parametrize("adapt", [False, True])
def test_a_slow_channel_more_takes_no_useful_level_away(adapt: bool) -> None:
    """Of 1e8 b/s some bits are worth their energy, of 1e5 b/s none is."""
    statistics = equal_statistics(1000.0, weight_range=0.5)
    found = []
    for rates_bps in ([1e8], [1e5], [1e8, 1e5]):
        problem = ScaleFreeProblem(Observation(np.array([rates_bps]), statistics), CONSTANTS, 1000.0, 3e-4)
        found.append(useful_levels(with_power(problem) if adapt else problem).tolist())
    assert found[0] > found[1] == [1]
    assert found[2] == found[0]


@pytest.mark.parametrize(
    ("energy_price", "levels"),
    [(1e9, 1), (1000.0, 2), (500.0, 3), (100.0, 4), (1e-9, 7)],
)
def test_useful_levels_by_hand(energy_price: float, levels: int) -> None:
    """At 1e8 b/s a bit costs 0.493 mJ, and 4.62/(2^q - 1)² is the error: 4.11, 0.419, 0.074, 0.016 for each bit more.

    Seven bits and a sign take 19.7 ms, and the deadline is 20 ms.
    """
    seen = Observation(np.array([[1e8]]), equal_statistics(1000.0))
    assert useful_levels(ScaleFreeProblem(seen, CONSTANTS, energy_price, 3e-4)).tolist() == [levels]


def test_a_level_that_neither_costs_nor_helps_is_not_useful() -> None:
    """The second and third level of these lists cost nothing; the second does not help either, the third does."""
    sizes, errors = np.full((1, MAX_NUM_BITS), 1e6), np.full((1, MAX_NUM_BITS), 4.0)
    statistics = replace(equal_statistics(1000.0), upload_bits=sizes, upload_errors=errors)
    seen = Observation(np.array([[1e8]]), statistics)
    assert useful_levels(ScaleFreeProblem(seen, CONSTANTS, 1.0, 1.0)).tolist() == [1]
    errors[:, 2:] = 3.0
    assert useful_levels(ScaleFreeProblem(seen, CONSTANTS, 1.0, 1.0)).tolist() == [3]


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("idle_power_w", [0.01, 0.3, 1.0, 4.0])
def test_the_best_end_of_a_round_by_hand(
    idle_power_w: float, clients: int, unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal clients that send one bit: computing 2e6 cycles in t costs α·C³/t², resting P·t, least at t³ = 2α·C³/P.

    4.93 ms of sending at 1e8 b/s come on top, and t lies between 2 ms at the highest and 10 ms at the lowest frequency.
    The search ends by itself, before as many ends have been tried as it may try.
    """
    tried_s = []

    def recorded(problem: ScaleFreeProblem, end_s: float) -> Any:
        tried_s.append(end_s)
        return served_by(problem, end_s)

    served_by = scale_free._served_by
    monkeypatch.setattr(scale_free, "_served_by", recorded)
    seen = Observation(np.full((clients, clients), 1e8), equal_statistics(*[1000.0] * clients))
    constants = replace(CONSTANTS, idle_power_w=idle_power_w)
    decision = serve(ScaleFreeProblem(seen, constants, energy_price=unit, error_price=0.0))
    sending_s = (2 * 246_590 + 32) / 1e8
    computing_s = min(max((2 * 1e-26 * 2e6**3 / idle_power_w) ** (1 / 3), 2e-3), 10e-3)
    each_j = 1e-26 * 2e6**3 / computing_s**2 + 0.2 * sending_s + idle_power_w * (computing_s + sending_s)
    least = unit * clients * each_j
    certificate = decision.certificate
    assert certificate is not None
    assert certificate.solver == "assignment/ends"
    assert least * (1 - 1e-9) <= certificate.objective <= least * (1 + 5e-3)
    assert certificate.objective * (1 - 5e-3) <= certificate.lower_bound <= least * (1 + 1e-9)
    assert 1 < len(tried_s) < 36
    ends_s = 2e6 / decision.frequencies_hz + sending_s
    assert ends_s == pytest.approx([computing_s + sending_s] * clients, rel=0.1)


def test_the_time_of_a_decision_is_from_its_start_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_free, "perf_counter", iter([5.0, 7.5]).__next__)
    certificate = serve(random_scale_free_problem(np.random.default_rng(0), 2, 2)).certificate
    assert certificate is not None
    assert certificate.wall_time_s == 2.5
    assert certificate.solver == "assignment/exact", "where rest costs nothing"


def test_everybody_rests_until_the_last_upload_has_ended() -> None:
    """The objective is what the settlement charges and the error, for clients with very different links."""
    rng = np.random.default_rng(59)
    for _ in range(8):
        seen = Observation(10 ** rng.uniform(7.7, 9.0, (3, 3)), equal_statistics(500.0, 1000.0, 2000.0))
        constants = replace(CONSTANTS, idle_power_w=np.array([0.1, 0.5, 1.0]))
        problem = ScaleFreeProblem(seen, constants, energy_price=100.0, error_price=1e-3)
        decision = serve(problem)
        assert decision.certificate is not None
        errors = problem.level_costs[np.arange(3), decision.num_bits - 1].sum() / problem.total**2
        settled = settle(decision, seen, constants)
        expected = 100.0 * settled.energy_j.sum() + errors
        assert decision.certificate.objective == pytest.approx(expected, rel=1e-9)
