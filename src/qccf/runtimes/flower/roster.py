"""Which node is which client. Node ids are random and change when a node comes back; a client's number does not."""

import math
import time
from collections.abc import Sequence
from logging import WARNING

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from qccf.core.errors import QccfError
from qccf.runtimes.flower.exchange import POLL_S, Pulls, Reply, push
from qccf.runtimes.flower.messages import INSTRUCTION, Instruction, ReplyError, read_hello

HELLO_TTL_S = 600.0
AGAIN_S = 5.0
"""After which a node that did not say hello as it should is asked once more."""


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
        self._hellos: Pulls | None = None
        self._asked: dict[int, float] = {}
        """Node → when it may be asked again."""

    def meet(self, grid: Grid, least: int, *, timeout_s: float) -> None:
        """Wait until so many clients are there."""
        end = time.monotonic() + timeout_s
        while True:
            self.refresh(grid)
            if len(self.nodes) >= least:
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
        asked = push(grid, [Message(hello, node, MessageType.TRAIN, ttl=HELLO_TTL_S) for node in sorted(new)])
        sent = set(asked.values())
        self._asked = {node: math.inf if node in sent else self._asked.get(node, now) for node in online}
        self._hellos = self._hellos or Pulls(grid)
        self._hellos.add(asked)
        while (reply := self._hellos.take()) is not None:
            self._hear(reply, online)

    def time_empty(self, reply: Reply) -> None:
        """Take note of how long a reply without a payload took."""
        self.delays_s[reply.node] = min(reply.seconds, self.delays_s.get(reply.node, reply.seconds))

    def doubt(self, clients: Sequence[int]) -> None:
        """Have these clients say hello again before they are given work: they did not do their last."""
        for client in clients:
            if client in self.nodes:
                self._asked.pop(self.nodes.pop(client), None)

    def close(self) -> None:
        """Wait for nobody any longer."""
        if self._hellos is not None:
            self._hellos.close()
            self._hellos = None
        self._asked = {node: again for node, again in self._asked.items() if node in self.nodes.values()}

    def _hear(self, reply: Reply, online: set[int]) -> None:
        node = reply.node
        if node not in online:
            return
        try:
            client = read_hello(reply.message, self.num_clients)
            if self.nodes.get(client, node) != node:
                raise ReplyError(f"it says that it is client {client}, but that is node {self.nodes[client]}.")
        except ReplyError as error:
            log(WARNING, "node %s gets no work: %s", node, error)
            self._asked[node] = time.monotonic() + AGAIN_S
        else:
            self.nodes[client] = node
            self.time_empty(reply)


def _few(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown
