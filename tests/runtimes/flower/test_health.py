"""The server's log says at the end what was wrong with the decisions."""

import json
import logging
from pathlib import Path

import pytest

from tests.helpers.own_federation import ROUNDS, federation, first_arrays

EMPTY = f"{ROUNDS} of {ROUNDS} rounds had no participant although a client could upload"


@pytest.mark.parametrize("written", [True, False])
def test_findings_are_in_the_log_and_in_the_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, written: bool
) -> None:
    out = {"out": tmp_path} if written else {}
    strategy, grid = federation(lambda _, reply: reply, "policy.name=tests.helpers.tiny:Nobody", **out)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert sum(f"health: {EMPTY}" in record.getMessage() for record in caplog.records) == 1
    assert len(caplog.records) == ROUNDS + 1, "each empty round is said as well"
    if written:
        assert json.loads((tmp_path / "summary.json").read_text())["health"][0]["kind"] == "empty-rounds"


def test_the_log_says_nothing_where_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = federation()
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert not caplog.records
