"""Whose turn it is: compared with brute force, by hand, and over many rounds."""

import math
import statistics as plain
from dataclasses import replace

import numpy as np
import pytest

from qccf.control.scale_free import ScaleFreeProblem
from qccf.control.turns import most_participants, usable_pairs, whose_turn
from qccf.core.contracts import Observation
from support.problems import CONSTANTS, equal_statistics, random_links
from tests.helpers import brute


def as_problem(seen: Observation) -> ScaleFreeProblem:
    """The observation in the shape that the brute-force helpers take."""
    return ScaleFreeProblem(seen, CONSTANTS, 1.0, 0.0)


def pair_energy(problem: ScaleFreeProblem, client: int, channel: int, bits: int) -> float:
    """Joules with these bits; all that the client could spend where they do not fit; infinite for a useless link."""
    frequency = brute.slowest_frequency(problem, client, channel, bits)
    if frequency is not None:
        return brute.energy(problem, client, channel, bits, frequency)
    if brute.slowest_frequency(problem, client, channel, 1) is None:
        return math.inf
    c = problem.constants
    cycles = c.local_epochs * c.cycles_per_sample * float(problem.dataset_sizes[client])
    return c.energy_coefficient * cycles * c.frequency_max_hz**2 + c.transmit_power_w * c.deadline_s


def expected_turns(seen: Observation, bits: list[int], debts: list[float], share: float) -> tuple[float, set[int]]:
    """The least total of energy minus what debts are worth, and who takes part then.

    With a share, debts are worth 1.5 times as much until as many take part as are owed a turn; of more than that, those
    that are worth least beyond their energy sit out.
    """
    problem = as_problem(seen)
    clients, channels = seen.rates_bps.shape
    spent = [[pair_energy(problem, i, c, bits[i]) for c in range(channels)] for i in range(clients)]
    able = [i for i in range(clients) if min(spent[i]) < math.inf]
    typical = plain.median(min(spent[i]) for i in able)
    worth = [math.exp(debt) * typical for debt in debts]
    most = brute.most_participants(problem)
    feasible = list(brute.feasible_allocations(problem))

    def best(allocations: list[list[int]]) -> tuple[float, set[int]]:
        values = [sum(spent[i][c] - worth[i] for i, c in enumerate(one) if c >= 0) for one in allocations]
        found = allocations[values.index(min(values))]
        return min(values), {i for i, c in enumerate(found) if c >= 0}

    if share >= 1.0:
        return best([one for one in feasible if sum(c >= 0 for c in one) == most])
    owed = sum(share * most / len(able) + debts[i] for i in able)
    wanted = min(max(round(owed), 1), most)
    scale = sorted(min(spent[i]) / worth[i] for i in able)[wanted - 1] * (1.0 + 1e-9)
    worth = [scale * value for value in worth]
    while len(best(feasible)[1]) < wanted:
        worth = [1.5 * value for value in worth]
    values = [sum(spent[i][c] - worth[i] for i, c in enumerate(one) if c >= 0) for one in feasible]
    found = feasible[values.index(min(values))]
    ranked = sorted((spent[i][c] - worth[i], i) for i, c in enumerate(found) if c >= 0)
    return min(values), {i for _, i in ranked[:wanted]}


def least_energy(problem: ScaleFreeProblem, members: set[int], bits: list[int]) -> float:
    return min(
        sum(pair_energy(problem, i, c, bits[i]) for i, c in enumerate(one) if c >= 0)
        for one in brute.feasible_allocations(problem)
        if {i for i, c in enumerate(one) if c >= 0} == members
    )


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_the_cheapest_turns_that_debts_allow(share: float) -> None:
    rng = np.random.default_rng(61)
    compared = restricted = 0
    for _ in range(120):
        seen = random_links(rng, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        clients = seen.num_clients
        bits = rng.integers(1, 6, clients)
        debts = rng.normal(0.0, rng.choice([0.1, 1.5]), clients)
        turns = whose_turn(seen, CONSTANTS, bits, debts, share)
        on = turns.channels >= 0
        assert (turns.channels[~on] == -1).all()
        usable = usable_pairs(seen, CONSTANTS)
        if not usable.any():
            assert not on.any()
            assert (turns.owed == 0.0).all()
            continue
        _, members = expected_turns(seen, bits.tolist(), debts.tolist(), share)
        assert set(np.flatnonzero(on).tolist()) == members
        assert usable[on, turns.channels[on]].all()
        assert len(set(turns.channels[on].tolist())) == on.sum()
        problem, able = as_problem(seen), usable.any(axis=1)
        assert most_participants(usable) == brute.most_participants(problem)
        if share == 1.0:
            chosen = sum(pair_energy(problem, i, int(turns.channels[i]), int(bits[i])) for i in members)
            assert chosen == pytest.approx(least_energy(problem, members, bits.tolist()))
            restricted += on.sum() < min(able.sum(), seen.num_channels)
        np.testing.assert_allclose(turns.owed, np.where(able, share * most_participants(usable) / able.sum(), 0.0))
        compared += 1
    assert compared > 80
    assert share < 1.0 or restricted > 2, "in some rounds two clients must share their only channel"


def test_usable_pairs_and_most_participants_by_hand() -> None:
    """2,000 samples need 4 ms at 1 GHz; one bit and a sign for 246,590 parameters in 16 ms need 30.8 Mb/s."""
    seen = Observation(np.array([[30.9e6, 30.7e6], [40e6, 0.0], [1e6, 1e6]]), equal_statistics(2e3, 2e3, 2e3))
    usable = usable_pairs(seen, CONSTANTS)
    assert usable.tolist() == [[True, False], [True, False], [False, False]]
    assert most_participants(usable) == 1
    assert most_participants(np.array([[True, True], [True, False], [False, False]])) == 2
    assert most_participants(np.ones((3, 2), dtype=bool)) == 2
    assert most_participants(np.zeros((3, 2), dtype=bool)) == 0


def test_owed_turns_by_hand() -> None:
    """Three of four clients can upload, on two channels: two turns for three, or six tenths of that."""
    seen = Observation(np.array([[1e8, 1e8], [1e8, 1e8], [1e8, 1e8], [1e3, 1e3]]), equal_statistics(*[1e3] * 4))
    bits, debts = np.ones(4, dtype=np.int64), np.zeros(4)
    np.testing.assert_allclose(whose_turn(seen, CONSTANTS, bits, debts, 1.0).owed, [2 / 3, 2 / 3, 2 / 3, 0.0])
    np.testing.assert_allclose(whose_turn(seen, CONSTANTS, bits, debts, 0.6).owed, [0.4, 0.4, 0.4, 0.0])


def test_a_debt_of_one_turn_is_worth_e_times_the_energy() -> None:
    """Two clients, one channel, energies 1 : 2. At a debt difference of x the dearer one is worth e^x - 1 more."""
    c = replace(CONSTANTS, energy_coefficient=1e-32)
    seen = Observation(np.array([[2e8], [1e8]]), equal_statistics(1e3, 1e3))
    bits = np.ones(2, dtype=np.int64)
    for debt, first in ((0.0, True), (0.4, True), (0.6, False), (5.0, False)):
        turns = whose_turn(seen, c, bits, np.array([0.0, debt]), 1.0)
        # median of 1 and 2 is 1.5: 2 - 1.5·e^x < 1 - 1.5 from x = ln(5/3) = 0.51
        assert (turns.channels >= 0).tolist() == [first, not first]


def test_over_many_rounds_a_share_takes_part_and_everybody_in_turn() -> None:
    rng = np.random.default_rng(62)
    sizes = rng.uniform(500.0, 2000.0, 10)
    distance = rng.lognormal(0.0, 0.5, (10, 1))
    for share in (0.2, 0.5, 0.9, 1.0):
        debts, counts, members = np.zeros(10), np.zeros(10), []
        for _ in range(200):
            seen = Observation(1.2e8 * distance * rng.lognormal(0.0, 0.3, (10, 6)), equal_statistics(*sizes))
            turns = whose_turn(seen, CONSTANTS, np.full(10, 2), debts, share)
            on = turns.channels >= 0
            debts += turns.owed - on
            counts += on
            members.append(int(on.sum()))
        assert min(members) >= 1
        assert np.mean(members) == pytest.approx(6 * share, rel=0.05)
        assert counts.min() > 0.7 * counts.mean(), "nobody is left behind"
        assert counts.max() < 1.4 * counts.mean()


@pytest.mark.parametrize("factor", [1.0, 1e3, 1e6])
def test_with_a_share_of_one_every_channel_is_used_however_dear_a_client_is(factor: float) -> None:
    seen = Observation(np.full((3, 3), 1e8), equal_statistics(1e3, 1e3, 1e3))
    factors = np.array([1.0, 1.0, factor])
    turns = whose_turn(seen, CONSTANTS, np.ones(3, dtype=np.int64), np.zeros(3), 1.0, factors)
    assert sorted(turns.channels.tolist()) == [0, 1, 2]


def test_of_more_clients_than_wanted_those_worth_least_sit_out() -> None:
    """Each of four clients has its own channel, and half of the turns are two: those of the faster links."""
    seen = Observation(np.diag([1e8, 2e8, 3e8, 4e8]), equal_statistics(*[1e3] * 4))
    turns = whose_turn(seen, CONSTANTS, np.ones(4, dtype=np.int64), np.zeros(4), 0.5)
    assert turns.channels.tolist() == [-1, -1, 2, 3]
    later = whose_turn(seen, CONSTANTS, np.ones(4, dtype=np.int64), np.array([5.0, -5.0, 0.0, 0.0]), 0.5)
    assert later.channels[0] == 0, "whom a turn is owed"
    assert later.channels[1] == -1


def test_bits_that_do_not_fit_in_time_cost_all_that_a_client_could_spend() -> None:
    """Waking takes a joule; then 2e6 cycles at 1 GHz and 20 ms at 0.2 W are 24 mJ, more than what the other spends.

    Nine bits do not fit at 1e8 b/s. At 6e8 b/s they do.
    """
    constants = replace(CONSTANTS, wake_energy_j=1.0)
    for slow in (0, 1):
        rates_bps = np.full((2, 1), 6e8)
        rates_bps[slow] = 1e8
        seen = Observation(rates_bps, equal_statistics(1e3, 1e3))
        turns = whose_turn(seen, constants, np.full(2, 9), np.zeros(2), 1.0)
        assert turns.channels.tolist() == [-1 if client == slow else 0 for client in range(2)]
        for other, first in ((0.019, False), (0.029, True)):  # what the other spends beyond the joule, by its clock
            listed = np.full((2, 32), 1e6)
            listed[slow, 8] = 1e9
            statistics = replace(equal_statistics(1e3, 1e3), upload_bits=listed)
            lowest_hz = np.where(np.arange(2) == slow, 2e8, np.sqrt((other - 0.2 * 1e6 / 6e8) / 1e-26 / 2e6))
            own = replace(constants, frequency_min_hz=lowest_hz, frequency_max_hz=np.maximum(1e9, lowest_hz))
            turns = whose_turn(replace(seen, statistics=statistics), own, np.full(2, 9), np.zeros(2), 1.0)
            assert (turns.channels[slow] == 0) == first
