"""Values that a settings file can hold, so that a run can be read back and resumed."""

import unicodedata
from typing import Any

DEEPEST = 16
"""Tables and lists may be nested this deep."""


def require_plain(value: Any, name: str, depth: int = 0) -> None:
    """Refuse a value that a settings file cannot hold, or that would harm a terminal or a file name."""
    if depth > DEEPEST:
        raise ValueError(f"{name} is nested more than {DEEPEST} deep: make it flatter")
    match value:
        case str():
            bad = next((one for one in value if one not in "\t\n" and unicodedata.category(one) in ("Cc", "Cs")), None)
            if bad is not None:
                raise ValueError(f"{name} = {value!r} holds the character {bad!r}, which is not text: leave it out")
        case bool() | int() | float():
            pass
        case list() | tuple():
            for k, one in enumerate(value):
                require_plain(one, f"{name}[{k}]", depth + 1)
        case dict():
            for key, one in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"{name} has the key {key!r}, which is not text: write it as text")
                require_plain(key, f"a key of {name}", depth + 1)
                require_plain(one, f"{name}.{key}", depth + 1)
        case _:
            raise ValueError(
                f"{name} = {value!r} cannot be written to a settings file: use text, numbers, true or false, lists "
                "and tables"
            )
