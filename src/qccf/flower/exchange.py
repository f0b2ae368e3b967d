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
    """A reply, the node that was asked, and the seconds from its making (by the client's clock) to its being seen (by
    ours). Where a node does not answer, the SuperLink replies with an error in its own name."""

    message: Message
    node: int
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


def push(grid: Grid, messages: Sequence[Message]) -> dict[str, int]:
    """Send; which node was asked under which message id, where a message could be sent."""
    identities = grid.push_messages(messages) if messages else []
    asked = zip(identities, messages, strict=False)
    return {identity: message.metadata.dst_node_id for identity, message in asked if identity}


def pull(grid: Grid, waiting: dict[str, int]) -> list[Reply]:
    """What has come for these messages, which are then waited for no longer."""
    if not waiting:
        return []
    return [
        Reply(message, waiting.pop(message.metadata.reply_to_message_id), time.time() - message.metadata.created_at)
        for message in grid.pull_messages(list(waiting))
        if message.metadata.reply_to_message_id in waiting
    ]
