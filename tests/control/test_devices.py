"""Clients whose devices differ: every solver compared with brute force, and with devices that are all equal."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qccf.control import scale_free
from qccf.control.bits_closed_form import ClosedFormPairs
from qccf.control.bits_exact import ExactPairs, useful_levels
from qccf.control.channels_assignment import solve_assignment
from qccf.control.channels_exhaustive import solve_exhaustive
from qccf.control.problem import RoundProblem, objective
from qccf.control.scale_free import ScaleFreeProblem, serve
from qccf.control.solve import solve_round
from qccf.control.turns import usable_pairs, whose_turn
from qccf.core.contracts import PER_CLIENT, STEPS, Constants, Observation
from qccf.core.errors import ConfigError
from qccf.devices import cost
from support.problems import (
    CONSTANTS,
    equal_statistics,
    mixed_constants,
    random_links,
    random_problem,
    some_clients,
    typical_world,
)
from tests.control.test_channels import relative
from tests.helpers import brute


def mixed_problem(rng, clients, channels, *, steps):
    problem = random_problem(rng, clients, channels, below=0.2)
    return replace(problem, constants=mixed_constants(rng, clients, steps=steps, like=problem.constants))


def scalars_of(constants: Constants, client: int) -> Constants:
    """One client's constants as if all clients were like it."""
    own = {name: getattr(constants, name) for name in PER_CLIENT}
    own = {name: value[client] for name, value in own.items() if np.ndim(value)}
    if own.get(STEPS[0]) is not None and not np.isfinite(own[STEPS[0]]).any():
        own |= dict.fromkeys(STEPS)
    return replace(constants, **own)


@pytest.mark.parametrize("steps", [False, True])
def test_exhaustive_is_the_brute_force_optimum(steps):
    rng = np.random.default_rng(31)
    stepped = 0
    for _ in range(25):
        problem = mixed_problem(rng, int(rng.integers(1, 4)), int(rng.integers(1, 4)), steps=steps)
        stepped += problem.constants.step_frequencies_hz is not None
        found = objective(problem, solve_exhaustive(problem, ExactPairs(problem)))
        true = brute.optimum(problem, most_bits=9)
        assert relative(problem, found - true, true) <= 1e-9
    assert stepped >= 15 * steps


@pytest.mark.parametrize("steps", [False, True])
def test_certificate_holds(steps):
    rng = np.random.default_rng(32)
    for _ in range(60):
        problem = mixed_problem(rng, int(rng.integers(2, 7)), int(rng.integers(1, 6)), steps=steps)
        pairs = ExactPairs(problem)
        allocation, bound = solve_assignment(problem, pairs)
        best = objective(problem, solve_exhaustive(problem, pairs))
        assert relative(problem, objective(problem, allocation) - best, best) <= 1e-9
        assert relative(problem, bound - best, best) <= 1e-9


def test_closed_form_uses_each_clients_constants():
    """The closed form finds the integer that a search over all bits finds, as with equal devices."""
    rng = np.random.default_rng(33)
    same = pairs = 0
    for _ in range(60):
        problem = mixed_problem(rng, 5, 4, steps=False)
        if problem.quantization_pressure <= 0.0:
            continue
        total = float(problem.dataset_sizes.sum())
        rows, columns = np.repeat(np.arange(5), 4), np.tile(np.arange(4), 5)
        closed = ClosedFormPairs(problem)
        found = closed.bits(total, rows, columns)
        for i, c, q in zip(rows, columns, found, strict=True):
            best_q, _ = brute.best_bits(problem, int(i), int(c), total)
            same += q == best_q
            pairs += 1
        np.testing.assert_allclose(closed.costs(total)[rows, columns], closed.chosen_costs(total, rows, columns))
    assert same == pairs > 500


def test_closed_forms_refuse_steps():
    rng = np.random.default_rng(34)
    problem = mixed_problem(rng, 6, 4, steps=True)
    for inner in ("closed-form", "closed-form-taylor", "printed"):
        with pytest.raises(ConfigError, match="needs devices with a continuous frequency"):
            solve_round(problem, inner=inner)


@pytest.mark.parametrize("steps", [False, True])
def test_serving_given_clients_is_optimal(steps):
    rng = np.random.default_rng(35)
    served_sets = 0
    while served_sets < 25:
        count = int(rng.integers(1, 4))
        observation = random_links(rng, count, int(rng.integers(count, 5)), dead=0.1)
        constants = mixed_constants(rng, count, steps=steps)
        problem = ScaleFreeProblem(observation, constants, energy_price=100.0, error_price=1e-3)
        true = brute.scale_free_optimum(problem)
        if not np.isfinite(true):
            continue
        served_sets += 1
        decision = serve(problem)
        assert decision.certificate.objective == pytest.approx(true, rel=1e-9)
        assert decision.certificate.lower_bound <= decision.certificate.objective


@pytest.mark.parametrize("steps", [False, True])
def test_the_end_of_a_round_is_decided_where_resting_is_charged(steps):
    """Every end of a fine grid, each with the optimum by brute force, and what the settlement charges."""
    rng = np.random.default_rng(40)
    compared, earlier = 0, 0
    while compared < 12:
        count = int(rng.integers(1, 4))
        observation = random_links(rng, count, count, dead=0.0)
        constants = mixed_constants(rng, count, steps=steps, idle_power_w=float(10 ** rng.uniform(-2.0, 0.5)))
        problem = ScaleFreeProblem(observation, constants, energy_price=100.0, error_price=1e-3)
        if not np.isfinite(brute.scale_free_optimum(problem)):
            continue
        compared += 1
        rest_price = 100.0 * float(constants.idle_power_w.sum())
        true = min(
            brute.scale_free_optimum(replace(problem, constants=replace(constants, deadline_s=float(end_s))))
            + rest_price * end_s
            for end_s in np.linspace(0.0, constants.deadline_s, 151)[1:]
        )
        decision = serve(problem)
        certificate = decision.certificate
        assert certificate.objective <= true * (1.0 + 5e-3)
        assert certificate.lower_bound <= true * (1.0 + 1e-9)
        assert certificate.lower_bound >= certificate.objective * (1.0 - 5e-3) * (1.0 - 1e-9)
        settled = cost.settle(decision, observation, constants)
        assert settled.arrived.all()
        errors = problem.level_costs[np.arange(count), decision.num_bits - 1].sum() / problem.total**2
        assert certificate.objective == pytest.approx(100.0 * settled.energy_j.sum() + errors, rel=1e-9)
        earlier += settled.latency_s.max() < 0.9 * constants.deadline_s
    assert earlier > 3


def test_the_search_for_the_end_stops_where_it_cannot_save_half_a_percent(monkeypatch):
    """1,000 samples: 2e6 cycles and three bits cost millijoules in at most 20 ms, so 10 mW of rest are worth a try."""
    tried_s = []

    def recorded(problem, end_s):
        tried_s.append(end_s)
        return served_by(problem, end_s)

    served_by = scale_free._served_by
    monkeypatch.setattr(scale_free, "_served_by", recorded)
    seen = Observation(np.array([[1e8]]), equal_statistics(1e3, weight_range=0.5))
    for idle_power_w, least, most in ((1e-5, 1, 1), (1e-2, 2, 20)):
        constants = replace(CONSTANTS, idle_power_w=idle_power_w)
        certificate = serve(ScaleFreeProblem(seen, constants, energy_price=1000.0, error_price=3e-4)).certificate
        assert tried_s[0] == constants.deadline_s
        assert least <= len(tried_s) <= most
        assert certificate.lower_bound >= certificate.objective * (1.0 - scale_free.END_GAP)
        tried_s.clear()


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("adapt", [False, True])
def test_arrays_give_what_scalars_give_one_by_one(steps, adapt):
    """Energy, frequency and usability of each client are those in a federation of clients like it."""
    rng = np.random.default_rng(36)
    power = {"adapt_power": True, "bandwidth_hz": 1e7, "transmit_power_min_w": 1e-4} if adapt else {}
    for _ in range(10):
        observation = random_links(rng, 6, 4)
        mixed = replace(mixed_constants(rng, 6, steps=steps), **power)
        problem = RoundProblem(observation, mixed, 10.0, 1.0)
        rows, columns, bits = np.arange(6)[:, None, None], np.arange(4), np.arange(1, 9)[:, None]
        spent, usable = problem.energy_costs(bits, rows, columns), usable_pairs(observation, mixed)
        able = cost.able_clients(observation, mixed)
        for client in range(6):
            alone = replace(problem, constants=scalars_of(mixed, client))
            np.testing.assert_allclose(spent[client], alone.energy_costs(bits, rows, columns)[client], rtol=1e-9)
            assert (usable[client] == usable_pairs(observation, alone.constants)[client]).all()
            assert able[client] == cost.able_clients(observation, alone.constants)[client]


def test_levels_beyond_the_useful_ones_never_pay():
    rng = np.random.default_rng(37)
    for _ in range(60):
        problem = mixed_problem(rng, 4, 3, steps=True)
        if problem.quantization_pressure <= 0.0:
            continue
        levels = useful_levels(problem)
        for i in range(4):
            for c in range(3):
                assert brute.best_bits(problem, i, c, float(problem.dataset_sizes[i]))[0] <= levels[i]


def slow_energy_j(problem, client, channel, bits):
    """The least energy of one upload whose power is a decision: every step, and every time by narrowing an interval."""
    c = problem.constants
    rate_bps, payload = float(problem.rates_bps[client, channel]), brute.payload(problem, client, bits)
    cycles = c.local_epochs * brute.own(problem, "cycles_per_sample", client) * float(problem.dataset_sizes[client])
    full_w, circuit_w = brute.own(problem, "transmit_power_w", client), brute.own(problem, "circuit_power_w", client)
    low_w = brute.own(problem, "transmit_power_min_w", client)
    snr = 2.0 ** (rate_bps / c.bandwidth_hz) - 1.0
    shortest_s = payload / rate_bps
    longest_s = payload / (c.bandwidth_hz * math.log2(1.0 + snr * low_w / full_w))

    def radio_j(upload_s):
        return (full_w * (2.0 ** (payload / (c.bandwidth_hz * upload_s)) - 1.0) / snr + circuit_w) * upload_s

    def least_j(latest_s, computing_j):
        low, high = shortest_s, min(longest_s, latest_s)
        if low > high:
            return math.inf
        for _ in range(200):
            left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
            if radio_j(left) + computing_j(left) <= radio_j(right) + computing_j(right):
                high = right
            else:
                low = left
        return radio_j(low) + computing_j(low)

    steps = brute.own_steps(problem, client)
    if steps:
        return min(least_j(c.deadline_s - cycles / f, lambda _, e=e: cycles * e) for f, e in steps)
    alpha, lowest_hz = brute.own(problem, "energy_coefficient", client), brute.own(problem, "frequency_min_hz", client)
    end_s = c.deadline_s - cycles / brute.own(problem, "frequency_max_hz", client)
    return least_j(end_s, lambda u: alpha * cycles * max(lowest_hz, cycles / (c.deadline_s - u)) ** 2)


def test_power_of_a_thousand_clients_agrees_with_a_slow_version():
    """A thousand clients on a hundred channels, half of the devices with steps: 600 pairs are computed one by one."""
    rng = np.random.default_rng(39)
    scenario, world, statistics = typical_world(1000, 100)
    mixed = mixed_constants(rng, 1000, steps=True, like=scenario.constants())
    mixed = replace(mixed, adapt_power=True, transmit_power_min_w=1e-4)
    problem = ScaleFreeProblem(world.observe(0, statistics), mixed, energy_price=1.0, error_price=1.0)
    num_bits = rng.integers(1, 7, 1000)
    fast_j = problem.energy_costs(num_bits[:, None], np.arange(1000)[:, None], np.arange(100))
    met = {True: 0, False: 0}
    for client, channel in zip(rng.integers(0, 1000, 600), rng.integers(0, 100, 600), strict=True):
        slow_j = slow_energy_j(problem, client, channel, int(num_bits[client]))
        met[bool(brute.own_steps(problem, client))] += math.isfinite(slow_j)
        assert fast_j[client, channel] == pytest.approx(slow_j, rel=1e-9)
    assert min(met.values()) > 100


def test_equal_arrays_decide_as_scalars():
    """Arrays whose entries are all equal change no decision."""
    rng = np.random.default_rng(38)
    for _ in range(20):
        problem = random_problem(rng)
        count = len(problem.dataset_sizes)
        given = {name: np.full(count, getattr(CONSTANTS, name)) for name in PER_CLIENT if name not in STEPS}
        arrays = replace(problem, constants=replace(problem.constants, **given))
        for inner in ("exact", "closed-form", "printed"):
            one, other = solve_round(problem, inner=inner), solve_round(arrays, inner=inner)
            np.testing.assert_array_equal(one.channels, other.channels)
            np.testing.assert_array_equal(one.num_bits, other.num_bits)
            np.testing.assert_array_equal(one.frequencies_hz, other.frequencies_hz)
            assert one.certificate.objective == other.certificate.objective


def test_a_dearer_device_has_its_turn_later():
    """Of two clients with equal links and debts the one whose device takes less energy comes first."""
    observation = some_clients(random_links(np.random.default_rng(1), 2, 1, tables=False, dead=0.0), np.arange(2))
    observation = replace(observation, rates_bps=np.full((2, 1), 2e8))
    equal = np.full(2, 1000.0)
    observation = replace(observation, statistics=replace(observation.statistics, dataset_sizes=equal))
    for dear in (0, 1):
        alphas = np.full(2, 1e-26)
        alphas[dear] = 4e-26
        constants = replace(CONSTANTS, energy_coefficient=alphas)
        turns = whose_turn(observation, constants, np.array([4, 4]), np.zeros(2), 1.0)
        assert turns.channels.tolist() == [0 if client != dear else -1 for client in range(2)]
