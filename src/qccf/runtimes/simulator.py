"""A training run: setup, rounds, checkpoints, and the run folder."""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qccf.core.contracts import Statistics
from qccf.core.errors import RunFolderError
from qccf.core.files import alone_in
from qccf.core.streams import stream
from qccf.learning.datasets import Dataset, available_dataset, data_folder, load_dataset
from qccf.learning.losses import build_loss
from qccf.learning.models.registry import build_model, importable
from qccf.learning.optimizers import optimizer_maker
from qccf.learning.results import Flat, LocalResult, LocalStatistics
from qccf.learning.transforms import TRANSFORMS
from qccf.quantization.protocol import Forecast
from qccf.rounds import checkpoint, uplink
from qccf.rounds.extension import require_extensible
from qccf.rounds.ledger import Ledger
from qccf.rounds.privacy import check_privacy, client_privacy, privatised
from qccf.rounds.round import OpenRound, RoundRules, ServerState, first_state, run_round
from qccf.rounds.run import Run, finished_run
from qccf.rounds.run_folder import (
    CHECKPOINTS,
    begin_run,
    held_run,
    holds_results,
    require_same_run,
    write_run,
)
from qccf.rounds.setup import build_rules, scenario_codec, with_counted_parameters
from qccf.rounds.targets import may_stop
from qccf.rounds.world import build_world
from qccf.runtimes.clients import Clients
from qccf.settings.loading import Scenario, digest, run_digest


@dataclass(frozen=True)
class RoundEvent:
    """What a callback gets after each round."""

    scenario: Scenario
    ledger: Ledger
    round_seconds: float


Callback = Callable[[RoundEvent], None]


class TrainedUploads:
    """Uploads and statistics from training."""

    def __init__(self, clients: Clients, rules: RoundRules, weights: Flat) -> None:
        self._clients = clients
        self._rules = rules
        self._initial_weights = weights

    def initial_statistics(self) -> Statistics:
        """What all clients measure at the initial model."""
        codec, weights = self._rules.codec, self._initial_weights

        def report(client: int, result: LocalResult) -> tuple[LocalStatistics, Forecast]:
            result = self._private(client, result, weights, "probe")
            return result.statistics, codec.forecast(uplink.coded_vector(codec, result.weights, weights))

        reports = self._clients.probe(weights, report)
        blank = uplink.blank_statistics(self._clients.dataset_sizes, codec)
        return uplink.updated_statistics(blank, reports, safety_margin=self._rules.safety_margin)

    def uploads(self, state: ServerState, opened: OpenRound) -> Mapping[int, uplink.Upload]:
        weights = state.weights
        assert weights is not None
        return self._clients.train(
            np.flatnonzero(opened.to_train),
            weights,
            state.round_index,
            lambda client, result: self.encoded(client, result, weights, state.round_index, opened),
        )

    def encoded(
        self, client: int, result: LocalResult, received: Flat, round_index: int, opened: OpenRound
    ) -> uplink.Upload:
        """What a client sends of its training, with the bits that it was told to use."""
        return uplink.encode(
            self._rules.codec,
            self._private(client, result, received, "batches", round_index),
            received,
            uplink.instructed_bits(opened.decision, client),
            client=client,
            round_index=round_index,
            seed=self._rules.seed,
        )

    def _private(self, client: int, result: LocalResult, received: Flat, *name: str | int) -> LocalResult:
        """The result after clipping and noise. The noise can be computed again, so this only simulates privacy."""
        scenario, trains = self._clients.scenario, name[0] == "batches"
        size = self._clients.dataset_sizes[client] if trains else scenario.data.dataset_size_mean
        rng = stream(self._rules.seed, "privacy", client, *name)
        return privatised(result, received, client_privacy(scenario, float(size)), rng)

    def evaluate(self, weights: Flat | None, round_index: int) -> tuple[float, float]:
        assert weights is not None
        scenario = self._clients.scenario
        if is_evaluated(scenario, round_index + 1):
            return self._clients.evaluate(weights, scenario.evaluation.samples)
        return np.nan, np.nan


def is_evaluated(scenario: Scenario, rounds: int) -> bool:
    """Whether the model is tested after this number of rounds; it always is after the last."""
    return rounds == scenario.federation.rounds or rounds % scenario.evaluation.every == 0


def is_over(scenario: Scenario, ledger: Ledger) -> bool:
    """Whether all rounds are done, or the accuracy is reached at which the run stops."""
    return len(ledger) >= scenario.federation.rounds or may_stop(ledger.accuracies, scenario.evaluation)


def simulate(
    scenario: Scenario,
    policy: str | None = None,
    *,
    seed: int | None = None,
    out: Path | None = None,
    extend: bool = False,
    data_dir: Path | None = None,
    dataset: Dataset | None = None,
    model: Any = None,
    callbacks: Sequence[Callback] = (),
    warn: Callable[[str], None] = print,
) -> Run:
    """Train a federation. With `out`, write a run folder there, and resume the run that the folder holds.

    A folder that holds another run is refused. With `extend` it may hold the same run with fewer rounds or a lower
    accuracy to stop at, which is then continued bit for bit as if it had been longer from the start. An interrupt ends
    the run after the round's checkpoint is safe; the folder then holds what was reached.

    `model` is a `torch.nn.Module`, or a class or function that makes one; without it the scenario names the model.
    """
    scenario = scenario.replaced(
        policy={"name": policy or scenario.policy.name},
        federation={"seed": scenario.federation.seed if seed is None else seed},
    )
    if model is not None:
        model, name = importable(model)
        scenario = scenario.replaced(learning={"model": name})
    scenario = resolved_scenario(scenario, None if dataset else data_folder(data_dir), warn, model)
    data = dataset or load_dataset(scenario.data.dataset, data_folder(data_dir), seed=0, options=scenario.data.options)
    if out is None:
        return _simulate(scenario, data, model, None, extend, callbacks, warn)
    with alone_in(out, CHECKPOINTS):
        run = _simulate(scenario, data, model, out, extend, callbacks, warn)
        write_run(out, run)
    return run


def _simulate(
    scenario: Scenario,
    data: Dataset,
    model: Any,
    out: Path | None,
    extend: bool,
    callbacks: Sequence[Callback],
    warn: Callable[[str], None],
) -> Run:
    world = build_world(scenario, scenario.federation.seed)

    def fingerprint_of(one: Scenario) -> str:
        return run_fingerprint(one, data, model)

    fingerprint = fingerprint_of(scenario)
    resumed = None
    if out is not None:
        held = held_run(out) if extend else None
        resumed = (
            _resumed(scenario, fingerprint, out, warn)
            if held is None
            else _extended(scenario, fingerprint_of, out, held, warn)
        )
        begin_run(out, scenario)
    with Clients(scenario, data, world.dataset_sizes, scenario.federation.seed, model=model) as clients:
        codec = scenario_codec(scenario, clients.layer_sizes())
        rules = build_rules(scenario, codec, clients.layer_sizes())
        weights = clients.initial_weights()
        uplink.warm_up(codec, len(weights))
        source = TrainedUploads(clients, rules, weights)
        state, ledger = resumed or (first_state(rules, source, weights), Ledger())
        accuracy, loss, finished = math.nan, math.nan, False
        try:
            while not is_over(scenario, ledger):
                started = time.perf_counter()
                state = run_round(state, rules, world, source, ledger)
                due = state.round_index % scenario.execution.checkpoint_every == 0
                if out is not None and (due or is_over(scenario, ledger)):
                    checkpoint.save(out / CHECKPOINTS, state, ledger, fingerprint)
                event = RoundEvent(scenario, ledger, time.perf_counter() - started)
                for callback in callbacks:
                    callback(event)
            assert state.delivered is not None
            accuracy, loss = clients.evaluate(state.delivered)
            finished = True
        except KeyboardInterrupt:
            ledger.truncate(state.round_index)
            if state.round_index == 0:
                raise
            accuracy, loss = ledger.last["test_accuracy"], ledger.last["test_loss"]
        about = {"precision": clients.precision, "device": clients.device, **about_data(data), "packages": packages()}
    return finished_run(
        scenario, ledger, weights=state.delivered, finished=finished, accuracy=accuracy, loss=loss, **about
    )


def _resumed(
    scenario: Scenario, fingerprint: str, out: Path, warn: Callable[[str], None]
) -> tuple[ServerState, Ledger] | None:
    """Where the run in the folder stopped; None where it has not begun. Refuses a folder of another run."""
    require_same_run(out, scenario)
    found, complaints = checkpoint.latest(out / CHECKPOINTS, fingerprint)
    if found is None and checkpoint.holds_foreign(out / CHECKPOINTS, fingerprint):
        raise RunFolderError(
            f"{out / CHECKPOINTS} belongs to a run with other settings, other data, another version of qccf or "
            "of your own code: name another folder with --out, or replace that run with --force."
        )
    if found is None and (complaints or holds_results(out)):
        reasons = f" ({' '.join(complaints).rstrip('.')})" if complaints else ""
        raise RunFolderError(
            f"{out} holds no checkpoint from which its run can be resumed{reasons}: restore one, name another folder "
            "with --out, or start again with --force."
        )
    for sentence in complaints:
        warn(sentence)
    return found


def _extended(
    scenario: Scenario,
    fingerprint_of: Callable[[Scenario], str],
    out: Path,
    held: Scenario,
    warn: Callable[[str], None],
) -> tuple[ServerState, Ledger] | None:
    """Where the run in the folder stopped, as a checkpoint of the longer run."""
    require_extensible(held, scenario)
    found = _resumed(held, fingerprint_of(held), out, warn)
    rounds = held.federation.rounds
    if found is None or run_digest(held) == run_digest(scenario):
        return found
    state, ledger = found
    if rounds < scenario.federation.rounds and state.round_index == rounds and not is_evaluated(scenario, rounds):
        ledger.drop_last_evaluation()
    checkpoint.save(out / CHECKPOINTS, state, ledger, fingerprint_of(scenario))
    return found


def resolved_scenario(
    scenario: Scenario, data_dir: Path | None, warn: Callable[[str], None], model: Any = None
) -> Scenario:
    """The scenario with its model's counted parameters and the first of its dataset and fallbacks that is available.

    `warn` says so if it is a fallback. Without a folder the dataset is not looked for.
    """
    scenario = with_counted_parameters(scenario, always=True, model=model)
    _check_training(scenario)
    check_privacy(scenario)
    if data_dir is None:
        return scenario
    wanted = [scenario.data.dataset, *scenario.data.fallbacks]
    found, reason = available_dataset(wanted, data_dir)
    if found != wanted[0]:
        warn(f"{reason} Using {found} instead, because data.fallbacks allows it.")
    return scenario.replaced(data={"dataset": found, "fallbacks": []})


def _check_training(scenario: Scenario) -> None:
    """Build the loss and the optimizer and find the transforms, so that a mistake is refused before data is read."""
    learning = scenario.learning
    build_loss(learning.loss, learning.loss_options)
    make = optimizer_maker(
        learning.optimizer,
        learning_rate=learning.learning_rate,
        momentum=learning.momentum,
        weight_decay=learning.weight_decay,
    )
    if make is not None:
        make([torch.nn.Parameter(torch.zeros(1))])
    for name in scenario.data.transform:
        TRANSFORMS.find(name)


def run_fingerprint(scenario: Scenario, data: Dataset, model: Any = None) -> str:
    """The digest of everything that a run's numbers depend on: its settings and the labels of its data.

    A model that the settings do not name counts with its first weights.
    """
    labels = hashlib.sha256(data.train_labels.tobytes() + data.test_labels.tobytes()).hexdigest()
    if model is None:
        return run_digest(scenario, labels)
    made = build_model(model, scenario.federation.seed, **scenario.learning.model_options)
    state = [(name, list(values.shape), values.tolist()) for name, values in made.state_dict().items()]
    return run_digest(scenario, labels, digest(state))


def about_data(data: Dataset) -> dict[str, Any]:
    """What a summary says of the data."""
    return {"dataset": data.name, "data": data.source, "synthetic": data.synthetic}


def packages() -> dict[str, str]:
    """The versions of the packages that compute a run."""
    return {name: metadata.version(name) for name in ("torch", "numpy")}
