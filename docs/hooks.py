"""For the site only: links to files outside this folder become plain text because the site does not contain them."""

import re
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    upwards = page.file.src_uri.count("/") + 1
    return re.sub(rf"\[([^\]]+)\]\((?:\.\./){{{upwards}}}[^)]+\)", r"`\1`", markdown)
