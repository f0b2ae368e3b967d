"""The pages of the service in a browser."""

import json
from typing import Any
from urllib.parse import parse_qs

from tests.helpers.service import PATIENCE_S, Running

SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
READY = '.scene-view[aria-busy="false"]'
SMALL = {"federation.num_clients": 4, "federation.rounds": 5}


def opened(browser: Any, service: Running, path: str, size: str | int = "desktop", **context: Any) -> Any:
    """A page at a size by its name, or of this width."""
    viewport = SIZES[size] if isinstance(size, str) else {"width": size, "height": 900}
    clipboard = ["clipboard-read", "clipboard-write"]
    page = browser.new_context(viewport=viewport, permissions=clipboard, **context).new_page()
    page.set_default_timeout(1e3 * PATIENCE_S)
    page.messages = []

    def note_foreign(request: Any) -> None:
        if request.url.startswith("http") and not request.url.startswith(service.address):
            page.messages.append(request.url)

    page.on("console", lambda message: page.messages.append(message.text))
    page.on("pageerror", lambda error: page.messages.append(str(error)))
    page.on("request", note_foreign)
    page.goto(service.address + path)
    return page


def setting(**more: Any) -> str:
    """An address with a small plan, so that it is there soon."""
    chosen = {"preset": "femnist", "settings": SMALL, "policies": ["qccf", "no-quantization"], "codecs": [], "seeds": 2}
    return "/#a=" + json.dumps(chosen | more).replace(" ", "").replace("#", "%23").replace("+", "%2B")


def held(page: Any, name: str = "a") -> Any:
    """The setting that the address holds."""
    return json.loads(parse_qs(page.url.partition("#")[2])[name][0])
