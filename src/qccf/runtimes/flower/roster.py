"""The node of each client. Node ids are random and may change on a restart; client numbers do not."""

import math
import time
from collections.abc import Sequence
from logging import WARNING

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from qccf.core.errors import AbsentError, ReplyError
from qccf.runtimes.flower.exchange import POLL_S, Pulls, Reply, push
from qccf.runtimes.flower.messages import INSTRUCTION, Instruction, read_hello

HELLO_TTL_S = 600.0
AGAIN_S = 5.0
"""Time until a node whose reply to "hello" was wrong gets another one."""


class Roster:
    """The nodes that are online and have stated their client number."""

    def __init__(self, num_clients: int) -> None:
        self.num_clients = num_clients
        self.nodes: dict[int, int] = {}
        """Client to node."""
        self.delays_s: dict[int, float] = {}
        """Node to the shortest time of a reply without a payload, which includes the difference between the clocks."""
        self._hellos: Pulls | None = None
        self._next_hello_s: dict[int, float] = {}
        """Node to the time of its next "hello", infinite while the last one is not answered or was answered well."""

    def wait_for(self, grid: Grid, least: int, *, timeout_s: float) -> None:
        """Wait until at least this many clients are online."""
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
        """Forget offline nodes, send "hello" to new ones, and read the replies that have come; does not wait."""
        online = set(grid.get_node_ids())
        self.nodes = {client: node for client, node in self.nodes.items() if node in online}
        now = time.monotonic()
        new = {node for node in online if now >= self._next_hello_s.get(node, now)}
        hello = RecordDict({INSTRUCTION: Instruction("hello").record()})
        asked = push(grid, [Message(hello, node, MessageType.TRAIN, ttl=HELLO_TTL_S) for node in sorted(new)])
        sent = set(asked.values())
        self._next_hello_s = {node: math.inf if node in sent else self._next_hello_s.get(node, now) for node in online}
        self._hellos = self._hellos or Pulls(grid)
        self._hellos.add(asked)
        while (reply := self._hellos.take()) is not None:
            self._read_hello(reply, online)

    def record_delay(self, reply: Reply) -> None:
        """Take note of the time of a reply without a payload."""
        self.delays_s[reply.node] = min(reply.seconds, self.delays_s.get(reply.node, reply.seconds))

    def require_hello(self, clients: Sequence[int]) -> None:
        """Give these clients no work until their nodes answer "hello" again, because they did not answer."""
        for client in clients:
            if client in self.nodes:
                self._next_hello_s.pop(self.nodes.pop(client), None)

    def close(self) -> None:
        """Stop polling; discard later replies."""
        if self._hellos is not None:
            self._hellos.close()
            self._hellos = None
        self._next_hello_s = {node: again for node, again in self._next_hello_s.items() if node in self.nodes.values()}

    def _read_hello(self, reply: Reply, online: set[int]) -> None:
        node = reply.node
        if node not in online:
            return
        try:
            client = read_hello(reply.message, self.num_clients)
            if self.nodes.get(client, node) != node:
                raise ReplyError(f"it states client number {client}, which node {self.nodes[client]} has.")
        except ReplyError as error:
            log(WARNING, "node %s gets no work: %s", node, error)
            self._next_hello_s[node] = time.monotonic() + AGAIN_S
        else:
            self.nodes[client] = node
            self.record_delay(reply)


def _few(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown
