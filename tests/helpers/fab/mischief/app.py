"""A small federation for tests of a deployment: next to no computing, a client that corrupts, a client that hangs."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from qccf.core.streams import stream
from qccf.flower import quantize
from qccf.runtimes.flower.messages import UPLOAD, Instruction

client = ClientApp()
server = ServerApp()
SIZE = 20_000


def _told(context: Context, name: str, told: Instruction) -> bool:
    return told.act == "train" and context.run_config[name] == f"{told.client}:{told.round_index}"


def corrupt(message: Message, context: Context, call_next) -> Message:
    told = Instruction.read(message)
    reply = call_next(message, context)
    if _told(context, "corrupt", told):
        data = bytearray(reply.content[UPLOAD]["payload"].data)
        data[100] ^= 255
        array = Array(dtype="uint8", shape=(len(data),), stype="qccf/1", data=bytes(data))
        reply.content[UPLOAD] = ArrayRecord({"payload": array})
    return reply


@client.train(mods=[corrupt, quantize])
def train(message: Message, context: Context) -> Message:
    """Moves towards a point that differs from client to client."""
    told = Instruction.read(message)
    if _told(context, "hang", told):
        time.sleep(3600)
    while _told(context, "linger", told) and not Path(context.run_config["until"]).exists():
        time.sleep(0.2)
    weights = message.content["arrays"]["weights"].numpy()
    aim = stream(7, "aim", told.client).normal(size=SIZE).astype(np.float32)
    gradient = weights - aim
    metrics = {
        "num-examples": 100 + 10 * told.client,
        "loss": float(np.square(gradient).mean()),
        "gradient-norm-sq": float(np.square(gradient).sum()) / SIZE,
        "gradient-variance": 0.1,
    }
    arrays = ArrayRecord({"weights": Array(weights - np.float32(0.1) * gradient)})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    from qccf import load_scenario  # not for clients: their processes live for one message
    from qccf.flower import QccfStrategy

    config = context.run_config
    settings = [f"federation.num_clients={config['num-clients']}", *config["settings"].split()]
    scenario = load_scenario("femnist", settings)
    out = Path(config["out"]) if config["out"] else None
    strategy = QccfStrategy(scenario, out=out, throttle=config["throttle"], rates=config["rates"])
    initial = ArrayRecord({"weights": Array(np.zeros(SIZE, dtype=np.float32))})
    strategy.start(grid, initial, num_rounds=config["rounds"], timeout=config["timeout"])
