"""The fast path equals the round written out in plain loops."""

from dataclasses import replace

import numpy as np

from examples.one_round_by_hand import one_round
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import run_round, state_at
from qccf.rounds.setup import build_rules, scenario_codec
from qccf.rounds.world import build_world
from qccf.runtimes.clients import Clients
from qccf.runtimes.simulator import TrainedUploads
from tests.helpers.tiny import tiny_dataset, tiny_scenario


def test_one_round_by_hand() -> None:
    scenario, dataset, seed = tiny_scenario("radio.num_channels=4", "federation.seed=3"), tiny_dataset(), 3
    world, ledger = build_world(scenario, seed), Ledger()
    with Clients(scenario, dataset, world.dataset_sizes, seed) as clients:
        weights = clients.initial_weights()
        rules = build_rules(scenario, scenario_codec(scenario, clients.layer_sizes()))
        source = TrainedUploads(clients, rules, weights)
        statistics = source.initial_statistics()
        state = rules.policy.init(statistics)
        after = run_round(
            replace(state_at(rules, statistics, weights), round_index=2, policy_state=state),
            rules,
            world,
            source,
            ledger,
        )
    by_hand = one_round(scenario, dataset, statistics, state, seed, n=2)
    assert 0 < by_hand["decision"].participates.sum() <= 4
    moved = np.abs(after.weights - weights).max()
    # A weight that sits on a knob up to rounding may fall to either side: one step for a handful at the most.
    off = np.abs(after.weights - by_hand["weights"])
    assert np.quantile(off, 0.99) < 1e-5 * moved + 1e-6
    clients_table = ledger.tables()["clients"]
    energy_j = clients_table["compute_energy_j"] + clients_table["upload_energy_j"]
    np.testing.assert_allclose(energy_j, by_hand["energy_j"])
    assert after.round_index == 3
