"""The run config of the ready app: its keys and defaults, and the scenario, data and clients that it names."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context

from qccf.core.errors import ConfigError
from qccf.learning.datasets import Dataset, data_folder, load_dataset
from qccf.rounds.world import draw_dataset_sizes
from qccf.runtimes.clients import Clients
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.rates import SOURCES
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
    "least-clients": 0,
}
"""The keys of a run config and their defaults.

`set` is a list of settings as in `qccf run --set`, separated by blanks. 0 clients: one client per node that is
online when the run begins. 0 least clients: half of them, and at least three.
"""


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


def clients_layout(clients: Clients) -> Layout:
    """Names and shapes of the model's parameters and buffers."""
    parameters, buffers = clients.shapes()
    return Layout((*parameters, *buffers), (*parameters.values(), *buffers.values()), len(buffers))


def build_clients(scenario: Scenario, dataset: Dataset) -> Clients:
    seed = scenario.federation.seed
    return Clients(scenario, dataset, draw_dataset_sizes(scenario, seed), seed)


@lru_cache(maxsize=2)
def cached_clients(scenario: str, settings: str, data_dir: str, num_clients: int) -> Clients:
    """Loading the data takes longer than a round. A process that serves several messages loads them once."""
    alone = config_scenario({"scenario": scenario, "set": settings}, num_clients, "execution.workers=1")
    return build_clients(alone, config_dataset(alone.data.dataset, data_dir, json.dumps(alone.data.options)))


@lru_cache(maxsize=2)
def config_dataset(name: str, data_dir: str, options: str = "{}") -> Dataset:
    """The dataset with its options as JSON."""
    return load_dataset(name, data_folder(Path(data_dir) if data_dir else None), seed=0, options=json.loads(options))
