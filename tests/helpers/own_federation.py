"""A federation with a user's own model, data and training loop, in one process."""

import torch
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn import functional

from qccf.flower import Meter, QccfStrategy, quantize
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.tiny import Tiny, tiny_dataset, tiny_scenario

ROUNDS = 4


def own_app(make_model=Tiny) -> ClientApp:
    """A user's own model, data and training loop with the mod and the meter of qccf."""
    app = ClientApp()
    data = tiny_dataset()

    @app.train(mods=[quantize])
    def train(message, context):
        model = make_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        mine = slice(60 * context.node_config["partition-id"], 60 * (context.node_config["partition-id"] + 1))
        images = torch.from_numpy(data.train_images[mine]).float() / 255.0
        labels = torch.from_numpy(data.train_labels[mine])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        meter = Meter(optimizer)
        losses = []
        for part in range(3):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[part::3]), labels[part::3])
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
        metrics = MetricRecord(meter.metrics(num_examples=60, loss=losses[0]))
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def first_arrays() -> ArrayRecord:
    torch.manual_seed(0)
    return ArrayRecord(Tiny().state_dict())


def federation(meddle=lambda _, reply: reply, *settings: str, **options) -> tuple[QccfStrategy, LoopGrid]:
    scenario = tiny_scenario("codec.name=update+entropy", *settings)
    return QccfStrategy(scenario, join_timeout_s=0.5, **options), LoopGrid(own_app(), range(5), meddle=meddle)


def is_training(reply: Message) -> bool:
    return reply.metadata.group_id.startswith("train")


def answering(reply, node=None):
    """A message whose reply looks like this one, or like a reply of another node."""
    source = reply.metadata.src_node_id if node is None else node
    asked = Message(RecordDict(), source, MessageType.TRAIN, group_id=reply.metadata.group_id)
    asked.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return asked
