"""One round, from top to bottom. Paper: the five steps of Section II-A."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from qccf.core.contracts import BoolArray, Constants, Decision, Observation, Policy, State, Statistics
from qccf.core.streams import stream
from qccf.devices.cost import settle
from qccf.learning.results import Flat
from qccf.policies.checks import checked_decision, checked_state
from qccf.quantization.protocol import Codec
from qccf.rounds import uplink
from qccf.rounds.ledger import Ledger
from qccf.rounds.world import World
from qccf.runtimes.clients import Clients


@dataclass(frozen=True)
class Rules:
    """What is the same in every round of a run."""

    policy: Policy
    codec: Codec
    constants: Constants
    seed: int
    safety_margin: float


@dataclass(frozen=True)
class Server:
    """All that a round hands on to the next."""

    round_index: int
    weights: Flat
    policy_state: State
    statistics: Statistics


@dataclass(frozen=True)
class Plan:
    """What was decided for a round, and who is asked to train.

    Where sizes are known beforehand, so is who misses the deadline, and a lost upload is not trained for; the energy
    is charged all the same. Otherwise everybody trains, and what they really send is settled.
    """

    observation: Observation
    decision: Decision
    due: BoolArray


def run_round(server: Server, rules: Rules, world: World, clients: Clients, ledger: Ledger) -> Server:
    """Decide, train, upload, aggregate, settle."""
    n = server.round_index
    plan = open_round(server, rules, world.observe(n, server.statistics))
    uploads = clients.train(
        np.flatnonzero(plan.due),
        server.weights,
        n,
        lambda client, result: uplink.encode(
            rules.codec,
            result,
            server.weights,
            uplink.told_bits(plan.decision, client),
            client=client,
            round_index=n,
            seed=rules.seed,
        ),
    )
    return close_round(server, rules, plan, uploads, ledger, lambda weights: _evaluate(clients, weights, n))


def open_round(server: Server, rules: Rules, observation: Observation) -> Plan:
    """Decide who takes part, where, how fast and with how many bits."""
    made = rules.policy.decide(server.policy_state, observation, stream(rules.seed, "policy", server.round_index))
    decision = checked_decision(made, observation, rules.constants, type(rules.policy).__name__)
    expected = settle(decision, observation, rules.constants)
    due = expected.arrived if rules.codec.affine or decision.raw else decision.participates
    return Plan(observation, decision, due)


def close_round(
    server: Server,
    rules: Rules,
    plan: Plan,
    uploads: Mapping[int, uplink.Upload],
    ledger: Ledger,
    evaluate: Callable[[Flat], tuple[float, float]],
) -> Server:
    """Settle what was really sent, aggregate what arrived, move the queues, write it down.

    Who was asked to train and sent nothing has failed, whatever the reason.
    """
    observation, decision = plan.observation, plan.decision
    sizes_bits = uplink.sizes_bits(uploads, observation.num_clients)
    failed = plan.due & np.isnan(sizes_bits)
    settled = settle(decision, observation, rules.constants, sizes_bits=sizes_bits, failed=failed)
    arrived = {client: upload for client, upload in uploads.items() if settled.arrived[client]}
    weights = uplink.aggregate(arrived, server.statistics.dataset_sizes, decision, rules.codec, server.weights)
    losses = np.full(observation.num_clients, np.nan)
    for client, upload in arrived.items():
        losses[client] = upload.report.loss
    reports = {
        client: (upload.report if client in arrived else None, upload.forecast) for client, upload in uploads.items()
    }
    statistics = uplink.heard(server.statistics, reports, safety_margin=rules.safety_margin)
    outcome = replace(settled, statistics=statistics, losses=losses)
    policy_state = checked_state(
        rules.policy.update(server.policy_state, decision, outcome), type(rules.policy).__name__
    )
    accuracy, loss = evaluate(weights)
    ledger.record(
        server.round_index,
        observation,
        decision,
        outcome,
        sizes_bits=sizes_bits,
        state=server.policy_state,
        constants=rules.constants,
        accuracy=accuracy,
        loss=loss,
    )
    return Server(server.round_index + 1, weights, policy_state, statistics)


def first_statistics(clients: Clients, weights: Flat, rules: Rules) -> Statistics:
    """What everybody reports of the initial model, before the first decision."""
    codec = rules.codec
    reports = clients.probe(
        weights,
        lambda _, result: (result.report, codec.forecast(uplink.coded_vector(codec, result.weights, weights))),
    )
    blank = uplink.unheard(clients.dataset_sizes, codec)
    return uplink.heard(blank, reports, safety_margin=rules.safety_margin)


def _evaluate(clients: Clients, weights: Flat, round_index: int) -> tuple[float, float]:
    settings = clients.scenario.evaluation
    last = round_index + 1 == clients.scenario.federation.rounds
    if last or (round_index + 1) % settings.every == 0:
        return clients.evaluate(weights, settings.samples)
    return np.nan, np.nan
