"""A Flower app with its own model, data and training loop. It uses the strategy, the mod and the meter of qccf."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import nn

from qccf import load_scenario
from qccf.flower import Meter, QccfStrategy, quantize

client = ClientApp()
server = ServerApp()


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))


def make_data(number: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and the side of a plane on which each lies. Each client draws its own points."""
    points = torch.randn(samples, 20, generator=torch.Generator().manual_seed(number))
    return points, (points.sum(1) > 0.0).long()


@client.train(mods=[quantize])
def train(message: Message, context: Context) -> Message:
    model, (points, answers) = make_model(), make_data(int(context.node_config["partition-id"]), 400)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = Meter(optimizer)
    losses = []
    for batch in torch.randperm(400).split(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(points[batch]), answers[batch])
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    metrics = MetricRecord(meter.metrics(num_examples=400, loss=losses[0]))
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        model, (points, answers) = make_model(), make_data(10_000, 2000)
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": float((model(points).argmax(1) == answers).float().mean())})

    config, rounds = context.run_config, int(context.run_config["num-server-rounds"])
    scenario = load_scenario("femnist", [f"federation.num_clients={config['num-clients']}", "radio.bandwidth_hz=1e5"])
    strategy = QccfStrategy(scenario)
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), rounds, timeout=120, evaluate_fn=evaluate)
    print(result.evaluate_metrics_serverapp, f"{strategy.ledger.last['cumulative_energy_j']:.3g} J")
