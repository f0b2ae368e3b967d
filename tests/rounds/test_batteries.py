"""Batteries: a client stops when its own is empty, spends no more than it holds, and a run resumes exactly."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.core.contracts import Decision, Observation
from qccf.devices.batteries import charges, energy_factors, left_j, settled_within
from qccf.devices.cost import settle
from qccf.reports.figures.builders import cell_map
from qccf.rounds import checkpoint
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import first_state, run_round
from qccf.rounds.sources import statistics_source
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan, plan_to_json, planned_rules
from qccf.settings.loading import load_scenario
from support.problems import CONSTANTS, equal_statistics

ROUNDS = 12
BATTERY_J = 0.006
"""Enough for about six rounds."""


def small(**more):
    overrides = {"federation.rounds": ROUNDS, "device.battery_j": BATTERY_J, **more}
    return load_scenario("femnist", overrides)


def two_clients(batteries_j, **constants):
    """Two clients with 1000 samples at 200 MHz: 0.8 mJ for computing, 493,212 bits at 100 Mb/s and 0.2 W: 0.99 mJ."""
    c = replace(CONSTANTS, **constants)
    observation = Observation(np.full((2, 2), 1e8), equal_statistics(1000.0, 1000.0))
    decision = Decision(np.array([0, 1]), np.array([1, 1]), np.array([2e8, 2e8]))
    nobody = np.zeros(2, dtype=bool)
    return settled_within(batteries_j, nobody, lambda failed: settle(decision, observation, c, failed=failed)), c


def test_by_hand():
    """The second client has 1 mJ and needs 1.79 mJ: its upload fails, and 1 mJ is charged."""
    outcome, _ = two_clients(np.array([np.inf, 1e-3]))
    needed_j = 1e-26 * 2e6 * 4e16 + 0.2 * 493_212 / 1e8
    assert outcome.energy_j[0] == pytest.approx(needed_j)
    assert outcome.energy_j[1] == pytest.approx(1e-3)
    assert outcome.arrived.tolist() == [True, False]
    assert left_j(np.array([np.inf, 1e-3]), outcome).tolist() == [np.inf, 0.0]
    enough, _ = two_clients(np.array([2e-3, 3e-3]))
    assert enough.arrived.all()
    np.testing.assert_allclose(left_j(np.array([2e-3, 3e-3]), enough), [2e-3 - needed_j, 3e-3 - needed_j])


@pytest.mark.parametrize(("spare", "arrives"), [(0.0, True), (-5e-10, True), (-2e-9, False)])
def test_only_a_rounding_error_above_what_is_left_is_allowed(spare, arrives):
    needed_j = 1e-26 * 2e6 * 4e16 + 0.2 * 493_212 / 1e8
    outcome, _ = two_clients(np.array([np.inf, needed_j * (1.0 + spare)]))
    assert outcome.arrived.tolist() == [True, arrives]


@pytest.mark.parametrize(("spare", "left"), [(-1e-10, 0.0), (0.0, 0.0), (5e-10, 0.0), (2e-9, 2e-9), (0.5, 0.5)])
def test_what_is_left_by_rounding_is_nothing(spare, left):
    outcome, _ = two_clients(None)
    held_j = outcome.energy_j * (1.0 + spare)
    assert left_j(held_j, outcome) == pytest.approx(left * outcome.energy_j, rel=1e-6, abs=0.0)


def test_a_battery_that_empties_after_the_deadline_is_empty():
    """A decision that is exempt from the deadline of 20 ms: at 200 MHz and 1 Mb/s a client computes for 10 ms and sends
    for 493 ms, which takes 0.8 + 98.6 mJ. The second has 50 mJ, more than it takes within 20 ms."""
    observation = Observation(np.full((2, 2), 1e6), equal_statistics(1000.0, 1000.0))
    decision = Decision(np.array([0, 1]), np.array([1, 1]), np.array([2e8, 2e8]), deadline_exempt=True)
    held_j = np.array([np.inf, 0.05])
    nobody = np.zeros(2, dtype=bool)
    outcome = settled_within(held_j, nobody, lambda failed: settle(decision, observation, CONSTANTS, failed=failed))
    assert outcome.arrived.tolist() == [True, False]
    np.testing.assert_allclose(outcome.energy_j, [1e-26 * 2e6 * 4e16 + 0.2 * 0.493212, 0.05])
    assert left_j(held_j, outcome).tolist() == [np.inf, 0.0]


def test_a_policy_without_a_deadline_stops_when_its_battery_is_empty():
    """An upload of raw floats takes longer than the deadline and, for some, more than the battery holds."""
    slow = {"device.frequency_min_hz": 2e8, "device.frequency_max_hz": 2e8, "device.battery_j": 0.005}
    (run,) = plan(small(**slow), ["no-quantization"], 1)
    on, arrived = run.by_round("participated"), run.by_round("arrived")
    lost = on & ~arrived
    assert lost.any()
    np.testing.assert_array_equal(run.by_round("battery_j")[lost], 0.0)
    for client in np.flatnonzero(lost.any(axis=0)):
        assert not on[np.argmax(lost[:, client]) + 1 :, client].any(), "it takes part no more"


def test_a_longer_round_can_empty_another_battery():
    """A lost upload makes the round last until the deadline; the first client rests so long only on mains."""
    outcome, c = two_clients(np.array([2.15e-3, 1e-3]), idle_power_w=0.02)
    assert outcome.arrived.tolist() == [False, False]
    assert (outcome.energy_j <= np.array([2.15e-3, 1e-3]) * (1 + 1e-9)).all()
    mains, _ = two_clients(np.array([np.inf, 1e-3]), idle_power_w=0.02)
    assert mains.arrived.tolist() == [True, False]
    assert mains.idle_energy_j[0] == pytest.approx(0.02 * c.deadline_s)


def test_charges_and_factors():
    shares = charges(np.array([5.0, np.inf, 0.0]), np.array([20.0, np.inf, 7.0]))
    assert shares.tolist() == [0.25, 1.0, 0.0]
    assert energy_factors(shares, 0.0) is None
    assert energy_factors(None, 1.0) is None
    assert energy_factors(shares, 1.0).tolist() == [4.0, 1.0, 1e6]
    assert energy_factors(shares, 0.5) == pytest.approx([2.0, 1.0, 1e6])


@pytest.mark.parametrize(
    "policy", ["qccf", "no-quantization", "channel-allocate", "principle", "same-size", "fixed-bits"]
)
@pytest.mark.parametrize("channels", [10, 4])
def test_nobody_spends_more_than_it_has(policy, channels):
    scenario = small(**{"radio.num_channels": channels})
    (run,) = plan(scenario, [policy], 1)
    batteries_j, on = run.by_round("battery_j"), run.by_round("participated")
    spent_j = run.client_energy_j().reshape(ROUNDS, -1)
    np.testing.assert_allclose(batteries_j[0], BATTERY_J - spent_j[0], atol=1e-12)
    np.testing.assert_allclose(batteries_j[1:], batteries_j[:-1] - spent_j[1:], atol=1e-12)
    assert (batteries_j >= 0.0).all()
    emptied = batteries_j[:-1] <= 0.0
    assert not on[1:][emptied].any(), "a client with an empty battery takes no part"
    assert not run.by_round("able")[1:][emptied].any()
    falls = (batteries_j <= 0.0) & np.vstack([np.ones(10, dtype=bool), ~emptied])
    assert not run.by_round("arrived")[falls].any(), "the upload during which a battery empties is lost"
    if channels == 10:
        assert (batteries_j[-1] <= 0.0).all()
        finding = next(one for one in run.findings if one.kind == "empty-batteries")
        assert "ran out of battery" in finding.message
        assert cell_map(run).ran_out.all()
    clients = plan_to_json(scenario, [run])["runs"][0]["clients"]
    assert clients["battery_j"] == batteries_j[-1].tolist()


def test_mains_never_runs_out():
    (run,) = plan(small(**{"device.battery_j": 0.0}), ["qccf"], 1)
    assert "battery_j" not in run.client_columns
    assert cell_map(run).ran_out is None
    assert not any(one.kind == "empty-batteries" for one in run.findings)


def test_large_batteries_change_nothing():
    (mains,) = plan(small(**{"device.battery_j": 0.0}), ["qccf"], 1)
    (large,) = plan(small(**{"device.battery_j": 1e9}), ["qccf"], 1)
    for name, column in mains.client_columns.items():
        np.testing.assert_array_equal(column, large.client_columns[name], err_msg=name)


def test_a_half_charged_battery():
    (run,) = plan(small(**{"devices.charge": 0.5}), ["qccf"], 1)
    spent_j = run.client_energy_j().reshape(ROUNDS, -1).sum(axis=0)
    np.testing.assert_allclose(spent_j, 0.5 * BATTERY_J)


def test_resumed_run_is_exact(tmp_path):
    """Stop after five rounds, read the checkpoint, go on: tables and batteries are equal to the last bit."""
    scenario = small()
    world, rules = build_world(scenario, 0), planned_rules(scenario)
    source = statistics_source(scenario, world.dataset_sizes)
    state, ledger = replace(first_state(rules, source), weights=np.zeros(3, dtype=np.float32)), Ledger()
    straight = []
    for index in range(ROUNDS):
        if index == 5:
            checkpoint.save(tmp_path, state, ledger, "own")
        state = replace(
            run_round(replace(state, weights=None), rules, world, source, ledger), weights=np.zeros(3, "f4")
        )
        straight.append(state.batteries_j)
    (restored, again), _ = checkpoint.latest(tmp_path, "own")
    np.testing.assert_array_equal(restored.batteries_j, straight[4])
    while restored.round_index < ROUNDS:
        after = run_round(replace(restored, weights=None), rules, world, source, again)
        restored = replace(after, weights=np.zeros(3, "f4"))
    for table, columns in ledger.tables().items():
        for name, column in columns.items():
            np.testing.assert_array_equal(column, again.tables()[table][name], err_msg=f"{table} {name}")


def test_weighing_what_is_left_spares_empty_batteries():
    """With few channels, a client with little left has fewer turns, so batteries last longer."""

    def first_out(weight):
        overrides = {"radio.num_channels": 4, "control.battery_weight": weight, "federation.rounds": 40}
        (run,) = plan(load_scenario("femnist", {**overrides, "device.battery_j": 0.03}), ["qccf"], 1)
        left = run.by_round("battery_j")
        return run, left

    plain, left = first_out(0.0)
    spared, spared_left = first_out(4.0)
    assert not np.array_equal(plain.client_columns["channel"], spared.client_columns["channel"])
    spread = [np.ptp(one[10]) for one in (left, spared_left)]
    assert spread[1] < spread[0], "what is left is more equal where it counts"
