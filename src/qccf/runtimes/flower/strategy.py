"""Any policy as a Flower strategy: the simulator's round with a network between server and clients."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from qccf.core.contracts import Observation
from qccf.core.errors import ConfigError, FederationError, ReplyError
from qccf.core.files import alone_in
from qccf.devices.cost import transmit_powers_w
from qccf.learning.results import Flat
from qccf.rounds import checkpoint, uplink
from qccf.rounds.feasibility import require_feasible
from qccf.rounds.ledger import Ledger
from qccf.rounds.privacy import check_privacy, client_privacy
from qccf.rounds.round import OpenRound, RoundRules, ServerState, close_round, open_round, state_at
from qccf.rounds.run import Run, finished_run
from qccf.rounds.run_folder import CHECKPOINTS, begin_run, holds_results, write_run
from qccf.rounds.setup import build_rules, claim_rules, scenario_codec
from qccf.rounds.targets import may_stop
from qccf.rounds.world import scenario_cell
from qccf.runtimes.flower.devices import batteries_after, with_stated_devices
from qccf.runtimes.flower.exchange import exchange, prompt_object_pulls
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.messages import ARRAYS, CONFIG, INSTRUCTION, Act, Instruction, read_reply
from qccf.runtimes.flower.rates import SOURCES, MeasuredRates, RateSource, SimulatedRates, throttled_rates_bps
from qccf.runtimes.flower.registration import Registration, listed, why_nobody_trains
from qccf.runtimes.flower.roster import Roster
from qccf.settings.aggregation import WHOLE_MODEL
from qccf.settings.loading import Scenario, run_digest
from qccf.wireless.cell import Cell

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
SHOWN = ("energy_j", "cumulative_energy_j", "participants", "arrived", "missed")

DECODED_BYTES = 2**28
"""Limit of the decoded uploads that a round keeps in memory. An upload beyond it is kept as its payload, which is some
times smaller, and is decoded a second time when it is aggregated."""

JUDGES = 3
"""Of two clients nobody can tell which one lies, so a run does not begin with fewer than this unless it is told to."""

ORPHAN_S = 120.0
"""How long a new server waits for the folder: that of a SuperLink that was killed needs some time to end."""


class QccfStrategy(Strategy):
    """Decides in each round which clients train, and with how many bits each upload is quantized.

    The clients' app needs the mod `quantize`. The clients report their dataset sizes; the scenario states the number of
    clients, radio, deadline, policy and codec. With `out`, the strategy writes a checkpoint after each round, and a
    server that is started again resumes from it. `rates` is "simulated", "measured", or a function from the cell to a
    RateSource. With `throttle`, each client uploads no faster than its simulated rate. `buffers` names the arrays that
    are averaged but not quantized; None means the running averages of PyTorch's normalization layers. Arrays of whole
    numbers stay as they are on the server. The run begins when all clients are online, or after `join_timeout_s` with
    at least `least_clients` of them; 0 stands for half of them, and at least three. It fails after `patience`
    consecutive rounds without a usable reply to the messages sent, unless one client alone was asked while others are
    there, or when no client is online for `join_timeout_s`.
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
        least_clients: int = 0,
        patience: int = 3,
        buffers: Sequence[str] | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        if scenario.server.downlink != WHOLE_MODEL:
            raise ConfigError(
                f"server.downlink = {scenario.server.downlink!r} is for the simulator, and Flower sends whole models: "
                f"set server.downlink = {WHOLE_MODEL!r}."
            )
        self.policy = policy or scenario.policy.name
        self.seed = scenario.federation.seed if seed is None else seed
        self.scenario = scenario.replaced(policy={"name": self.policy}, federation={"seed": self.seed})
        self.out = out
        self.throttle = throttle
        self.join_timeout_s = join_timeout_s
        count = scenario.federation.num_clients
        self.least_clients = least_clients or max(-(-count // 2), min(count, JUDGES))
        self.patience = patience
        self._buffers = buffers
        self.ledger = Ledger()
        self.roster = Roster(scenario.federation.num_clients)
        self.registration = Registration(scenario.federation.num_clients, claim_rules(scenario))
        self._make_rates = SOURCES[rates] if isinstance(rates, str) else rates
        self._about = about or {}
        self._timeout_s = 3600.0
        self._config = ConfigRecord()
        self._evaluate: Evaluate | None = None
        self._scores: MetricRecord | None = None
        self._rounds_without_upload = 0
        self._asked_in_vain: set[int] = set()
        self._reply_seconds: dict[str, float] = {}
        self._sent: list[tuple[Message, Instruction]] = []
        self._begun = False
        self._resumed = False
        self._layout: Layout
        self._first_arrays: ArrayRecord
        self._rules: RoundRules
        self._cell: Cell
        self._rates: RateSource
        self._server: ServerState
        self._opened: OpenRound

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
        """Run the remaining rounds. A round waits for its replies for at most `timeout` seconds."""
        self._timeout_s, self._evaluate, self._config = timeout, evaluate_fn, train_config or ConfigRecord()
        if self.out is None:
            result = self._run(grid, initial_arrays, num_rounds)
            self._log_health(self._finished_run())
            return result
        with alone_in(self.out, CHECKPOINTS, wait_s=ORPHAN_S):
            result = self._run(grid, initial_arrays, num_rounds)
            run = self._finished_run()
            write_run(self.out, run)
        self._log_health(run)
        return result

    def _run(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> Result:
        result = Result()
        with ExitStack() as stack:
            stack.callback(self.roster.close)
            self._begin(initial_arrays, grid)
            if isinstance(self._rates, MeasuredRates):
                stack.enter_context(prompt_object_pulls())
            while self._server.round_index < num_rounds and not may_stop(
                self.ledger.accuracies, self.scenario.evaluation
            ):
                server_round = self._server.round_index + 1
                log(INFO, "[ROUND %s/%s]", server_round, num_rounds)
                messages = list(self.configure_train(server_round, self.arrays, self._config, grid))
                replies = exchange(grid, messages, timeout_s=self._timeout_s)
                self._reply_seconds = {reply.message.metadata.message_id: reply.seconds for reply in replies}
                _, metrics = self.aggregate_train(server_round, [reply.message for reply in replies])
                if metrics is not None:
                    result.train_metrics_clientapp[server_round] = metrics
                if self._scores is not None:
                    result.evaluate_metrics_serverapp[server_round] = self._scores
                if self._gives_up():
                    raise FederationError(
                        f"no client sent a usable upload in {self._rounds_without_upload} rounds in a row; the "
                        "warnings above state the reasons. The checkpoint holds the last state."
                    )
        result.arrays = self._layout.unflatten(self.delivered, self._first_arrays)
        return result

    def configure_train(
        self,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> Iterable[Message]:
        """Decide the round, and make one message for each client that is to train."""
        self._begin(arrays, grid)
        n = self._server.round_index
        if server_round != n + 1:
            raise FederationError(f"round {server_round} was requested, but the next is {n + 1}: use strategy.start.")
        self._wait_for_clients(grid)
        self._take_devices()
        rates_bps = self._rates.rates_bps(n).copy()
        rates_bps[[client for client in range(self.roster.num_clients) if client not in self.roster.nodes]] = 0.0
        estimated = self._cell.radio.is_estimated and isinstance(self._rates, SimulatedRates)
        true_bps = self._cell.round_rates_bps(n) if estimated else None
        observation = Observation(rates_bps, self._server.statistics)
        self._opened = open_round(self._server, self._rules, observation, true_bps)
        decision = self._opened.decision
        to_train = [int(client) for client in np.flatnonzero(self._opened.to_train) if int(client) in self.roster.nodes]
        powers_w = transmit_powers_w(decision, self._rules.constants)
        limits_bps = (
            throttled_rates_bps(self._cell, n, decision, self._rules.constants) if self.throttle else 0.0 * powers_w
        )
        instructions = [
            self._instruction(
                "train",
                client,
                num_bits=uplink.instructed_bits(decision, client),
                rate_bps=float(limits_bps[client]),
                power_w=float(powers_w[client]),
                frequency_hz=float(decision.frequencies_hz[client]),
            )
            for client in to_train
        ]
        log(INFO, "%s of %s clients train: %s", len(to_train), self.roster.num_clients, to_train)
        if not to_train:
            why = why_nobody_trains(self._opened, sorted(self.roster.nodes), self.policy, self._rules.constants)
            log(WARNING, "nobody trains in round %s: %s.", server_round, why)
        messages = [self._message(instruction, arrays, config) for instruction in instructions]
        self._sent = list(zip(messages, instructions, strict=True))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check every reply, aggregate the valid ones, and settle the round."""
        uploads: dict[int, uplink.Upload] = {}
        responsive: set[int] = set()
        sent = {message.metadata.message_id: (message, instruction) for message, instruction in self._sent}
        for reply in replies:
            message, instruction = sent.get(reply.metadata.reply_to_message_id, (None, None))
            try:
                if message is None or instruction is None:
                    raise ReplyError("it answers no message of this round.")
                upload, count = self._checked_upload(reply, message, instruction, uploads)
            except ReplyError as error:
                client = "unknown" if instruction is None else instruction.client
                node = reply.metadata.src_node_id
                log(WARNING, "a reply of node %s (client %s) is rejected: %s", node, client, error)
            else:
                uploads[instruction.client] = upload
                self._warn(self.registration.report(instruction.client, count))
                self._record_rate(instruction.client, reply, upload)
            if instruction is not None and not reply.has_error():
                responsive.add(instruction.client)
                self.roster.record_work(instruction.client)
        missing = [instruction.client for _, instruction in self._sent if instruction.client not in uploads]
        for client in missing:
            log(WARNING, "client %s sent no usable upload in round %s and counts as missed.", client, server_round)
        self.roster.require_hello([client for client in missing if client not in responsive])
        if uploads:
            self._rounds_without_upload, self._asked_in_vain = 0, set()
        elif self._sent:
            self._rounds_without_upload += 1
            self._asked_in_vain |= {instruction.client for _, instruction in self._sent}
        after = close_round(self._server, self._rules, self._opened, uploads, self.ledger, self._score)
        self._server = replace(after, statistics=replace(after.statistics, dataset_sizes=self.registration.sizes))
        self._save()
        for client in self.ledger.clipped():
            log(WARNING, "the update of client %s in round %s was too long and is clipped.", client, server_round)
        row = self.ledger.last
        score = f", accuracy {row['test_accuracy']:.3f}" if np.isfinite(row["test_accuracy"]) else ""
        log(INFO, "%s arrived, %.4g J so far%s", row["arrived"], row["cumulative_energy_j"], score)
        return self.arrays, MetricRecord({name: float(row[name]) for name in SHOWN})

    def configure_evaluate(self, *_: Any) -> Iterable[Message]:
        """Only the server evaluates: an evaluation by clients would cost energy that no policy decided on."""
        return []

    def aggregate_evaluate(self, *_: Any) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        log(INFO, "policy %s, codec %s, %s clients", self.policy, self.scenario.codec.name, self.roster.num_clients)

    @property
    def arrays(self) -> ArrayRecord:
        """The global model that clients train."""
        return self._layout.unflatten(self.weights, self._first_arrays)

    @property
    def weights(self) -> Flat:
        """The same as one vector."""
        assert self._server.weights is not None
        return self._server.weights

    @property
    def delivered(self) -> Flat:
        """The model that is evaluated and delivered, as one vector: the average of global models, or the last one."""
        assert self._server.delivered is not None
        return self._server.delivered

    def _gives_up(self) -> bool:
        """Whether the patience is at an end. Not if only one client was asked all the time and there are others."""
        others = len(self.roster.nodes) > 1
        return self._rounds_without_upload >= self.patience and (len(self._asked_in_vain) > 1 or not others)

    def _begin(self, arrays: ArrayRecord, grid: Grid) -> None:
        """Resume from the last checkpoint, or wait for all clients and let them measure the initial model."""
        if self._begun:
            return
        self._layout = Layout.of(arrays, self._buffers)
        self._first_arrays = arrays
        counted = {"num_parameters": self._layout.num_parameters, "num_buffers": self._layout.num_buffers}
        self.scenario = self.scenario.replaced(learning=counted)
        check_privacy(self.scenario)
        self._build_rules()
        self.summary()
        if not self._resume():
            self.roster.wait_for_all(grid, least=self.least_clients, timeout_s=self.join_timeout_s)
            self._take_devices()
            self._probe(arrays, grid)
        self._begun = True

    def _build_rules(self) -> None:
        rules = build_rules(self.scenario, scenario_codec(self.scenario, self._layout.sizes))
        self._rules = replace(rules, warn=partial(log, WARNING, "%s"))

    def _take_devices(self) -> None:
        """Give each client the device that its node stated when it came; the next decision uses its constants."""
        stated, self.roster.devices = self.roster.devices, {}
        self.scenario, changed, warnings = with_stated_devices(self.scenario, stated)
        self._warn(warnings)
        if not changed:
            return
        self._build_rules()
        names = self._rules.device_names or self.scenario.fleet().names
        for client in changed:
            log(INFO, "client %s is now this device: %s", client, names[client])
        if self._begun:
            self._place_batteries(changed)
            kept = self._rates.state()
            self._build_cell()
            self._rates.restore(kept)
            if self.out is not None:
                begin_run(self.out, self.scenario)

    def _place_batteries(self, changed: Sequence[int]) -> None:
        full_j, left_j = batteries_after(
            self._rules.batteries_j, self._server.batteries_j, changed, self.roster.num_clients
        )
        self._rules = replace(self._rules, batteries_j=full_j)
        self._server = replace(self._server, batteries_j=left_j)

    def _wait_for_clients(self, grid: Grid) -> None:
        """On resume wait for all clients; otherwise for at least one."""
        if self._resumed:
            self._resumed = False
            self.roster.wait_for_all(grid, least=0, timeout_s=self.join_timeout_s)
        self.roster.wait_for(grid, 1, timeout_s=self.join_timeout_s)

    def _resume(self) -> bool:
        if self.out is None:
            return False
        found, complaints = checkpoint.latest(self.out / CHECKPOINTS, self._fingerprint())
        if found is None and (complaints or holds_results(self.out)):
            reasons = " ".join(complaints).rstrip(".") or "its checkpoints are gone"
            raise FederationError(
                f"{self.out} holds a run that cannot be resumed ({reasons}): restore a checkpoint, or use another "
                "folder."
            )
        for sentence in complaints:
            log(WARNING, sentence)
        if found is None:
            return False
        saved, self.ledger = found
        self._server = replace(saved, policy_state=saved.policy_state["policy"])
        self.registration.restore(saved.policy_state.get("stated"), saved.statistics.dataset_sizes)
        devices = saved.policy_state.get("devices")
        if devices:
            self.scenario = self.scenario.replaced(devices={"nodes": devices})
            self._build_rules()
        self._build_cell()
        self._rates.restore(saved.policy_state["rates"])
        log(INFO, "resuming after round %s, from %s", saved.round_index, self.out)
        self._resumed = True
        return True

    def _probe(self, arrays: ArrayRecord, grid: Grid) -> None:
        """Get the statistics of all clients at the initial model; the first decision needs them.

        A client that fails or does not answer starts with the median of the others, and learns from its first upload.
        """
        weights = self._layout.flatten(arrays)
        instructions = {node: self._instruction("probe", client) for client, node in self.roster.nodes.items()}
        messages = [self._message(instruction, arrays, self._config) for instruction in instructions.values()]
        reports, stated = {}, {}
        for reply in exchange(grid, messages, timeout_s=self._timeout_s):
            instruction = instructions[reply.node]
            try:
                upload, count = read_reply(reply.message, instruction, self._rules.codec, len(weights))
            except ReplyError as error:
                log(WARNING, "client %s could not be measured: %s", instruction.client, error)
                continue
            self.roster.record_delay(reply)
            stated[instruction.client] = count
            reports[instruction.client] = (upload.statistics, upload.forecast)
        absent = sorted(set(range(self.roster.num_clients)) - set(reports))
        if not reports:
            raise FederationError(f"no client measured the initial model within {self._timeout_s:g} s.")
        if absent:
            log(WARNING, "clients %s start with the median of the others, until their first upload.", listed(absent))
        self.roster.require_hello(absent)
        self._warn(self.registration.begin(stated))
        blank = uplink.blank_statistics(self.registration.sizes, self._rules.codec)
        statistics = uplink.updated_statistics(blank, reports, safety_margin=self._rules.safety_margin)
        self._build_cell()
        require_feasible(self.scenario, self._cell, self.registration.sizes)
        self._server = state_at(self._rules, statistics, weights, self.registration.registered)
        if self.out is not None:
            begin_run(self.out, self.scenario)

    def _build_cell(self) -> None:
        self._cell = scenario_cell(self.scenario, self.seed)
        self._rates = self._make_rates(self._cell)

    def _instruction(
        self, act: Act, client: int, *, num_bits: int = 0, rate_bps: float = 0.0, **decided: Any
    ) -> Instruction:
        n = self._server.round_index if act == "train" else 0
        codec = self.scenario.codec
        made = Instruction(act, n, client, num_bits, codec.name, codec.options, self.seed, rate_bps, **decided)
        return replace(made, buffers=list(self._layout.buffers), privacy=self._told_privacy(act, client))

    def _told_privacy(self, act: Act, client: int) -> dict[str, float]:
        trains = act == "train"
        size = self._server.statistics.dataset_sizes[client] if trains else self.scenario.data.dataset_size_mean
        privacy = client_privacy(self.scenario, float(size))
        return privacy.told() if privacy else {}

    def _message(self, instruction: Instruction, arrays: ArrayRecord, config: ConfigRecord) -> Message:
        content = RecordDict({ARRAYS: arrays, CONFIG: config, INSTRUCTION: instruction.record()})
        node = self.roster.nodes[instruction.client]
        group = f"{instruction.act}-{instruction.round_index + 1}"
        return Message(content, node, MessageType.TRAIN, ttl=self._timeout_s, group_id=group)

    def _checked_upload(
        self, reply: Message, message: Message, instruction: Instruction, uploads: dict[int, uplink.Upload]
    ) -> tuple[uplink.Upload, int]:
        node = message.metadata.dst_node_id
        if not reply.has_error() and reply.metadata.src_node_id != node:
            raise ReplyError(f"the message went to node {node}.")
        if instruction.client in uploads:
            raise ReplyError(f"client {instruction.client} has replied already.")
        num_values = self._layout.num_values
        keep_decoded = 4 * num_values * (len(uploads) + 1) <= DECODED_BYTES
        return read_reply(reply, instruction, self._rules.codec, num_values, keep_decoded=keep_decoded)

    def _record_rate(self, client: int, reply: Message, upload: uplink.Upload) -> None:
        """Subtracting the time of an empty reply also removes any difference between the two clocks."""
        metadata = reply.metadata
        seconds = self._reply_seconds.get(metadata.message_id, time.time() - metadata.created_at)
        empty_s = self.roster.delays_s.get(metadata.src_node_id, 0.0)
        self._rates.record_upload(client, upload.size_bits, seconds - empty_s)

    def _score(self, weights: Flat | None, round_index: int) -> tuple[float, float]:
        if self._evaluate is not None and weights is not None:
            self._scores = self._evaluate(round_index + 1, self._layout.unflatten(weights, self._first_arrays))
        scores = self._scores or MetricRecord()
        return float(scores.get("accuracy", np.nan)), float(scores.get("loss", np.nan))

    def _save(self) -> None:
        if self.out is not None:
            kept = {"policy": self._server.policy_state, "rates": self._rates.state()}
            kept |= {"stated": self.registration.state(), "devices": self.scenario.devices.nodes}
            state = replace(self._server, policy_state=kept)
            checkpoint.save(self.out / CHECKPOINTS, state, self.ledger, self._fingerprint())

    def _fingerprint(self) -> str:
        """The run's identity. Devices that nodes state are not part of it, because they may change."""
        settings = self.scenario.replaced(devices={"nodes": {}})
        return run_digest(settings, self._layout.names, self._layout.shapes)

    def _finished_run(self) -> Run:
        """The same as a simulated run, so that the same report reads its folder."""
        scores = {name: float(self.ledger.last[f"test_{name}"]) for name in ("accuracy", "loss")}
        return finished_run(self.scenario, self.ledger, weights=self.delivered, **scores, **self._about)

    def _log_health(self, run: Run) -> None:
        self._warn(f"health: {finding.message}" for finding in run.findings)

    def _warn(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            log(WARNING, "%s", sentence)
