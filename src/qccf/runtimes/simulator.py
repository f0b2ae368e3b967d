"""A whole run: set up, round after round, checkpoints, and what is left in its folder at the end."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qccf._version import __version__
from qccf.core.contracts import Constants, FloatArray
from qccf.core.errors import ConfigError
from qccf.core.files import write_text_whole, write_whole
from qccf.devices import cost
from qccf.learning.datasets import Dataset, data_folder, load_dataset
from qccf.learning.results import Flat
from qccf.policies.registry import build_policy
from qccf.quantization.protocol import Codec
from qccf.quantization.registry import build_codec
from qccf.rounds import checkpoint, uplink
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import Rules, Server, first_statistics, run_round
from qccf.rounds.world import build_world
from qccf.runtimes.clients import Clients
from qccf.settings.loading import Scenario, scenario_to_toml, settings_digest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Progress:
    """What a callback sees after each round."""

    scenario: Scenario
    policy: str
    seed: int
    ledger: Ledger
    round_seconds: float


Callback = Callable[[Progress], None]


@dataclass(frozen=True)
class Run:
    """What a run came to."""

    policy: str
    codec: str
    seed: int
    rounds: "pd.DataFrame"
    clients: "pd.DataFrame"
    weights: Flat
    summary: dict[str, Any]
    finished: bool

    @property
    def label(self) -> str:
        """What the run is called beside others."""
        return str(self.summary["label"])


def simulate(
    scenario: Scenario,
    policy: str | None = None,
    *,
    seed: int | None = None,
    out: Path | None = None,
    data_dir: Path | None = None,
    dataset: Dataset | None = None,
    callbacks: Sequence[Callback] = (),
    warn: Callable[[str], None] = print,
) -> Run:
    """Run a federation. With `out`, leave a folder there, and go on from it if it holds the same run unfinished.

    An interrupt ends the run after the round's checkpoint is safe; what is written then is what was reached.
    """
    name = policy or scenario.policy.name
    seed = scenario.federation.seed if seed is None else seed
    world = build_world(scenario, seed)
    data = dataset or load_dataset(scenario.data.dataset, data_folder(data_dir), seed=0)
    fingerprint = run_fingerprint(scenario, name, seed, data)
    if out is not None:
        write_text_whole(out / "scenario.toml", scenario_to_toml(scenario, policy=name, seed=seed))
    with Clients(scenario, data, world.dataset_sizes, seed) as clients:
        codec = build_codec(
            scenario.codec.name, scenario.learning.num_parameters, clients.layer_sizes(), **scenario.codec.options
        )
        uplink.warm_up(codec, scenario.learning.num_parameters)
        rules = build_rules(scenario, name, codec, seed)
        server, ledger = _start(clients, rules, out, fingerprint, warn)
        accuracy, loss, finished = math.nan, math.nan, False
        try:
            while server.round_index < scenario.federation.rounds:
                started = time.perf_counter()
                server = run_round(server, rules, world, clients, ledger)
                due = server.round_index % scenario.execution.checkpoint_every == 0
                if out is not None and (due or server.round_index == scenario.federation.rounds):
                    checkpoint.save(out / "checkpoints", server, ledger, fingerprint)
                progress = Progress(scenario, name, seed, ledger, time.perf_counter() - started)
                for callback in callbacks:
                    callback(progress)
            accuracy, loss = clients.evaluate(server.weights)
            finished = True
        except KeyboardInterrupt:
            ledger.truncate(server.round_index)
            if server.round_index == 0:
                raise
            accuracy, loss = ledger.last["test_accuracy"], ledger.last["test_loss"]
        about = {"precision": clients.precision, "device": clients.device, **described(data)}
        summary = summarise(
            scenario,
            name,
            seed,
            ledger,
            clients.dataset_sizes,
            finished=finished,
            accuracy=accuracy,
            loss=loss,
            **about,
        )
    rounds, frames = ledger.frames()
    run = Run(name, scenario.codec.name, seed, rounds, frames, server.weights, summary, finished)
    if out is not None:
        write_run(out, run)
    return run


def build_rules(scenario: Scenario, policy: str, codec: Codec, seed: int) -> Rules:
    """The rules of a run of that policy with that codec."""
    constants = coded_constants(scenario, codec)
    return Rules(build_policy(policy, scenario, constants), codec, constants, seed, scenario.codec.safety_margin)


def coded_constants(scenario: Scenario, codec: Codec) -> Constants:
    """The scenario's constants with what that codec's payloads cost."""
    if codec.affine and not (codec.bits_per_index > 0.0 and codec.overhead_bits >= 0.0):
        raise ConfigError(
            f"codec {scenario.codec.name!r} states {codec.bits_per_index:g}·q + {codec.overhead_bits:g} bits, but an "
            "affine size grows with q: say affine = False and list the sizes in the forecast."
        )
    return replace(scenario.constants(), bits_per_index=codec.bits_per_index, overhead_bits=codec.overhead_bits)


def floor_j(dataset_sizes: FloatArray, rounds: int, constants: Constants) -> float:
    """What everybody's computing alone takes at the lowest frequency, with nothing sent: no codec can spend less."""
    cycles = cost.training_cycles(dataset_sizes, constants)
    return rounds * float(cost.compute_energy_j(cycles, constants.frequency_min_hz, constants).sum())


def run_fingerprint(scenario: Scenario, policy: str, seed: int, data: Dataset) -> str:
    """What a run's numbers depend on: its settings and the labels of its data."""
    digest = settings_digest(scenario, policy, seed)
    for labels in (data.train_labels, data.test_labels):
        digest.update(labels.tobytes())
    return digest.hexdigest()


def _start(
    clients: Clients, rules: Rules, out: Path | None, fingerprint: str, warn: Callable[[str], None]
) -> tuple[Server, Ledger]:
    """The last checkpoint of the same run, or the state before the first round."""
    if out is not None:
        found, complaints = checkpoint.latest(out / "checkpoints", fingerprint)
        for sentence in complaints:
            warn(sentence)
        if found is not None:
            return found
    weights = clients.initial_weights()
    statistics = first_statistics(clients, weights, rules)
    return Server(0, weights, rules.policy.init(statistics), statistics), Ledger()


def described(data: Dataset) -> dict[str, Any]:
    """What a summary says of the data."""
    return {"dataset": data.name, "data": data.source, "synthetic": data.synthetic}


def summarise(
    scenario: Scenario,
    policy: str,
    seed: int,
    ledger: Ledger,
    dataset_sizes: FloatArray,
    *,
    finished: bool,
    accuracy: float,
    loss: float,
    **about: Any,
) -> dict[str, Any]:
    """Accuracy and loss are of all test samples for a finished run, of the last round for one that was stopped."""
    clients_columns = ledger.clients()
    on = clients_columns["participated"]
    return {
        "label": policy,
        "policy": policy,
        "codec": scenario.codec.name,
        "seed": seed,
        "finished": finished,
        "rounds": len(ledger),
        "test_accuracy": None if math.isnan(accuracy) else accuracy,
        "test_loss": None if math.isnan(loss) else loss,
        "energy_j": float(ledger.last["cumulative_energy_j"]),
        "floor_j": floor_j(dataset_sizes, len(ledger), scenario.constants()),
        "mean_bits": float(clients_columns["num_bits"][on].mean()) if on.any() else None,
        "participation": float(on.mean()),
        "missed": float(clients_columns["missed"].sum() / max(on.sum(), 1)),
        **about,
        "version": __version__,
        "packages": {name: metadata.version(name) for name in ("torch", "numpy")},
    }


def write_run(out: Path, run: Run) -> None:
    """The tables and the summary of a run; the summary comes last, so that its presence means the rest is there."""
    write_whole(out / "rounds.parquet", lambda path: run.rounds.to_parquet(path, index=False))
    write_whole(out / "clients.parquet", lambda path: run.clients.to_parquet(path, index=False))
    write_text_whole(out / "summary.json", json.dumps(run.summary, indent=2) + "\n")
