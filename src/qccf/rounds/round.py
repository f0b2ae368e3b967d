"""One round, from top to bottom: decide, collect uploads, settle, aggregate, update the policy, record.

The simulator, the planner, the studies and Flower all call `open_round` and `close_round`. They differ only in their
source of uploads. Paper: the five steps of Section II-A.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from qccf.core.contracts import (
    BoolArray,
    Constants,
    Decision,
    FloatArray,
    IntArray,
    Observation,
    Policy,
    PolicyState,
    Statistics,
)
from qccf.core.errors import ConfigError
from qccf.core.steps import usual_update_sq
from qccf.core.streams import stream
from qccf.devices.batteries import charges, left_j, settled_within
from qccf.devices.cost import settle
from qccf.learning.aggregation.mean import Mean
from qccf.learning.aggregation.protocol import AggregationState
from qccf.learning.results import Flat
from qccf.learning.server.average import Average
from qccf.learning.server.protocol import OptimizerState
from qccf.policies.checks import checked_decision, checked_state
from qccf.quantization.protocol import Codec
from qccf.rounds import uplink
from qccf.rounds.aggregation import Aggregator, Arrivals
from qccf.rounds.averaging import AverageState, ModelAverage, averaged
from qccf.rounds.claims import ClaimRules, Evidence, believed_losses, first_statistics, next_statistics
from qccf.rounds.downlink import CodedDownlink, DownlinkState
from qccf.rounds.ledger import Ledger
from qccf.rounds.uplink import Upload
from qccf.rounds.world import World

log = logging.getLogger("qccf.rounds")


@dataclass(frozen=True)
class RoundRules:
    """What is the same in every round of a run."""

    policy: Policy
    codec: Codec
    constants: Constants
    seed: int
    safety_margin: float
    aggregator: Aggregator = field(default_factory=lambda: Aggregator(Mean(), Average()))
    batteries_j: FloatArray | None = None
    """What each client's battery holds before the first round, infinite on mains; None if nobody has one."""
    device_names: tuple[str, ...] = ()
    """Each client's profile, for the record; empty where all are the paper's device."""
    claims: ClaimRules | None = field(default_factory=ClaimRules)
    """Limits of what clients report; None where statistics are not reported but stated, as in a plan."""
    warn: Callable[[str], None] = log.warning
    downlink: CodedDownlink | None = None
    average: ModelAverage | None = None
    noisy: bool = False
    """Whether clients add noise to their changes, which are then far longer than gradients let expect."""


@dataclass(frozen=True)
class ServerState:
    """Everything that a round passes to the next. `weights` is None where nothing is trained."""

    round_index: int
    weights: Flat | None
    policy_state: PolicyState
    statistics: Statistics
    optimizer_state: OptimizerState = field(default_factory=dict)
    batteries_j: FloatArray | None = None
    rule_state: AggregationState = field(default_factory=dict)
    doubts: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """How many of each client's last reports were not believed."""
    downlink_state: DownlinkState = field(default_factory=dict)
    average_state: AverageState = field(default_factory=dict)

    @property
    def delivered(self) -> Flat | None:
        """The model that is evaluated and delivered: the average of the global models, or the last one."""
        return None if self.weights is None else averaged(self.average_state, self.weights)


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


def state_at(
    rules: RoundRules, statistics: Statistics, weights: Flat | None, reported: BoolArray | None = None
) -> ServerState:
    """The state before the first round, with the statistics that clients have measured.

    `reported` tells which clients have; the others start with the median of those.
    """
    doubts = np.zeros(statistics.num_clients, dtype=np.int64)
    if rules.claims is not None:
        reported = np.ones(statistics.num_clients, dtype=bool) if reported is None else reported
        statistics, doubts, warnings = first_statistics(statistics, reported, rules.claims)
        _warn(rules, warnings)
    policy_state = checked_state(rules.policy.init(statistics), rules.policy)
    if rules.downlink is not None and weights is None:
        raise ConfigError(
            'server.downlink codes what training changes, and nothing is trained here: set server.downlink = "model".'
        )
    rule: AggregationState = {}
    optimizer: OptimizerState = {}
    average: AverageState = {}
    if weights is not None:
        average = {} if rules.average is None else rules.average.init(len(weights))
        rule, optimizer = rules.aggregator.init(statistics.num_clients, rules.constants.num_parameters)
    return ServerState(
        0,
        weights,
        policy_state,
        statistics,
        optimizer_state=optimizer,
        rule_state=rule,
        batteries_j=rules.batteries_j,
        doubts=doubts,
        downlink_state={} if rules.downlink is None else rules.downlink.init(),
        average_state=average,
    )


def run_round(state: ServerState, rules: RoundRules, world: World, source: UploadSource, ledger: Ledger) -> ServerState:
    """One round with uploads from a source."""
    observation = world.observe(state.round_index, state.statistics)
    opened = open_round(state, rules, observation, world.true_rates_bps(state.round_index))
    return close_round(state, rules, opened, source.uploads(state, opened), ledger, source.evaluate)


def open_round(
    state: ServerState, rules: RoundRules, observation: Observation, true_rates_bps: FloatArray | None = None
) -> OpenRound:
    """Let the policy decide, and check the decision. Without true rates those of the observation are taken as true.

    A client whose battery is empty has no link.
    """
    if state.batteries_j is not None and rules.batteries_j is not None:
        alive = (state.batteries_j > 0.0)[:, None]
        left = charges(state.batteries_j, rules.batteries_j)
        observation = replace(observation, rates_bps=np.where(alive, observation.rates_bps, 0.0), charges=left)
        true_rates_bps = None if true_rates_bps is None else np.where(alive, true_rates_bps, 0.0)
    decision = rules.policy.decide(state.policy_state, observation, stream(rules.seed, "policy", state.round_index))
    decision = checked_decision(decision, observation, rules.constants, rules.policy)
    truth = observation if true_rates_bps is None else replace(observation, rates_bps=true_rates_bps)
    expected = settled_within(
        state.batteries_j,
        _without_link(decision, truth),
        lambda failed: settle(decision, truth, rules.constants, failed=failed),
    )
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
    settled = settled_within(
        state.batteries_j,
        failed,
        lambda lost: settle(decision, truth, rules.constants, sizes_bits=sizes_bits, failed=lost, received=received),
    )
    batteries_j = None if state.batteries_j is None else left_j(state.batteries_j, settled)
    arrived = {client: upload for client, upload in uploads.items() if settled.arrived[client]}
    known, weights = state.statistics, state.weights
    optimizer_state, rule_state = state.optimizer_state, state.rule_state
    downlink_state, average_state = state.downlink_state, state.average_state
    kept = np.full(observation.num_clients, np.nan)
    if weights is not None:
        arrivals = Arrivals(
            arrived,
            known.dataset_sizes,
            decision,
            rules.codec,
            weights,
            rules.constants.num_parameters,
            known.upload_errors,
            np.inf if rules.noisy else usual_update_sq(known, rules.constants),
        )
        made = rules.aggregator.next_model(rule_state, optimizer_state, arrivals)
        weights, rule_state, optimizer_state = made.model, made.rule_state, made.optimizer_state
        kept[sorted(arrived)] = made.kept
        if rules.downlink is not None:
            downlink_state = rules.downlink.received(downlink_state, decision.participates, settled.arrived)
            if arrived:
                weights, downlink_state = rules.downlink.broadcast(downlink_state, arrivals.previous, weights)
        if rules.average is not None and arrived:
            average_state = rules.average.added(average_state, weights)
    losses = np.full(observation.num_clients, np.nan)
    for client, upload in arrived.items():
        losses[client] = upload.statistics.loss
    statistics, doubts, losses = _trusted(state, rules, opened, uploads, arrived, losses)
    outcome = replace(settled, statistics=statistics, losses=losses)
    policy_state = checked_state(rules.policy.update(state.policy_state, decision, outcome), rules.policy)
    after = ServerState(
        state.round_index + 1,
        weights,
        policy_state,
        statistics,
        optimizer_state=optimizer_state,
        rule_state=rule_state,
        batteries_j=batteries_j,
        doubts=doubts,
        downlink_state=downlink_state,
        average_state=average_state,
    )
    accuracy, loss = evaluate(after.delivered, state.round_index)
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
        device_names=rules.device_names,
        batteries_j=batteries_j,
        kept=kept,
        measured={client: (upload.measured_s, upload.measured_j) for client, upload in uploads.items()},
    )
    return after


def _without_link(decision: Decision, truth: Observation) -> BoolArray:
    """Participants whose channel carries nothing, although it was estimated to: they send until the deadline."""
    rates_bps = truth.rates_bps[np.arange(truth.num_clients), np.maximum(decision.channels, 0)]
    return np.asarray(decision.participates & (rates_bps <= 0.0))


def _trusted(
    state: ServerState,
    rules: RoundRules,
    opened: OpenRound,
    uploads: Mapping[int, Upload],
    arrived: Mapping[int, Upload],
    losses: FloatArray,
) -> tuple[Statistics, IntArray, FloatArray]:
    """The statistics, doubts and losses after the reports of a round, as far as these are believed."""
    reports = {
        client: (upload.statistics if client in arrived else None, upload.forecast)
        for client, upload in uploads.items()
    }
    claimed = uplink.updated_statistics(state.statistics, reports, safety_margin=rules.safety_margin)
    doubts = state.doubts if len(state.doubts) else np.zeros(claimed.num_clients, dtype=np.int64)
    if rules.claims is None:
        return claimed, doubts, losses

    def examine(client: int) -> Evidence:
        num_bits = uplink.instructed_bits(opened.decision, client)
        parameters = rules.constants.num_parameters
        found = uplink.examined(rules.codec, uploads[client], num_bits, state.weights, parameters)
        return found._replace(
            size_bits=None if found.size_bits is None else found.size_bits * (1.0 + rules.safety_margin)
        )

    statistics, doubts, warnings = next_statistics(
        state.statistics, claimed, np.array(sorted(uploads), dtype=np.int64), doubts, rules.claims, examine
    )
    losses, about_losses = believed_losses(losses, rules.claims)
    _warn(rules, warnings + about_losses)
    return statistics, doubts, losses


def _warn(rules: RoundRules, sentences: list[str]) -> None:
    for sentence in sentences:
        rules.warn(sentence)
