"""One round, from top to bottom: decide, collect uploads, settle, aggregate, update the policy, record.

The simulator, the planner, the studies and Flower all call `open_round` and `close_round`. They differ only in their
source of uploads. Paper: the five steps of Section II-A.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from qccf.core.contracts import BoolArray, Constants, Decision, FloatArray, Observation, Policy, PolicyState, Statistics
from qccf.core.errors import ConfigError
from qccf.core.streams import stream
from qccf.devices.cost import settle
from qccf.learning.results import Flat
from qccf.learning.server.average import Average
from qccf.learning.server.protocol import OptimizerState, ServerOptimizer
from qccf.policies.checks import checked_decision, checked_state
from qccf.quantization.protocol import Codec
from qccf.rounds import uplink
from qccf.rounds.aggregation import Arrivals, checked_arrays, next_model
from qccf.rounds.downlink import CodedDownlink, DownlinkState
from qccf.rounds.ledger import Ledger
from qccf.rounds.uplink import Upload
from qccf.rounds.world import World


@dataclass(frozen=True)
class RoundRules:
    """What is the same in every round of a run."""

    policy: Policy
    codec: Codec
    constants: Constants
    seed: int
    safety_margin: float
    optimizer: ServerOptimizer = field(default_factory=Average)
    downlink: CodedDownlink | None = None


@dataclass(frozen=True)
class ServerState:
    """Everything that a round passes to the next. `weights` is None where nothing is trained."""

    round_index: int
    weights: Flat | None
    policy_state: PolicyState
    statistics: Statistics
    optimizer_state: OptimizerState = field(default_factory=dict)
    downlink_state: DownlinkState = field(default_factory=dict)


@dataclass(frozen=True)
class OpenRound:
    """A round's decision, and the clients that are asked to train.

    The policy decides with the `observation`; the round is settled with the `truth`, whose rates may differ.
    Where upload sizes are known in advance, so are the clients that miss the deadline. They are not asked to train,
    because their upload would be lost; their energy is charged all the same. Otherwise all participants train, and
    the sizes that they really send are settled.
    """

    observation: Observation
    decision: Decision
    to_train: BoolArray
    truth: Observation


class UploadSource(Protocol):
    """Where uploads and statistics come from: training, a model of the statistics, a trace or a recorded run."""

    def initial_statistics(self) -> Statistics:
        """Statistics of all clients before the first decision."""
        ...

    def uploads(self, state: ServerState, opened: OpenRound) -> Mapping[int, Upload]:
        """The uploads of the clients that are asked to train."""
        ...

    def evaluate(self, weights: Flat | None, round_index: int) -> tuple[float, float]:
        """Test accuracy and loss after a round; NaN where nothing is evaluated."""
        ...


def first_state(rules: RoundRules, source: UploadSource, weights: Flat | None = None) -> ServerState:
    """The state before the first round."""
    return state_at(rules, source.initial_statistics(), weights)


def state_at(rules: RoundRules, statistics: Statistics, weights: Flat | None) -> ServerState:
    """The state before the first round, with the statistics that clients have measured."""
    policy_state = checked_state(rules.policy.init(statistics), rules.policy)
    made = {} if weights is None else rules.optimizer.init(rules.constants.num_parameters)
    if rules.downlink is not None and weights is None:
        raise ConfigError(
            'server.downlink codes what training changes, and nothing is trained here: set server.downlink = "model".'
        )
    downlink = {} if rules.downlink is None else rules.downlink.init()
    return ServerState(0, weights, policy_state, statistics, checked_arrays(made, rules.optimizer), downlink)


def run_round(state: ServerState, rules: RoundRules, world: World, source: UploadSource, ledger: Ledger) -> ServerState:
    """One round with uploads from a source."""
    observation = world.observe(state.round_index, state.statistics)
    opened = open_round(state, rules, observation, world.true_rates_bps(state.round_index))
    return close_round(state, rules, opened, source.uploads(state, opened), ledger, source.evaluate)


def open_round(
    state: ServerState, rules: RoundRules, observation: Observation, true_rates_bps: FloatArray | None = None
) -> OpenRound:
    """Let the policy decide, and check the decision. Without true rates those of the observation are taken as true."""
    decision = rules.policy.decide(state.policy_state, observation, stream(rules.seed, "policy", state.round_index))
    decision = checked_decision(decision, observation, rules.constants, rules.policy)
    truth = observation if true_rates_bps is None else replace(observation, rates_bps=true_rates_bps)
    expected = settle(decision, truth, rules.constants, failed=_without_link(decision, truth))
    to_train = expected.arrived if rules.codec.affine or decision.raw else decision.participates
    return OpenRound(observation, decision, to_train, truth)


def close_round(
    state: ServerState,
    rules: RoundRules,
    opened: OpenRound,
    uploads: Mapping[int, Upload],
    ledger: Ledger,
    evaluate: Callable[[Flat | None, int], tuple[float, float]],
) -> ServerState:
    """Settle what was sent, aggregate what arrived, update the policy's state, record the round.

    A client that was asked to train and sent nothing has failed, whatever the reason.
    """
    observation, decision, truth = opened.observation, opened.decision, opened.truth
    sizes_bits = uplink.sizes_bits(uploads, observation.num_clients)
    failed = opened.to_train.copy()
    failed[list(uploads)] = False
    failed |= _without_link(decision, truth)
    received = None if rules.downlink is None else rules.downlink.needed_share(state.downlink_state)
    settled = settle(decision, truth, rules.constants, sizes_bits=sizes_bits, failed=failed, received=received)
    arrived = {client: upload for client, upload in uploads.items() if settled.arrived[client]}
    weights, optimizer_state, downlink_state = state.weights, state.optimizer_state, state.downlink_state
    if weights is not None:
        arrivals = Arrivals(arrived, state.statistics.dataset_sizes, decision, rules.codec, weights)
        num_parameters = rules.constants.num_parameters
        weights, optimizer_state = next_model(rules.optimizer, optimizer_state, arrivals, num_parameters)
        if rules.downlink is not None:
            downlink_state = rules.downlink.received(downlink_state, decision.participates, settled.arrived)
            if arrived:
                weights, downlink_state = rules.downlink.broadcast(downlink_state, arrivals.previous, weights)
    losses = np.full(observation.num_clients, np.nan)
    for client, upload in arrived.items():
        losses[client] = upload.statistics.loss
    reports = {
        client: (upload.statistics if client in arrived else None, upload.forecast)
        for client, upload in uploads.items()
    }
    statistics = uplink.updated_statistics(state.statistics, reports, safety_margin=rules.safety_margin)
    outcome = replace(settled, statistics=statistics, losses=losses)
    policy_state = checked_state(rules.policy.update(state.policy_state, decision, outcome), rules.policy)
    accuracy, loss = evaluate(weights, state.round_index)
    ledger.record(
        state.round_index,
        observation,
        decision,
        outcome,
        true_rates_bps=truth.rates_bps,
        sizes_bits=sizes_bits,
        policy_state=state.policy_state,
        constants=rules.constants,
        accuracy=accuracy,
        loss=loss,
    )
    return ServerState(state.round_index + 1, weights, policy_state, statistics, optimizer_state, downlink_state)


def _without_link(decision: Decision, truth: Observation) -> BoolArray:
    """Participants whose channel carries nothing, although it was estimated to: they send until the deadline."""
    rates_bps = truth.rates_bps[np.arange(truth.num_clients), np.maximum(decision.channels, 0)]
    return np.asarray(decision.participates & (rates_bps <= 0.0))
