"""One round, from top to bottom. Paper: the five steps of Section II-A."""

from dataclasses import dataclass, replace

import numpy as np

from qccf.contracts import Constants, Policy, State, Statistics
from qccf.cost import settle
from qccf.learning.training import Flat
from qccf.quantization.protocol import Codec
from qccf.random import stream
from qccf.simulation import uplink
from qccf.simulation.clients import Clients
from qccf.simulation.ledger import Ledger
from qccf.soundness import checked_decision, checked_state
from qccf.world import World


@dataclass(frozen=True)
class Server:
    """All that a round hands on to the next."""

    round_index: int
    weights: Flat
    policy_state: State
    statistics: Statistics


def run_round(
    server: Server, world: World, policy: Policy, clients: Clients, codec: Codec, constants: Constants, ledger: Ledger
) -> Server:
    """Decide, train, upload, aggregate, settle.

    Where sizes are known beforehand, so is who misses the deadline, and a lost upload is not trained for; the energy
    is charged all the same. Otherwise everybody trains, and what they really send is settled.
    """
    n = server.round_index
    observation = world.observe(n, server.statistics)
    made = policy.decide(server.policy_state, observation, stream(world.seed, "policy", n))
    decision = checked_decision(made, observation, constants, type(policy).__name__)
    expected = settle(decision, observation, constants)
    due = expected.arrived if codec.affine or decision.raw else decision.participates
    uploads = clients.train(
        np.flatnonzero(due),
        server.weights,
        n,
        lambda client, result: uplink.encode(
            codec, result, server.weights, decision, client, round_index=n, seed=world.seed
        ),
    )
    sizes_bits = uplink.sizes_bits(uploads, observation.num_clients)
    settled = settle(decision, observation, constants, sizes_bits=sizes_bits)
    arrived = {client: upload for client, upload in uploads.items() if settled.arrived[client]}
    weights = uplink.aggregate(arrived, world.dataset_sizes, decision, codec, server.weights)
    losses = np.full(observation.num_clients, np.nan)
    for client, upload in arrived.items():
        losses[client] = upload.report.loss
    reports = {
        client: (upload.report if client in arrived else None, upload.forecast) for client, upload in uploads.items()
    }
    statistics = uplink.heard(server.statistics, reports, safety_margin=world.scenario.codec.safety_margin)
    outcome = replace(settled, statistics=statistics, losses=losses)
    policy_state = checked_state(policy.update(server.policy_state, decision, outcome), type(policy).__name__)
    accuracy, loss = _evaluate(clients, weights, n)
    ledger.record(
        n,
        observation,
        decision,
        outcome,
        sizes_bits=sizes_bits,
        state=server.policy_state,
        constants=constants,
        accuracy=accuracy,
        loss=loss,
    )
    return Server(n + 1, weights, policy_state, statistics)


def first_statistics(clients: Clients, weights: Flat, codec: Codec) -> Statistics:
    """What everybody reports of the initial model, before the first decision."""
    reports = clients.probe(
        weights,
        lambda _, result: (result.report, codec.forecast(uplink.coded_vector(codec, result, weights))),
    )
    blank = uplink.unheard(clients.dataset_sizes, codec)
    return uplink.heard(blank, reports, safety_margin=clients.scenario.codec.safety_margin)


def _evaluate(clients: Clients, weights: Flat, round_index: int) -> tuple[float, float]:
    settings = clients.scenario.evaluation
    last = round_index + 1 == clients.scenario.federation.rounds
    if last or (round_index + 1) % settings.every == 0:
        return clients.evaluate(weights, settings.samples)
    return np.nan, np.nan
