"""Sends messages and collects replies, with the time at which each reply arrived."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from logging import WARNING
from queue import Empty, SimpleQueue
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log

from qccf.core.errors import FederationError

POLL_S = 0.1
"""Polling interval. Flower's own loop polls every three seconds, too rarely to measure the time of an upload."""

LONGEST_POLL_S = 2.0
POLLS_PER_S = 10.0
"""Limit for all threads together, unless LONGEST_POLL_S requires more: each poll is a request to the SuperLink."""

LINK_S = 30.0
"""A SuperLink that does not answer a short request for this time is gone, or it no longer knows this run."""

SILENCE_S = 20.0
"""While no reply comes, the SuperLink is asked at this interval whether it is there, and which nodes are."""

ABSENCES = 2
"""Nodes that are offline this many times in a row, and from which the SuperLink has no reply, are not waited for."""

THREADS = 64
FIRST_POLL_S = 1.0
"""The longest time that `Pulls.add` waits for the first poll of each message."""


@dataclass(frozen=True)
class Reply:
    """A reply, the node that the message went to, and the seconds from creation (client's clock) to arrival (ours).

    For a node that is offline the SuperLink replies with an error.
    """

    message: Message
    node: int
    seconds: float


class Pulls:
    """Polls for replies in background threads, with one request per reply.

    A pull claims a reply when its upload begins and returns when it is complete. In a common request, one upload that
    stops halfway or cannot be read would block or lose all others.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._found: SimpleQueue[Reply] = SimpleQueue()
        self._closed = threading.Event()

    def add(self, asked: dict[str, int]) -> None:
        """Poll for the replies to these messages (id to node) too. Each is polled once before this returns."""
        pause_s = min(LONGEST_POLL_S, max(POLL_S, len(asked) / POLLS_PER_S))
        end = time.monotonic() + FIRST_POLL_S
        polled = []
        for some in _shares(asked):
            polled.append(threading.Event())
            threading.Thread(target=self._poll, args=(dict(some), pause_s, polled[-1]), daemon=True).start()
        for event in polled:
            event.wait(max(0.0, end - time.monotonic()))

    def take(self, timeout_s: float = 0.0) -> Reply | None:
        """A reply that has arrived, or that arrives in time."""
        try:
            return self._found.get(timeout=timeout_s) if timeout_s > 0.0 else self._found.get_nowait()
        except Empty:
            return None

    def close(self) -> None:
        """Stop polling; discard later replies."""
        self._closed.set()

    def _poll(self, asked: dict[str, int], pause_s: float, polled: threading.Event) -> None:
        warned: set[str] = set()
        while asked and not self._closed.is_set():
            for identity, node in list(asked.items()):
                try:
                    messages = list(self._grid.pull_messages([identity]))
                except Exception as error:  # bytes from another machine may cause any error
                    if identity not in warned and not self._closed.is_set():
                        log(WARNING, "a reply of node %s cannot be read: %s: %s", node, type(error).__name__, error)
                    warned.add(identity)
                    continue
                for message in messages[:1]:
                    del asked[identity]
                    self._found.put(Reply(message, node, time.time() - message.metadata.created_at))
            polled.set()
            self._closed.wait(pause_s)


def exchange(grid: Grid, messages: Sequence[Message], *, timeout_s: float) -> list[Reply]:
    """Send the messages and return the replies that arrive in time.

    Waiting ends before that when all nodes that have not replied are gone. The SuperLink replies with an error for most
    of them, but not for one that is killed while it sends its reply.
    """
    asked = push(grid, messages)
    replies: list[Reply] = []
    absences = 0
    end = time.monotonic() + timeout_s
    pulls = Pulls(grid)
    pulls.add(asked)
    try:
        while len(replies) < len(asked):
            left_s = end - time.monotonic()
            reply = pulls.take(min(left_s, SILENCE_S))  # also what has come already when the time is over
            if reply is not None:
                replies.append(reply)
                absences = 0
                continue
            if left_s <= SILENCE_S:
                break
            waiting = set(asked.values()) - {reply.node for reply in replies}
            absences = 0 if waiting & online_nodes(grid) else absences + 1
            if absences == ABSENCES:
                break
    finally:
        pulls.close()
    return replies


def online_nodes(grid: Grid) -> set[int]:
    """The nodes that are online. Fails if the SuperLink does not answer.

    The server of a SuperLink that was killed would otherwise wait for its replies for ever, and hold its run folder.
    """
    return set(_answer(lambda: list(grid.get_node_ids())))


def _answer(request: Callable[[], Any], still_there: Callable[[], Any] | None = None) -> Any:
    """What the request returns. Flower repeats a request for as long as the SuperLink is away, so it runs aside.

    A request that may take long is waited for as long as `still_there` finds the SuperLink.
    """
    answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put((request(), None))
        except Exception as error:
            answers.put((None, error))

    threading.Thread(target=ask, daemon=True).start()
    while True:
        try:
            answer, error = answers.get(timeout=LINK_S)
            break
        except Empty:
            if still_there is None:
                raise FederationError(
                    f"the SuperLink has not answered for {LINK_S:g} s, so this server ends and releases its folder: "
                    "start the run again. The checkpoint holds the last state."
                ) from None
            still_there()
    if error is not None:
        raise FederationError(
            f"the SuperLink refuses this server ({type(error).__name__}: {error}), perhaps because it was started "
            "again: start the run again, too. The checkpoint holds the last state."
        ) from error
    return answer


def push(grid: Grid, messages: Sequence[Message]) -> dict[str, int]:
    """Send the messages; returns message id to node for those that could be sent.

    Many messages, or large ones, take long on a busy machine, and each is several requests.
    """
    sent = set(_answer(lambda: grid.push_messages(messages), partial(online_nodes, grid))) if messages else set()
    return {
        message.metadata.message_id: message.metadata.dst_node_id
        for message in messages
        if message.metadata.message_id in sent
    }


@contextmanager
def prompt_object_pulls() -> Iterator[None]:
    """Let Flower check every 0.1 s whether an upload is complete; by default it checks after 1, 3, 7, 15, 25 … s.

    Flower has no setting for this interval, so one of its private functions is replaced inside the context.
    """
    from flwr.superlink.grid import http_grid

    default = http_grid.pull_objects
    http_grid.pull_objects = partial(default, initial_backoff=POLL_S, backoff_cap=POLL_S, max_tries_per_object=None)
    try:
        yield
    finally:
        http_grid.pull_objects = default


def _shares(asked: dict[str, int]) -> list[list[tuple[str, int]]]:
    """The messages of each thread: one per thread as long as there are enough threads."""
    items, count = list(asked.items()), min(len(asked), THREADS)
    return [items[k::count] for k in range(count)]
