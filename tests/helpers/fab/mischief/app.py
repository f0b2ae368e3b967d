"""A small federation for tests of a deployment: almost no computing, and clients with faults on request."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from qccf.core.streams import stream
from qccf.flower import quantize
from qccf.runtimes.flower.messages import REPLY, UPLOAD, Instruction

client = ClientApp()
server = ServerApp()
SIZE = 20_000


def _is_due(fault: str, context: Context, instruction: Instruction) -> bool:
    place = f"{instruction.client}:{instruction.round_index}"
    return instruction.act == "train" and place in context.run_config[fault].split()


def _lies(context: Context, instruction: Instruction) -> dict[str, float]:
    """What this client states falsely now: "update" is a factor on its update, "fail" an error, others are reports."""
    now = str(instruction.round_index) if instruction.act == "train" else instruction.act
    told = [lie.split(":") for lie in context.run_config["lies"].split()]
    due = [change for client, when, change in told if client == str(instruction.client) and when in ("*", now)]
    return {field: float(value) for field, value in (change.split("=") for change in due)}


def lie(message: Message, context: Context, call_next) -> Message:
    """Change what the client reports, after its upload was made."""
    reply = call_next(message, context)
    for field, value in _lies(context, Instruction.read(message)).items():
        metrics = {} if reply.has_error() else reply.content[REPLY]
        if field in metrics:
            metrics[field] = int(value) if field == "num-examples" else value
            if field == "error-scale" and "forecast-errors" in metrics:
                metrics["forecast-errors"] = [value / (2.0**q - 1.0) ** 2 for q in range(1, 33)]
    return reply


def corrupt(message: Message, context: Context, call_next) -> Message:
    instruction = Instruction.read(message)
    reply = call_next(message, context)
    if _is_due("corrupt", context, instruction):
        data = bytearray(reply.content[UPLOAD]["payload"].data)
        data[100] ^= 255
        array = Array(dtype="uint8", shape=(len(data),), stype="qccf/1", data=bytes(data))
        reply.content[UPLOAD] = ArrayRecord({"payload": array})
    return reply


@client.train(mods=[corrupt, lie, quantize])
def train(message: Message, context: Context) -> Message:
    """Move towards a target that differs between clients."""
    instruction = Instruction.read(message)
    events = Path(context.run_config["events"])
    if _is_due("hang", context, instruction):
        (events / "hangs").touch()
        time.sleep(3600)
    while _is_due("wait", context, instruction) and not (events / f"round-{instruction.round_index}").exists():
        time.sleep(0.1)
    lies = _lies(context, instruction)
    if "fail" in lies:
        raise RuntimeError("this client fails on request")
    weights = message.content["arrays"]["weights"].numpy()
    target = stream(7, "target", instruction.client).normal(size=SIZE).astype(np.float32)
    gradient = weights - target
    metrics = {
        "num-examples": 100 + 10 * instruction.client,
        "loss": float(np.square(gradient).mean()),
        "gradient-norm-sq": float(np.square(gradient).sum()) / SIZE,
        "gradient-variance": 0.1,
    }
    arrays = ArrayRecord({"weights": Array(weights - np.float32(0.1 * lies.get("update", 1.0)) * gradient)})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    from qccf import load_scenario  # clients do not need these, and each message starts a client process
    from qccf.flower import QccfStrategy

    config = context.run_config
    settings = [f"federation.num_clients={config['num-clients']}", *config["settings"].split()]
    scenario = load_scenario("femnist", settings)
    out = Path(config["out"]) if config["out"] else None
    waits = max(300.0, config["timeout"])  # nodes that lost their SuperLink try again ever more rarely
    strategy = QccfStrategy(scenario, out=out, throttle=config["throttle"], rates=config["rates"], join_timeout_s=waits)
    initial = ArrayRecord({"weights": Array(np.zeros(SIZE, dtype=np.float32))})
    strategy.start(grid, initial, num_rounds=config["rounds"], timeout=config["timeout"])
