"""The rules of a round, and opening one by hand."""

from dataclasses import replace

import numpy as np

from qccf.core.contracts import Observation
from qccf.rounds.round import RoundRules, open_round, state_at
from qccf.runtimes.planner import planned_rules
from qccf.settings.loading import load_scenario
from support.problems import equal_statistics


def test_clients_add_no_noise_unless_the_rules_say_so() -> None:
    """Otherwise any change would count as not longer than usual."""
    rules = planned_rules(load_scenario("femnist"))
    assert not RoundRules(rules.policy, rules.codec, rules.constants, 0, 0.0).noisy


def test_a_client_with_an_empty_battery_has_no_link() -> None:
    scenario = load_scenario("femnist", {"device.battery_j": 0.006, "federation.num_clients": 3})
    rules, statistics = planned_rules(scenario), equal_statistics(1000.0, 1000.0, 1000.0)
    state = replace(state_at(rules, statistics, None), batteries_j=np.array([0.006, 0.0, 0.003]))
    known, true = np.full((3, 10), 1e8), np.full((3, 10), 9e7)
    opened = open_round(state, rules, Observation(known, statistics), true)
    assert opened.observation.rates_bps[:, 0].tolist() == [1e8, 0.0, 1e8]
    assert opened.truth.rates_bps[:, 0].tolist() == [9e7, 0.0, 9e7]
    assert opened.observation.charges.tolist() == [1.0, 0.0, 0.5]
    assert opened.decision.participates.tolist() == [True, False, True]
