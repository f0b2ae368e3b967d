"""For the site only: links that lead out of this folder become plain text, for the site does not hold their targets."""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"`\1`", markdown)
