"""Any policy of the decision core as a Flower strategy: the simulator's round with a network in between."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from qccf.core.contracts import FloatArray, Observation
from qccf.core.errors import QccfError
from qccf.core.files import alone_in, write_text_whole
from qccf.learning.results import Flat
from qccf.quantization.registry import build_codec
from qccf.rounds import checkpoint, uplink
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import Plan, Rules, Server, close_round, open_round
from qccf.rounds.world import build_world
from qccf.runtimes.flower.exchange import exchange, look_for_objects_often
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.messages import ARRAYS, CONFIG, INSTRUCTION, Instruction, ReplyError, read_reply
from qccf.runtimes.flower.rates import MeasuredRates, RateSource, SimulatedRates
from qccf.runtimes.flower.roster import AbsentError, Roster
from qccf.runtimes.simulator import Run, build_rules, summarise, write_run
from qccf.settings.loading import Scenario, scenario_to_toml, settings_key
from qccf.wireless.cell import Cell

SOURCES: dict[str, Callable[[Cell], RateSource]] = {"simulated": SimulatedRates, "measured": MeasuredRates}
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class FederationError(QccfError):
    """A federation that cannot go on."""


class QccfStrategy(Strategy):
    """Decides each round who trains, and with how many bits each upload is quantized.

    The clients' app needs the mod `quantize`. Dataset sizes are what the clients report; the number of clients, radio,
    deadline, policy and codec are the scenario's. With `out`, a checkpoint is written after each round and a server
    that is started again goes on from it. Rates are "simulated", "measured", or what a function makes of the cell.
    `throttle` has each client upload no faster than its simulated rate. After `patience` rounds in a row in which work
    was handed out and nothing usable came back, it gives up. When nobody is there it waits, for `join_timeout_s`.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        policy: str | None = None,
        seed: int | None = None,
        out: Path | None = None,
        rates: Literal["simulated", "measured"] | Callable[[Cell], RateSource] = "simulated",
        throttle: bool = False,
        join_timeout_s: float = 300.0,
        patience: int = 3,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.scenario = scenario
        self.policy = policy or scenario.policy.name
        self.seed = scenario.federation.seed if seed is None else seed
        self.out = out
        self.throttle = throttle
        self.join_timeout_s = join_timeout_s
        self.patience = patience
        self.ledger = Ledger()
        self.roster = Roster(scenario.federation.num_clients)
        self._make_rates = SOURCES[rates] if isinstance(rates, str) else rates
        self._about = about or {}
        self._timeout_s = 3600.0
        self._config = ConfigRecord()
        self._evaluate: Evaluate | None = None
        self._scores: MetricRecord | None = None
        self._silent_rounds = 0
        self._seconds: dict[str, float] = {}
        self._sent: list[tuple[Message, Instruction]] = []
        self._begun = False
        self._resumed = False
        self._layout: Layout
        self._rules: Rules
        self._cell: Cell
        self._rates: RateSource
        self._server: Server
        self._plan: Plan

    # What Flower calls

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run the rounds that are left. `timeout` is the longest that a round waits for its replies, in seconds."""
        self._timeout_s, self._evaluate, self._config = timeout, evaluate_fn, train_config or ConfigRecord()
        if self.out is None:
            return self._run(grid, initial_arrays, num_rounds)
        with alone_in(self.out):
            result = self._run(grid, initial_arrays, num_rounds)
            self._write_run()
        return result

    def _run(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> Result:
        result = Result()
        try:
            self._begin(initial_arrays, grid)
            while self._server.round_index < num_rounds:
                server_round = self._server.round_index + 1
                log(INFO, "[ROUND %s/%s]", server_round, num_rounds)
                messages = list(self.configure_train(server_round, self.arrays, self._config, grid))
                replies = exchange(grid, messages, timeout_s=self._timeout_s)
                self._seconds = {reply.message.metadata.message_id: reply.seconds for reply in replies}
                _, metrics = self.aggregate_train(server_round, [reply.message for reply in replies])
                if metrics is not None:
                    result.train_metrics_clientapp[server_round] = metrics
                if self._scores is not None:
                    result.evaluate_metrics_serverapp[server_round] = self._scores
                self._require_life()
        finally:
            self.roster.close()
        result.arrays = self.arrays
        return result

    def configure_train(
        self,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> Iterable[Message]:
        """Decide the round, and make a message for each client that is to train; the others get none."""
        self._begin(arrays, grid)
        n = self._server.round_index
        if server_round != n + 1:
            raise FederationError(f"round {server_round} was asked for, but the next is {n + 1}: use strategy.start.")
        self._gather(grid)
        rates_bps = self._rates.rates_bps(n).copy()
        absent = [client for client in range(self.roster.num_clients) if client not in self.roster.nodes]
        rates_bps[absent] = 0.0
        self._plan = open_round(self._server, self._rules, Observation(rates_bps, self._server.statistics))
        decision = self._plan.decision
        due = [int(client) for client in np.flatnonzero(self._plan.due) if int(client) in self.roster.nodes]
        self._sent = []
        limits_bps = self._cell.round_rates_bps(n) if self.throttle else np.zeros_like(rates_bps)
        for client in due:
            rate_bps = float(limits_bps[client, decision.channels[client]])
            told = self._instruction("train", client, uplink.told_bits(decision, client), rate_bps)
            self._sent.append((self._message(told, arrays, config), told))
        log(INFO, "%s of %s clients train: %s", len(due), self.roster.num_clients, due)
        return [message for message, _ in self._sent]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check every reply, aggregate those that are sound, and settle the round."""
        uploads: dict[int, uplink.Upload] = {}
        alive: set[int] = set()
        asked = {message.metadata.message_id: (message, told) for message, told in self._sent}
        for reply in replies:
            message, told = asked.get(reply.metadata.reply_to_message_id, (None, None))
            try:
                if message is None or told is None:
                    raise ReplyError("it answers no message of this round.")
                upload = self._accept(reply, message, told, uploads)
            except ReplyError as error:
                who = "unknown" if told is None else told.client
                log(WARNING, "a reply of node %s (client %s) is rejected: %s", reply.metadata.src_node_id, who, error)
            else:
                uploads[told.client] = upload
                self._time(told.client, reply, upload)
            if told is not None and not reply.has_error():
                alive.add(told.client)
        lost = [told.client for _, told in self._sent if told.client not in uploads]
        for client in lost:
            log(WARNING, "client %s sent nothing usable in round %s and counts as missed.", client, server_round)
        self.roster.doubt([client for client in lost if client not in alive])
        if self._sent:
            self._silent_rounds = 0 if uploads else self._silent_rounds + 1
        self._server = close_round(
            self._server, self._rules, self._plan, uploads, self.ledger, lambda weights: self._score(weights)
        )
        self._save()
        row = self.ledger.last
        score = f", accuracy {row['test_accuracy']:.3f}" if np.isfinite(row["test_accuracy"]) else ""
        log(INFO, "%s arrived, %.4g J so far%s", row["arrived"], row["cumulative_energy_j"], score)
        shown = ("energy_j", "cumulative_energy_j", "participants", "arrived", "missed")
        return self.arrays, MetricRecord({name: float(row[name]) for name in shown})

    def configure_evaluate(self, *_: Any) -> Iterable[Message]:
        """Nobody but the server evaluates: an evaluation by clients would cost energy that no policy decided on."""
        return []

    def aggregate_evaluate(self, *_: Any) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        log(INFO, "policy %s, codec %s, %s clients", self.policy, self.scenario.codec.name, self.roster.num_clients)

    # What it does

    @property
    def arrays(self) -> ArrayRecord:
        """The global model."""
        return self._layout.unflatten(self._server.weights)

    @property
    def weights(self) -> Flat:
        """The same as one vector."""
        return self._server.weights

    def _begin(self, arrays: ArrayRecord, grid: Grid) -> None:
        """Meet the clients; go on from the last checkpoint, or have everybody measure the initial model."""
        if self._begun:
            return
        self._layout = Layout.of(arrays)
        learning = self.scenario.learning.model_copy(update={"num_parameters": self._layout.num_parameters})
        self.scenario = self.scenario.model_copy(update={"learning": learning})
        codec = build_codec(
            self.scenario.codec.name, self._layout.num_parameters, self._layout.sizes, **self.scenario.codec.options
        )
        self._rules = build_rules(self.scenario, self.policy, codec, self.seed)
        self.summary()
        if not self._resume():
            self.roster.meet(grid, self.roster.num_clients, timeout_s=self.join_timeout_s)
            self._probe(arrays, grid)
        self._begun = True

    def _gather(self, grid: Grid) -> None:
        """See who is there. Everybody is waited for when a run goes on, and somebody always."""
        if self._resumed:
            self._resumed = False
            try:
                self.roster.meet(grid, self.roster.num_clients, timeout_s=self.join_timeout_s)
            except AbsentError as error:
                log(WARNING, "%s Going on without them.", error)
        self.roster.meet(grid, 1, timeout_s=self.join_timeout_s)

    def _resume(self) -> bool:
        if self.out is None:
            return False
        found, complaints = checkpoint.latest(self.out / "checkpoints", self._fingerprint())
        if found is None and complaints:
            raise FederationError(
                f"{self.out} holds checkpoints of another run, or damaged ones: take another folder, or remove them."
            )
        for sentence in complaints:
            log(WARNING, sentence)
        if found is None:
            return False
        kept, self.ledger = found
        self._server = replace(kept, policy_state=kept.policy_state["policy"])
        self._enter_cell(kept.statistics.dataset_sizes)
        self._rates.restore(kept.policy_state["rates"])
        log(INFO, "going on after round %s, from %s", kept.round_index, self.out)
        self._resumed = True
        return True

    def _probe(self, arrays: ArrayRecord, grid: Grid) -> None:
        """The statistics of everybody at the initial model; the first decision needs them."""
        weights = self._layout.flatten(arrays)
        told = {self.roster.nodes[client]: self._instruction("probe", client) for client in self.roster.nodes}
        messages = [self._message(one, arrays, self._config) for one in told.values()]
        sizes = np.zeros(self.roster.num_clients)
        reports: dict[int, Any] = {}
        for reply in exchange(grid, messages, timeout_s=self._timeout_s):
            instruction = told[reply.node]
            try:
                upload, count = read_reply(reply.message, instruction, self._rules.codec, len(weights))
            except ReplyError as error:
                raise FederationError(f"client {instruction.client} could not be measured: {error}") from None
            self.roster.time_empty(reply)
            sizes[instruction.client] = count
            reports[instruction.client] = (upload.report, upload.forecast)
        silent = sorted(set(range(self.roster.num_clients)) - set(reports))
        if silent:
            raise FederationError(f"clients {silent} did not measure the initial model within {self._timeout_s:g} s.")
        blank = uplink.unheard(sizes, self._rules.codec)
        statistics = uplink.heard(blank, reports, safety_margin=self._rules.safety_margin)
        self._enter_cell(sizes)
        self._server = Server(0, weights, self._rules.policy.init(statistics), statistics)
        if self.out is not None:
            write_text_whole(
                self.out / "scenario.toml", scenario_to_toml(self.scenario, policy=self.policy, seed=self.seed)
            )

    def _enter_cell(self, dataset_sizes: FloatArray) -> None:
        self._cell = build_world(self.scenario, self.seed, dataset_sizes).cell
        self._rates = self._make_rates(self._cell)
        if isinstance(self._rates, MeasuredRates):
            look_for_objects_often()

    def _instruction(
        self, act: Literal["probe", "train"], client: int, num_bits: int = 0, rate_bps: float = 0.0
    ) -> Instruction:
        codec = self.scenario.codec
        n = self._server.round_index if act == "train" else 0
        return Instruction(act, n, client, num_bits, codec.name, json.dumps(codec.options), self.seed, rate_bps)

    def _message(self, told: Instruction, arrays: ArrayRecord, config: ConfigRecord) -> Message:
        content = RecordDict({ARRAYS: arrays, CONFIG: config, INSTRUCTION: told.record()})
        node = self.roster.nodes[told.client]
        return Message(
            content, node, MessageType.TRAIN, ttl=self._timeout_s, group_id=f"{told.act}-{told.round_index + 1}"
        )

    def _accept(
        self, reply: Message, asked: Message, told: Instruction, uploads: dict[int, uplink.Upload]
    ) -> uplink.Upload:
        if not reply.has_error() and reply.metadata.src_node_id != asked.metadata.dst_node_id:
            raise ReplyError(f"node {asked.metadata.dst_node_id} was asked.")
        if told.client in uploads:
            raise ReplyError(f"client {told.client} has replied already.")
        return read_reply(reply, told, self._rules.codec, self._layout.num_parameters)[0]

    def _time(self, client: int, reply: Message, upload: uplink.Upload) -> None:
        """How long the upload took beyond what an empty reply takes, which also takes out any difference of clocks."""
        node = reply.metadata.src_node_id
        seen = self._seconds.get(reply.metadata.message_id, time.time() - reply.metadata.created_at)
        self._rates.heard(client, upload.size_bits, seen - self.roster.delays_s.get(node, 0.0))

    def _score(self, weights: Flat) -> tuple[float, float]:
        if self._evaluate is not None:
            self._scores = self._evaluate(self._server.round_index + 1, self._layout.unflatten(weights))
        scores = self._scores or MetricRecord()
        return float(scores.get("accuracy", np.nan)), float(scores.get("loss", np.nan))

    def _require_life(self) -> None:
        if self._silent_rounds >= self.patience:
            raise FederationError(
                f"no client sent anything usable in {self._silent_rounds} rounds in a row; the warnings above say why. "
                "What was reached is in the checkpoint."
            )

    def _save(self) -> None:
        if self.out is not None:
            state = {"policy": self._server.policy_state, "rates": self._rates.state()}
            kept = replace(self._server, policy_state=state)
            checkpoint.save(self.out / "checkpoints", kept, self.ledger, self._fingerprint())

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(settings_key(self.scenario, self.policy, self.seed).encode())
        digest.update(json.dumps([self._layout.names, self._layout.shapes]).encode())
        return digest.hexdigest()

    def _write_run(self) -> None:
        """The same tables as a simulated run leaves, so that the same report reads them."""
        assert self.out is not None
        rounds, clients = self.ledger.frames()
        row = self.ledger.last
        summary = summarise(
            self.scenario,
            self.policy,
            self.seed,
            self.ledger,
            self._server.statistics.dataset_sizes,
            finished=True,
            accuracy=float(row["test_accuracy"]),
            loss=float(row["test_loss"]),
            **self._about,
        )
        codec = self.scenario.codec.name
        run = Run(self.policy, codec, self.seed, rounds, clients, self.weights, summary, finished=True)
        write_run(self.out, run)
