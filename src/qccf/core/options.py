"""Options of a registry entry: a frozen dataclass in the entry's own file, in which each default stands once.

`option` adds meaning, unit and limits to a field; `qccf.settings` validates them and lists them in the reference.
"""

from dataclasses import field
from typing import Any

LIMITS = ("ge", "gt", "le", "lt")
"""At least, more than, at most, less than."""


def option(default: Any, description: str, *, unit: str = "", **limits: float) -> Any:
    """A dataclass field. `limits` are ge, gt, le and lt."""
    unknown = set(limits) - set(LIMITS)
    if unknown:
        raise TypeError(f"{', '.join(sorted(unknown))}: limits are {', '.join(LIMITS)}")
    metadata = {"description": description, "unit": unit, "limits": limits}
    return field(default=default, metadata=metadata)
