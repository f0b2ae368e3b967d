"""What one request may ask for, and what happens beyond it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of the service. `docs/serve.md` lists them with the status of a refusal."""

    body_bytes: int = 16 * 2**20
    body_s: float = 30.0
    """How long a client may take to send its body."""
    links: int = 250_000
    """Clients times channels."""
    client_rounds: int = 2_000_000
    """Clients times rounds times runs of a plan."""
    waiting: int = 128
    """Requests that wait for a process."""
    streams: int = 64
    """Answers that are sent as events at a time."""
    decide_s: float = 20.0
    plan_s: float = 120.0
    read_s: float = 120.0
    sessions: int = 1000
    session_bytes: int = 2**30
    """Of all sessions together."""
    session_age_s: float = 7 * 86_400.0
    """A session that was not used for so long is removed."""
