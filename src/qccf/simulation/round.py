"""One round, from top to bottom. Paper: the five steps of Section II-A."""

from dataclasses import dataclass, replace

import numpy as np

from qccf.contracts import Constants, Decision, Outcome, Policy, State, Statistics
from qccf.cost import settle
from qccf.learning.training import Flat, LocalResult, aggregate
from qccf.quantization.stochastic import quantize
from qccf.random import stream
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
    server: Server, world: World, policy: Policy, clients: Clients, constants: Constants, ledger: Ledger
) -> Server:
    """Decide, train, upload, aggregate, settle.

    Who misses the deadline is known from the decision and the rates, so a lost upload is not trained for; the energy
    is charged all the same.
    """
    n = server.round_index
    observation = world.observe(n, server.statistics)
    made = policy.decide(server.policy_state, observation, stream(world.seed, "policy", n))
    decision = checked_decision(made, observation, constants, type(policy).__name__)
    settled = settle(decision, observation, constants)
    results = clients.train(np.flatnonzero(settled.arrived), server.weights, n)
    uploads = {client: upload(results[client], decision, client, n, world.seed) for client in sorted(results)}
    sizes = world.dataset_sizes[list(uploads)]
    weights = aggregate(list(uploads.values()), sizes, server.weights)
    outcome = heard(settled, results)
    policy_state = checked_state(policy.update(server.policy_state, decision, outcome), type(policy).__name__)
    accuracy, loss = _evaluate(clients, weights, n)
    ledger.record(
        n, observation, decision, outcome, state=server.policy_state, constants=constants, accuracy=accuracy, loss=loss
    )
    return Server(n + 1, weights, policy_state, outcome.statistics)


def upload(result: LocalResult, decision: Decision, client: int, round_index: int, seed: int) -> Flat:
    """What the server receives of a client's model: quantized with the bits it was told, or as it is."""
    if decision.raw:
        return result.weights
    rng = stream(seed, "quantization", client, round_index)
    return quantize(result.weights, int(decision.num_bits[client]), rng).values()


def heard(outcome: Outcome, results: dict[int, LocalResult]) -> Outcome:
    """The outcome with what the clients reported; the last known statistics stand for the others."""
    known = outcome.statistics
    norms_sq, variances = known.gradient_norms_sq.copy(), known.gradient_variances.copy()
    ranges, losses = known.weight_ranges.copy(), np.full(known.num_clients, np.nan)
    for client, result in results.items():
        norms_sq[client] = result.gradient_norm_sq
        variances[client] = result.gradient_variance
        ranges[client] = result.weight_range
        losses[client] = result.loss
    return replace(outcome, statistics=Statistics(known.dataset_sizes, norms_sq, variances, ranges), losses=losses)


def _evaluate(clients: Clients, weights: Flat, round_index: int) -> tuple[float, float]:
    settings = clients.scenario.evaluation
    last = round_index + 1 == clients.scenario.federation.rounds
    if last or (round_index + 1) % settings.every == 0:
        return clients.evaluate(weights, settings.samples)
    return np.nan, np.nan
