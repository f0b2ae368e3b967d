"""Flower's simulation on Ray with one worker per core. Prints one line of JSON: the seconds of each round."""

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

os.environ.update(
    FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0"
)
HERE = str(Path(__file__).parent)
os.environ["PYTHONPATH"] = HERE + os.pathsep + os.environ.get("PYTHONPATH", "")
sys.path.insert(0, HERE)

import torch  # noqa: E402
import work  # noqa: E402
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
CORES = os.cpu_count() or 1
client_app, server_app = ClientApp(), ServerApp()
finished: list[float] = []


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    client = int(context.node_config["partition-id"])
    network = work.Network()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = work.client_data(client)
    work.train(network, images, labels, seed=client)
    content = RecordDict(
        {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": work.SAMPLES})}
    )
    return Message(content=content, reply_to=message)


class Timed(FedAvg):
    def aggregate_train(self, server_round, replies):
        result = super().aggregate_train(server_round, replies)
        finished.append(time.perf_counter())
        return result


@server_app.main()
def main(grid: Grid, context: Context) -> None:  # noqa: ARG001 - required by Flower
    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=work.CLIENTS)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(work.Network().state_dict()), num_rounds=ROUNDS + 1)


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        work.CLIENTS,
        backend_config={
            "init_args": {"num_cpus": CORES, "logging_level": "ERROR"},
            "client_resources": {"num_cpus": 1},
        },
    )
    if len(finished) != ROUNDS + 1:
        sys.exit(f"Flower finished {len(finished)} of {ROUNDS + 1} rounds")
    print(json.dumps([late - early for early, late in pairwise(finished)]))
