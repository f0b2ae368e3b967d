"""A Grid without a network: each message is serialized, given to the client's app at once, and answered."""

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity


def through_bytes(message: Message) -> Message:
    """The message as the receiver reads it."""
    message.metadata.__dict__["_message_id"] = message.object_id
    contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    copy = inflate_object_from_contents(message.object_id, contents)
    copy.metadata.__dict__["_message_id"] = message.object_id
    return copy


class LoopGrid(Grid):
    """`numbers` are the clients' numbers; node ids differ from them. `meddle(client, reply)` may change a reply, or
    return None to lose it. Replies come in reverse order, because their order must not matter.
    `node_configs` has further keys of each client's node config."""

    def __init__(self, app, numbers, run_config=None, meddle=lambda _, reply: reply, node_configs=None) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.app = app
        self.numbers = {1000 - 7 * number: number for number in numbers}
        self.run_config = run_config or {}
        self.meddle = meddle
        self.node_configs = node_configs or {}
        self.sent = []
        self._replies = {}

    def set_run(self, run):
        pass

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *_, **__):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.numbers)

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def _push(self, message):
        asked = through_bytes(message)
        node = message.metadata.dst_node_id
        number = self.numbers[node]
        config = {"partition-id": number, **self.node_configs.get(number, {})}
        context = Context(1, node, config, RecordDict(), self.run_config)
        self.sent.append((self.numbers[node], asked))
        reply = self.meddle(self.numbers[node], self.app(asked, context))
        if reply is not None:
            self._replies[asked.metadata.message_id] = through_bytes(reply)
        return asked.metadata.message_id

    def pull_messages(self, message_ids):
        found = [self._replies.pop(one) for one in list(self._replies) if one in message_ids]
        return found[::-1]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))
