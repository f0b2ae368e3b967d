"""A ServerApp for the scenarios of qccf, configured by the run config of a Flower app."""

import json
import time
from functools import partial
from logging import WARNING
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log

from qccf.core.errors import AbsentError
from qccf.learning.datasets import data_folder
from qccf.rounds.run_folder import SCENARIO, read_scenario
from qccf.runtimes.flower import run_config
from qccf.runtimes.flower.exchange import POLL_S, online_nodes
from qccf.runtimes.flower.strategy import QccfStrategy
from qccf.runtimes.simulator import about_data, is_evaluated, packages, resolved_scenario

SETTLED_S = 3.0
"""The number of nodes is final when it has not changed for this time."""


def server_app() -> ServerApp:
    """Trains the scenario of the run config and writes a run folder."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = run_config.read_config(context)
        out = Path(config["out"]) if config["out"] else None
        num_clients = config["num-clients"] or saved_num_clients(out)
        num_clients = num_clients or count_nodes(grid, timeout_s=config["join-timeout"])
        data_dir = data_folder(Path(config["data-dir"]) if config["data-dir"] else None)
        warn = partial(log, WARNING)
        scenario = resolved_scenario(run_config.config_scenario(config, num_clients), data_dir, warn)
        data = scenario.data
        dataset = run_config.config_dataset(data.dataset, config["data-dir"], json.dumps(data.options))
        with run_config.build_clients(scenario, dataset) as clients:
            strategy = QccfStrategy(
                scenario,
                out=out,
                rates=config["rates"],
                throttle=config["throttle"],
                join_timeout_s=config["join-timeout"],
                least_clients=config["least-clients"],
                buffers=run_config.clients_layout(clients).buffers,
                about={
                    "precision": clients.precision,
                    "device": clients.device,
                    **about_data(dataset),
                    "packages": packages(),
                },
            )
            layout = run_config.clients_layout(clients)

            def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
                if not is_evaluated(scenario, server_round):
                    return None
                last = server_round == scenario.federation.rounds
                samples = None if last else scenario.evaluation.samples
                accuracy, loss = clients.evaluate(layout.flatten(arrays), samples)
                return MetricRecord({"accuracy": accuracy, "loss": loss})

            strategy.start(
                grid,
                layout.unflatten(clients.initial_weights()),
                num_rounds=scenario.federation.rounds,
                timeout=config["round-timeout"],
                train_config=ConfigRecord({"num-clients": num_clients, "dataset": scenario.data.dataset}),
                evaluate_fn=evaluate,
            )

    return app


def saved_num_clients(out: Path | None) -> int:
    """The number of clients of the run to resume in this folder, or 0. Some of its nodes may be offline now."""
    if out is None or not (out / SCENARIO).exists():
        return 0
    return read_scenario(out).federation.num_clients


def count_nodes(grid: Grid, *, timeout_s: float) -> int:
    """The number of nodes, once it no longer changes."""
    count, since, start = 0, time.monotonic(), time.monotonic()
    while True:
        found, now = len(online_nodes(grid)), time.monotonic()
        count, since = (count, since) if found == count else (found, now)
        if count and now - since >= SETTLED_S:
            return count
        if now - start > timeout_s:
            raise AbsentError(f"no node came within {timeout_s:g} s: start SuperNodes, or raise join-timeout.")
        time.sleep(POLL_S)
