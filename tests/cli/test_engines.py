"""The share of the cores that a job gets."""

from argparse import Namespace

import pytest

from qccf.cli.engines import with_cores
from qccf.settings.loading import load_scenario


@pytest.mark.parametrize(
    ("engine", "jobs", "settings", "workers"),
    [
        ("local", None, [], 8),
        ("local", 2, [], 4),
        ("local", 20, [], 1),
        ("local", 2, ["execution.workers=3"], 3),
        ("ray", None, [], 1),
        ("ray", None, ["execution.workers=3"], 3),
    ],
)
def test_jobs_share_the_cores_unless_the_settings_give_a_number(monkeypatch, engine, jobs, settings, workers) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    scenario = with_cores(load_scenario("quick", settings), Namespace(engine=engine, jobs=jobs))
    assert scenario.execution.workers == workers
