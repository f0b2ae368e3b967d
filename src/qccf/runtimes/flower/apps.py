"""A ServerApp and a ClientApp for the scenarios of qccf, configured by the run config of a Flower app."""

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from qccf.core.errors import ConfigError
from qccf.learning.datasets import Dataset, data_folder, load_dataset
from qccf.learning.results import Flat, LocalResult
from qccf.rounds.world import draw_dataset_sizes
from qccf.runtimes.clients import Clients
from qccf.runtimes.flower.exchange import POLL_S
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.messages import CONFIG, Instruction
from qccf.runtimes.flower.mod import reply_to
from qccf.runtimes.flower.roster import AbsentError
from qccf.runtimes.flower.strategy import SOURCES, QccfStrategy
from qccf.runtimes.simulator import about_data, packages
from qccf.settings.loading import Scenario, load_scenario

RUN_CONFIG: dict[str, Any] = {
    "scenario": "quick",
    "set": "",
    "data-dir": "",
    "out": "",
    "num-clients": 0,
    "rates": "simulated",
    "throttle": False,
    "round-timeout": 600.0,
    "join-timeout": 300.0,
}
"""The keys of a run config and their defaults.

`set` is a list of settings as in `qccf run --set`, separated by blanks. 0 clients: one client per node that is
online when the run begins.
"""

SETTLED_S = 3.0
"""The number of nodes is final when it has not changed for this time."""


def server_app() -> ServerApp:
    """Trains the scenario of the run config and writes a run folder."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = read_config(context)
        out = Path(config["out"]) if config["out"] else None
        num_clients = config["num-clients"] or saved_num_clients(out)
        num_clients = num_clients or count_nodes(grid, timeout_s=config["join-timeout"])
        scenario = config_scenario(config, num_clients)
        dataset = config_dataset(scenario.data.dataset, config["data-dir"])
        with _clients(scenario, dataset) as clients:
            strategy = QccfStrategy(
                scenario,
                out=out,
                rates=config["rates"],
                throttle=config["throttle"],
                join_timeout_s=config["join-timeout"],
                about={
                    "precision": clients.precision,
                    "device": clients.device,
                    **about_data(dataset),
                    "packages": packages(),
                },
            )
            layout = clients_layout(clients)

            def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
                last = server_round == scenario.federation.rounds
                samples = None if last else scenario.evaluation.samples
                accuracy, loss = clients.evaluate(layout.flatten(arrays), samples)
                return MetricRecord({"accuracy": accuracy, "loss": loss})

            strategy.start(
                grid,
                layout.unflatten(clients.initial_weights()),
                num_rounds=scenario.federation.rounds,
                timeout=config["round-timeout"],
                train_config=ConfigRecord({"num-clients": num_clients}),
                evaluate_fn=evaluate,
            )

    return app


def client_app() -> ClientApp:
    """One client of the scenario in the run config; the node's partition-id is its number."""
    app = ClientApp()

    @app.train()
    def reply(message: Message, context: Context) -> Message:
        def train(instruction: Instruction, layout: Layout, weights: Flat) -> tuple[LocalResult, int]:
            config = read_config(context)
            num_clients = message.content.config_records[CONFIG]["num-clients"]
            clients = _cached_clients(config["scenario"], config["set"], config["data-dir"], num_clients)
            clients_layout(clients).require(layout)
            client = instruction.client
            if instruction.act == "probe":
                results = clients.probe(weights, lambda _, result: result, [client])
            else:
                results = clients.train([client], weights, instruction.round_index, lambda _, result: result)
            return results[client], len(clients.shares[client])

        return reply_to(message, context, train)

    return app


def read_config(context: Context) -> dict[str, Any]:
    """The run config with defaults; refuses a value of the wrong type."""
    config = {name: context.run_config.get(name, default) for name, default in RUN_CONFIG.items()}
    for name, default in RUN_CONFIG.items():
        kind = int | float if isinstance(default, float) else type(default)
        if not isinstance(config[name], kind):
            raise ConfigError(f"{name} = {config[name]!r} in the run config must be {type(default).__name__}.")
    if config["rates"] not in SOURCES:
        raise ConfigError(f"rates = {config['rates']!r} in the run config: choose from {', '.join(SOURCES)}.")
    return config


def config_scenario(config: dict[str, Any], num_clients: int, *settings: str) -> Scenario:
    """The scenario that a run config names, with this number of clients."""
    chosen = [*config["set"].split(), f"federation.num_clients={num_clients}", *settings]
    return load_scenario(config["scenario"], chosen)


def saved_num_clients(out: Path | None) -> int:
    """The number of clients of the run to resume in this folder, or 0. Some of its nodes may be offline now."""
    before = out / "scenario.toml" if out is not None else None
    return load_scenario(before).federation.num_clients if before is not None and before.exists() else 0


def count_nodes(grid: Grid, *, timeout_s: float) -> int:
    """The number of nodes, once it no longer changes."""
    count, since, start = 0, time.monotonic(), time.monotonic()
    while True:
        found, now = len(list(grid.get_node_ids())), time.monotonic()
        count, since = (count, since) if found == count else (found, now)
        if count and now - since >= SETTLED_S:
            return count
        if now - start > timeout_s:
            raise AbsentError(f"no node came within {timeout_s:g} s: start SuperNodes, or raise join-timeout.")
        time.sleep(POLL_S)


def clients_layout(clients: Clients) -> Layout:
    """Names and shapes of the model's parameters."""
    shapes = clients.parameter_shapes()
    return Layout(tuple(shapes), tuple(shapes.values()))


def _clients(scenario: Scenario, dataset: Dataset) -> Clients:
    seed = scenario.federation.seed
    return Clients(scenario, dataset, draw_dataset_sizes(scenario, seed), seed)


@lru_cache(maxsize=2)
def _cached_clients(scenario: str, settings: str, data_dir: str, num_clients: int) -> Clients:
    """Loading the data takes longer than a round. A process that serves several messages loads them once."""
    alone = config_scenario({"scenario": scenario, "set": settings}, num_clients, "execution.workers=1")
    return _clients(alone, config_dataset(alone.data.dataset, data_dir))


@lru_cache(maxsize=2)
def config_dataset(name: str, data_dir: str) -> Dataset:
    return load_dataset(name, data_folder(Path(data_dir) if data_dir else None), seed=0)
