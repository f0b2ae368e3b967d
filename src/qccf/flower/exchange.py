"""Messages out, replies in, with the time at which each reply was seen."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

POLL_S = 0.1
"""Between two looks for replies. Flower's own loop looks every three seconds, too seldom to time an upload."""


@dataclass(frozen=True)
class Reply:
    """A reply, and the seconds between its making (by the client's clock) and its being seen (by ours)."""

    message: Message
    seconds: float


def exchange(grid: Grid, messages: Sequence[Message], *, timeout_s: float) -> list[Reply]:
    """Send, and take what comes back in time."""
    waiting = push(grid, messages)
    replies: list[Reply] = []
    end = time.monotonic() + timeout_s
    while waiting:
        replies += pull(grid, waiting)
        if time.monotonic() >= end:
            break
        if waiting:
            time.sleep(POLL_S)
    return replies


def push(grid: Grid, messages: Sequence[Message]) -> set[str]:
    """Send; the ids under which replies can be asked for."""
    return {identity for identity in grid.push_messages(messages) if identity} if messages else set()


def pull(grid: Grid, waiting: set[str]) -> list[Reply]:
    """What has come for these ids, which are then waited for no longer."""
    if not waiting:
        return []
    found = [Reply(message, time.time() - message.metadata.created_at) for message in grid.pull_messages(list(waiting))]
    waiting -= {reply.message.metadata.reply_to_message_id for reply in found}
    return found
