"""Values as JSON that every reader accepts."""

import json
import math
from typing import Any


def to_json(value: Any, *, ascii_only: bool = False) -> str:
    """One line of JSON; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=ascii_only)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
