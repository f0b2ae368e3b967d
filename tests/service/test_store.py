"""Sessions on the disk: they survive, they are limited, they grow old."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from qccf.service.answers import RefusedError
from qccf.service.limits import Limits
from qccf.service.store import SessionStore, Stored


def test_sessions_survive_without_a_farewell(tmp_path: Path) -> None:
    """The first store is never closed, as after `kill -9`."""
    first = SessionStore(tmp_path, Limits())
    name = first.create(b"{}")
    first.put(name, Stored(b'{"round": 1}', "digest", b"answer"))
    again = SessionStore(tmp_path, Limits())
    assert again.get(name) == Stored(b'{"round": 1}', "digest", b"answer")
    assert [one["id"] for one in again.names()] == [name]


def test_names_differ_and_cannot_be_guessed(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, Limits())
    names = {store.create(b"{}") for _ in range(20)}
    assert len(names) == 20
    assert min(map(len, names)) >= 20


def test_number_and_size_are_limited(tmp_path: Path) -> None:
    few = SessionStore(tmp_path / "few", replace(Limits(), sessions=2))
    names = [few.create(b"{}") for _ in range(2)]
    with pytest.raises(RefusedError, match="there are 2 sessions, which is the limit") as refused:
        few.create(b"{}")
    assert refused.value.status == 429
    few.delete(names[0])
    few.create(b"{}")
    small = SessionStore(tmp_path / "small", replace(Limits(), session_bytes=10))
    small.create(b"x" * 10)
    with pytest.raises(RefusedError, match="take 10 bytes"):
        small.create(b"{}")


def test_the_size_of_sessions_that_grow_is_limited(tmp_path: Path) -> None:
    """A session grows with its rounds, and the last answer is kept with it."""
    store = SessionStore(tmp_path, replace(Limits(), session_bytes=100))
    name, other = store.create(b"x" * 10), store.create(b"x" * 10)
    store.put(name, Stored(b"y" * 40, "", b"z" * 50))
    with pytest.raises(RefusedError, match="the sessions take 100 bytes, and 1 more are above the limit") as refused:
        store.put(other, Stored(b"y" * 10, "", b"z"))
    assert refused.value.status == 429
    assert store.get(other) == Stored(b"x" * 10, "", b""), "it is as before"
    with pytest.raises(RefusedError, match="above the limit"):
        store.create(b"{}")
    store.put(name, Stored(b"y" * 40, "", b"z" * 49))
    store.put(other, Stored(b"y" * 10, "", b"z"))


def test_unused_sessions_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SessionStore(tmp_path, Limits())
    old = store.create(b"{}")
    now = time.time()
    monkeypatch.setattr("qccf.service.store.time.time", lambda: now + Limits().session_age_s + 60.0)
    with pytest.raises(RefusedError, match="no session of this name") as refused:
        store.get(old)
    assert refused.value.status == 404
    with pytest.raises(RefusedError, match="deleted meanwhile"):
        store.put(old, Stored(b"{}", "", b""))
    with pytest.raises(RefusedError):
        store.delete(old)
