"""The node of each client. Node ids are random and may change on a restart; client numbers do not."""

import math
import time
from collections.abc import Sequence
from logging import WARNING

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from qccf.core.errors import AbsentError, ReplyError
from qccf.runtimes.flower.exchange import POLL_S, Pulls, Reply, online_nodes, push
from qccf.runtimes.flower.messages import INSTRUCTION, Instruction, StatedDevice, read_hello, read_profile
from qccf.runtimes.flower.registration import listed

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
        self.devices: dict[int, StatedDevice] = {}
        """Client to what its node said of its device when it came; whoever uses it takes it out."""
        self._hellos: Pulls | None = None
        self._next_hello_s: dict[int, float] = {}
        """Node to the time of its next "hello", infinite while the last one is not answered or was answered well."""

        self._stated: dict[int, int] = {}
        """Node to the client number that it stated last."""
        self._silent: set[int] = set()
        """Nodes that did not do their last work. Another node that states the same number is preferred to them."""
        self._refused: dict[int, str] = {}
        """Node to the reason for which it gets no work; each is logged once."""

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
                    f'{listed(missing)}. Start their SuperNodes with --node-config "partition-id=…", or lower '
                    "federation.num_clients."
                )
            time.sleep(POLL_S)

    def wait_for_all(self, grid: Grid, *, least: int, timeout_s: float) -> None:
        """Wait for all clients; after the timeout go on with at least this many."""
        try:
            self.wait_for(grid, self.num_clients, timeout_s=timeout_s)
        except AbsentError as error:
            if len(self.nodes) < least:
                raise AbsentError(f"{error} At least {least} must be there (least-clients).") from None
            log(WARNING, "%s The run goes on without them; each may join later.", error)

    def refresh(self, grid: Grid) -> None:
        """Forget offline nodes, send "hello" to new ones, and read the replies that have come; does not wait."""
        online = online_nodes(grid)
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
                node = self.nodes.pop(client)
                self._silent.add(node)
                self._next_hello_s.pop(node, None)

    def record_work(self, client: int) -> None:
        """Take note that the node of a client has done its work."""
        self._silent.discard(self.nodes.get(client, -1))

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
            client = self._stated[node] = read_hello(reply.message, self.num_clients)
            rivals = [one for one in online - self._silent - {node} if self._stated.get(one) == client]
            if node in self._silent and rivals:
                raise ReplyError(
                    f"it did not do its work as client {client}, and node {rivals[0]} has the same number."
                )
            if self.nodes.get(client, node) != node:
                raise ReplyError(
                    f"it states client number {client}, which node {self.nodes[client]} has. It gets the number if "
                    "that node does not answer."
                )
        except ReplyError as error:
            if self._refused.get(node) != str(error):
                log(WARNING, "node %s gets no work: %s", node, error)
            self._refused[node] = str(error)
            self._next_hello_s[node] = time.monotonic() + AGAIN_S
        else:
            self.nodes[client] = node
            self.devices[client] = read_profile(reply.message)
            self._refused.pop(node, None)
            self.record_delay(reply)
