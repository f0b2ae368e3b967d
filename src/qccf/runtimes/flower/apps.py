"""A ServerApp and a ClientApp for the scenarios of qccf, configured by the run config of a Flower app."""

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from qccf.core.errors import ConfigError
from qccf.learning.datasets import Dataset, data_folder, load_dataset
from qccf.rounds.world import draw_dataset_sizes
from qccf.runtimes.clients import Clients
from qccf.runtimes.flower.exchange import POLL_S
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.messages import ARRAYS, CONFIG, METRICS, Instruction
from qccf.runtimes.flower.mod import quantize
from qccf.runtimes.flower.roster import AbsentError
from qccf.runtimes.flower.strategy import SOURCES, QccfStrategy
from qccf.runtimes.simulator import described
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
"""What a run config may hold, and what stands where it does not.

`set` is a list of settings like those of `qccf run --set`, separated by blanks. 0 clients stands for as many as there
are nodes when the run begins.
"""

SETTLED_S = 3.0
"""When no node came for so long, all are taken to be there."""


def server_app() -> ServerApp:
    """Trains the scenario of the run config and leaves the folder of a run."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = read_config(context)
        out = Path(config["out"]) if config["out"] else None
        num_clients = config["num-clients"] or clients_before(out)
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
                about={"precision": clients.precision, "device": clients.device, **described(dataset)},
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
    """One client of the scenario in the run config; its number is the node's partition-id."""
    app = ClientApp()

    @app.train(mods=[quantize])
    def train(message: Message, context: Context) -> Message:
        config = read_config(context)
        num_clients = message.content.config_records[CONFIG]["num-clients"]
        clients = _cached_clients(config["scenario"], config["set"], config["data-dir"], num_clients)
        told = Instruction.read(message)
        layout = clients_layout(clients)
        weights = layout.flatten(message.content.array_records[ARRAYS])
        if told.act == "probe":
            result = clients.probe(weights, lambda _, result: result, [told.client])[told.client]
        else:
            result = clients.train([told.client], weights, told.round_index, lambda _, result: result)[told.client]
        metrics = MetricRecord(
            {
                "num-examples": len(clients.shares[told.client]),
                "loss": result.report.loss,
                "gradient-norm-sq": result.report.gradient_norm_sq,
                "gradient-variance": result.report.gradient_variance,
                "weight-range": result.report.weight_range,
            }
        )
        return Message(RecordDict({ARRAYS: layout.unflatten(result.weights), METRICS: metrics}), reply_to=message)

    return app


def read_config(context: Context) -> dict[str, Any]:
    """The run config with its defaults; a value of the wrong kind is refused."""
    config = {name: context.run_config.get(name, default) for name, default in RUN_CONFIG.items()}
    for name, default in RUN_CONFIG.items():
        kind = int | float if isinstance(default, float) else type(default)
        if not isinstance(config[name], kind):
            raise ConfigError(f"{name} = {config[name]!r} in the run config must be {type(default).__name__}.")
    if config["rates"] not in SOURCES:
        raise ConfigError(f"rates = {config['rates']!r} in the run config: choose from {', '.join(SOURCES)}.")
    return config


def config_scenario(config: dict[str, Any], num_clients: int, *settings: str) -> Scenario:
    """The scenario that a run config names, with that many clients."""
    chosen = [*config["set"].split(), f"federation.num_clients={num_clients}", *settings]
    return load_scenario(config["scenario"], chosen)


def clients_before(out: Path | None) -> int:
    """The number of clients of the run that goes on in this folder, 0 if there is none: nodes may be missing now."""
    before = out / "scenario.toml" if out is not None else None
    return load_scenario(before).federation.num_clients if before is not None and before.exists() else 0


def count_nodes(grid: Grid, *, timeout_s: float) -> int:
    """How many nodes there are, once no more come."""
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
    """Loading the data takes longer than a round: where a process lives on, it does so once."""
    alone = config_scenario({"scenario": scenario, "set": settings}, num_clients, "execution.workers=1")
    return _clients(alone, config_dataset(alone.data.dataset, data_dir))


@lru_cache(maxsize=2)
def config_dataset(name: str, data_dir: str) -> Dataset:
    return load_dataset(name, data_folder(Path(data_dir) if data_dir else None), seed=0)
