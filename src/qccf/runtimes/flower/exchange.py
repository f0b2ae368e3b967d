"""Messages out, replies in, with the time at which each reply was seen."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from logging import WARNING
from queue import Empty, SimpleQueue

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log

POLL_S = 0.1
"""Between two looks for replies. Flower's own loop looks every three seconds, too seldom to time an upload."""

LONGEST_POLL_S = 2.0
LOOKS_PER_S = 10.0
"""Of all threads together, as far as the longest pause allows: a look is a request to the SuperLink."""

THREADS = 64
FIRST_LOOK_S = 1.0


@dataclass(frozen=True)
class Reply:
    """A reply, the node that was asked, and the seconds from its making (by the client's clock) to its being seen (by
    ours). Where a node does not answer, the SuperLink replies with an error in its own name."""

    message: Message
    node: int
    seconds: float


class Pulls:
    """Looks for replies in the background, for each by itself.

    A pull claims a reply when it begins to arrive, and returns when it is there. One that stops halfway or cannot be
    read would take with it all that were pulled by the same call, and hold up the round.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._found: SimpleQueue[Reply] = SimpleQueue()
        self._closed = threading.Event()

    def add(self, asked: dict[str, int]) -> None:
        """Look for the replies to these messages (id → node) as well; each has been looked for once on return."""
        pause_s = min(LONGEST_POLL_S, max(POLL_S, len(asked) / LOOKS_PER_S))
        end = time.monotonic() + FIRST_LOOK_S
        looked = []
        for some in _shares(asked):
            looked.append(threading.Event())
            threading.Thread(target=self._look, args=(dict(some), pause_s, looked[-1]), daemon=True).start()
        for event in looked:
            event.wait(max(0.0, end - time.monotonic()))

    def take(self, timeout_s: float = 0.0) -> Reply | None:
        """A reply that has come, or that comes in time."""
        try:
            return self._found.get(timeout=timeout_s) if timeout_s > 0.0 else self._found.get_nowait()
        except Empty:
            return None

    def close(self) -> None:
        """Look no longer; what comes from now on is nobody's."""
        self._closed.set()

    def _look(self, asked: dict[str, int], pause_s: float, looked: threading.Event) -> None:
        complained: set[str] = set()
        while asked and not self._closed.is_set():
            for identity, node in list(asked.items()):
                try:
                    messages = list(self._grid.pull_messages([identity]))
                except Exception as error:  # whatever the bytes of another machine lead to
                    if identity not in complained and not self._closed.is_set():
                        log(WARNING, "a reply of node %s cannot be read: %s: %s", node, type(error).__name__, error)
                    complained.add(identity)
                    continue
                for message in messages[:1]:
                    del asked[identity]
                    self._found.put(Reply(message, node, time.time() - message.metadata.created_at))
            looked.set()
            self._closed.wait(pause_s)


def exchange(grid: Grid, messages: Sequence[Message], *, timeout_s: float) -> list[Reply]:
    """Send, and take what comes back in time."""
    asked = push(grid, messages)
    replies: list[Reply] = []
    end = time.monotonic() + timeout_s
    pulls = Pulls(grid)
    pulls.add(asked)
    while len(replies) < len(asked) and (reply := pulls.take(end - time.monotonic())) is not None:
        replies.append(reply)
    pulls.close()
    return replies


def push(grid: Grid, messages: Sequence[Message]) -> dict[str, int]:
    """Send; which node was asked under which message id, where a message could be sent."""
    sent = set(grid.push_messages(messages)) if messages else set()
    return {
        message.metadata.message_id: message.metadata.dst_node_id
        for message in messages
        if message.metadata.message_id in sent
    }


def look_for_objects_often() -> None:
    """Have Flower see promptly when an upload has arrived: it would look after 1, 3, 7, 15, 25 … seconds."""
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.superlink.grid import http_grid

    http_grid.pull_objects = partial(
        pull_objects, initial_backoff=POLL_S, backoff_cap=POLL_S, max_tries_per_object=None
    )


def _shares(asked: dict[str, int]) -> list[list[tuple[str, int]]]:
    """The messages of each thread: one, as long as there are threads enough."""
    items, count = list(asked.items()), min(len(asked), THREADS)
    return [items[k::count] for k in range(count)]
