"""Who may ask: host names, origins, tokens; and the headers of every answer."""

import asyncio
import logging
from typing import Any

import httpx
import pytest

from qccf.core.errors import ConfigError
from qccf.service.guard import HEADERS, Guard
from qccf.service.server import checked_address, is_loopback, read_token

TOKEN = "a-secret-of-many-letters"


async def inner(_scope: dict[str, Any], _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"reached"})


def asked(path: str = "/v1/runs", *, token: str | None = None, host: str = "127.0.0.1:8008", **headers: str) -> Any:
    guard = Guard(inner, hosts=frozenset({"127.0.0.1", "localhost", "[::1]"}), token=token)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=guard)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize("host", ["127.0.0.1:8008", "localhost", "LOCALHOST:1", "[::1]:8008"])
def test_its_own_names_are_served(host: str) -> None:
    answer = asked(host=host)
    assert answer.status_code == 200
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert "access-control-allow-origin" not in answer.headers


def test_another_name_for_this_machine_is_refused() -> None:
    """A site may let its own name point to 127.0.0.1; the browser then sends that name."""
    answer = asked(host="evil.example:8008")
    assert answer.status_code == 421
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_pages_of_other_origins_are_refused() -> None:
    assert asked(origin="http://127.0.0.1:8008").status_code == 200
    assert asked(origin="http://evil.example").status_code == 403
    assert asked(origin="null").status_code == 403
    assert asked(token=TOKEN, host="lab:1", origin="https://lab:1", authorization=f"Bearer {TOKEN}").status_code == 200


def test_a_token_opens_the_api_and_nothing_is_logged_about_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "qccf.service")
    refused = asked(token=TOKEN, host="lab:8008")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer"):
        assert asked(token=TOKEN, authorization=wrong).status_code == 401
    assert asked(token=TOKEN, authorization=f"Bearer {TOKEN}", host="lab:8008").status_code == 200
    assert asked("/", token=TOKEN, host="lab:8008").status_code == 200, "pages hold no secrets and ask for the token"
    assert asked("/v1/runs?token=" + TOKEN, token=TOKEN).status_code == 401
    assert caplog.text.count("GET") == 8
    assert TOKEN not in caplog.text


def test_another_host_needs_a_token(tmp_path) -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("lab.example")
    with pytest.raises(ConfigError, match=r"--host 0.0.0.0 can be reached from other machines: give --token FILE"):
        checked_address("0.0.0.0", 8008, None)
    with pytest.raises(ConfigError, match="--port 70000 is out of range"):
        checked_address("127.0.0.1", 70_000, None)
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="the token cannot be read: No such file"):
        read_token(file)
    for weak in ("short", "with spaces in between it", "é" * 20):
        file.write_text(weak, encoding="utf-8")
        with pytest.raises(ConfigError, match="must be one line of at least 16"):
            checked_address("0.0.0.0", 8008, file)
    file.write_text(TOKEN + "\n")
    address = checked_address("::", 8008, file)
    assert address.token == TOKEN
    assert not address.loopback
    assert "[::]" in address.names
