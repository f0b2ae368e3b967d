"""`--json`: one JSON value on standard output."""

from typing import TYPE_CHECKING, Any

from qccf.core.plain_json import to_json

if TYPE_CHECKING:
    from qccf.rounds.run import Run


def print_json(value: Any) -> None:
    """Print it on one line; NaN and infinity, which JSON does not have, become null."""
    print(to_json(value))


def run_json(run: "Run", *, full: bool) -> dict[str, Any]:
    """A run's summary and folder; in full with its settings and every round."""
    tree = run.summary | {"folder": None if run.folder is None else str(run.folder)}
    if full:
        tree |= {"scenario": run.scenario.model_dump(), "per_round": run.round_columns}
    return tree
