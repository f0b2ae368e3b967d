"""Sessions in one SQLite file. A change is on the disk before it is answered, so a killed service loses none."""

import secrets
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from qccf.service.answers import RefusedError
from qccf.service.limits import Limits

FILE = "sessions.sqlite"
SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, created REAL NOT NULL, used REAL NOT NULL, session BLOB NOT NULL,
    request TEXT NOT NULL DEFAULT '', answer BLOB NOT NULL DEFAULT x''
)
"""


class Stored(NamedTuple):
    """A session as JSON, the digest of the last request that changed it, and what was answered."""

    session: bytes
    request: str
    answer: bytes


class SessionStore:
    """All sessions. It is used by one thread at a time."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._limits = limits
        self._base = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = FULL")
        self._base.execute(SCHEMA)

    def close(self) -> None:
        self._base.close()

    def create(self, session: bytes) -> str:
        """Store a new session under a name that nobody can guess."""
        self._remove_old()
        count = self._base.execute("SELECT count(*) FROM sessions").fetchone()[0]
        if count >= self._limits.sessions:
            raise RefusedError(429, f"there are {count:,} sessions, which is the limit: delete one.")
        self._require_room(len(session))
        name, now = secrets.token_urlsafe(16), time.time()
        self._base.execute("INSERT INTO sessions (id, created, used, session) VALUES (?, ?, ?, ?)",
                           (name, now, now, session))  # fmt: skip
        return name

    def get(self, name: str) -> Stored:
        self._remove_old()
        found = self._base.execute("SELECT session, request, answer FROM sessions WHERE id = ?", (name,)).fetchone()
        if found is None:
            raise RefusedError(404, "there is no session of this name: it was deleted, or not used for too long.")
        return Stored(*found)

    def put(self, name: str, stored: Stored) -> None:
        """Replace a session that exists."""
        held = self._base.execute("SELECT length(session) + length(answer) FROM sessions WHERE id = ?", (name,))
        before = (held.fetchone() or (0,))[0]
        self._require_room(len(stored.session) + len(stored.answer) - before)
        done = self._base.execute(
            "UPDATE sessions SET used = ?, session = ?, request = ?, answer = ? WHERE id = ?",
            (time.time(), stored.session, stored.request, stored.answer, name),
        )
        if not done.rowcount:
            raise RefusedError(404, "the session was deleted meanwhile.")

    def delete(self, name: str) -> None:
        self.get(name)
        self._base.execute("DELETE FROM sessions WHERE id = ?", (name,))

    def names(self) -> list[dict[str, str | float]]:
        """All sessions with the seconds since they were made and used."""
        self._remove_old()
        now = time.time()
        rows = self._base.execute("SELECT id, created, used FROM sessions ORDER BY created").fetchall()
        return [{"id": name, "age_s": now - created, "unused_s": now - used} for name, created, used in rows]

    def _require_room(self, more: int) -> None:
        """Refuse to keep `more` bytes beyond the limit of all sessions together; what does not grow may stay."""
        size = self._base.execute("SELECT coalesce(sum(length(session) + length(answer)), 0) FROM sessions").fetchone()[
            0
        ]
        limit = self._limits.session_bytes
        if more > 0 and size + more > limit:
            raise RefusedError(
                429,
                f"the sessions take {size:,} bytes, and {more:,} more are above the limit of {limit:,}: delete one.",
            )

    def _remove_old(self) -> None:
        self._base.execute("DELETE FROM sessions WHERE used < ?", (time.time() - self._limits.session_age_s,))
