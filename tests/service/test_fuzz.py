"""The service against its own description: whatever is sent, it answers, and a refusal is one sentence."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from qccf.service.limits import Limits
from qccf.service.setup import Setup
from tests.helpers.service import PATIENCE_S, served_app

schemathesis = pytest.importorskip("schemathesis")

CALLS = 12
"""Requests for each operation that fit its description, and as many that do not."""


@pytest.mark.slow
def test_no_request_makes_it_fail(tmp_path: Path) -> None:
    """The limits make every plan short. Streams are left out because they do not end."""
    setup = Setup(tmp_path / "runs", limits=replace(Limits(), client_rounds=200, links=400))
    statuses: set[int] = set()
    with served_app(setup, tmp_path / "state") as address:
        described = schemathesis.openapi.from_dict(httpx.get(f"{address}/openapi.json", timeout=PATIENCE_S).json())
        operations = [found.ok() for found in described.get_all_operations()]
        assert len(operations) > 15
        for operation in operations:
            if operation.path.endswith("/events"):
                continue
            for mode in schemathesis.GenerationMode:
                statuses |= _fuzzed(operation, mode, address)
    assert {200, 404, 413, 422} <= statuses


def _fuzzed(operation, mode, address: str) -> set[int]:
    statuses: set[int] = set()

    @settings(
        max_examples=CALLS, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case) -> None:
        answer = case.call(base_url=address, timeout=PATIENCE_S)
        statuses.add(answer.status_code)
        assert answer.status_code != 500, answer.text
        if answer.status_code >= 400:
            assert isinstance(answer.json()["detail"], str)

    with suppress(Unsatisfiable):  # nothing can be wrong with an operation that takes nothing
        ask()
    return statuses
