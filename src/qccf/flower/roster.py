"""Which node is which client. Node ids are random and change when a node comes back; a client's number does not."""

import math
import time
from collections.abc import Sequence
from logging import WARNING

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from qccf.errors import QccfError
from qccf.flower.exchange import POLL_S, Reply, pull, push
from qccf.flower.messages import INSTRUCTION, REPORT, Instruction, last_line

HELLO_TTL_S = 600.0
AGAIN_S = 5.0
"""After which a node whose hello failed is asked once more."""


class AbsentError(QccfError):
    """Not enough clients came."""


class Roster:
    """The nodes that are online and have said which client they are."""

    def __init__(self, num_clients: int) -> None:
        self.num_clients = num_clients
        self.nodes: dict[int, int] = {}
        """Client → node."""
        self.delays_s: dict[int, float] = {}
        """Node → the shortest time of an empty reply, clocks included; an upload's own time is what exceeds it."""
        self._waiting: dict[str, int] = {}
        self._asked: dict[int, float] = {}
        """Node → when it may be asked again."""

    def meet(self, grid: Grid, *, timeout_s: float) -> None:
        """Wait until every client is there."""
        end = time.monotonic() + timeout_s
        while True:
            self.refresh(grid)
            if len(self.nodes) == self.num_clients:
                return
            if time.monotonic() >= end:
                missing = sorted(set(range(self.num_clients)) - set(self.nodes))
                raise AbsentError(
                    f"{len(self.nodes)} of {self.num_clients} clients came within {timeout_s:g} s; missing: "
                    f'{_few(missing)}. Start their SuperNodes with --node-config "partition-id=…", or lower '
                    "federation.num_clients."
                )
            time.sleep(POLL_S)

    def refresh(self, grid: Grid) -> None:
        """Forget who went offline, ask who is new, hear who answered; waits for nobody."""
        online = set(grid.get_node_ids())
        self.nodes = {client: node for client, node in self.nodes.items() if node in online}
        now = time.monotonic()
        new = {node for node in online if now >= self._asked.get(node, now)}
        hello = RecordDict({INSTRUCTION: Instruction("hello").record()})
        self._waiting |= push(grid, [Message(hello, node, MessageType.TRAIN, ttl=HELLO_TTL_S) for node in sorted(new)])
        self._asked = {node: math.inf if node in new else self._asked[node] for node in online}
        for reply in pull(grid, self._waiting):
            self._hear(reply, online)

    def doubt(self, clients: Sequence[int]) -> None:
        """Have these clients say hello again before they are given work: they did not do their last."""
        for client in clients:
            if client in self.nodes:
                self._asked.pop(self.nodes.pop(client), None)

    def _hear(self, reply: Reply, online: set[int]) -> None:
        message, node = reply.message, reply.node
        if message.has_error():
            self._asked[node] = time.monotonic() + AGAIN_S
            log(WARNING, "node %s did not say which client it is: %s", node, last_line(message.error.reason))
            return
        record = message.content.metric_records.get(REPORT)
        client = None if record is None else record.get("client")
        if not isinstance(client, int) or not 0 <= client < self.num_clients:
            log(WARNING, "node %s says that it is client %s, and there are %s.", node, client, self.num_clients)
        elif self.nodes.get(client, node) != node and self.nodes[client] in online:
            log(WARNING, "node %s says that it is client %s, but that is node %s.", node, client, self.nodes[client])
        else:
            self.nodes[client] = node
            self.delays_s[node] = min(reply.seconds, self.delays_s.get(node, reply.seconds))


def _few(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown
