"""`--json`: one JSON value on standard output."""

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qccf.rounds.run import Run


def print_json(value: Any) -> None:
    """Print it on one line; NaN and infinity, which JSON does not have, become null."""
    print(json.dumps(_plain(value), allow_nan=False, ensure_ascii=False))


def run_json(run: "Run", *, full: bool) -> dict[str, Any]:
    """A run's summary and folder; in full with its settings and every round."""
    tree = run.summary | {"folder": None if run.folder is None else str(run.folder)}
    if full:
        tree |= {"scenario": run.scenario.model_dump(), "per_round": run.round_columns}
    return tree


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
