"""What clients measured, beside the model."""

from dataclasses import replace

import numpy as np

from qccf.reports.page.measured import measured_tables
from qccf.runtimes.planner import plan
from tests.helpers.tiny import tiny_scenario


def test_means_by_hand_and_nothing_where_nothing_was_measured() -> None:
    """Two trainings of 3 s and 5 s; 8 J is known of the first only."""
    run = plan(tiny_scenario("statistics.model=constant"), ["qccf"], 1)[0]
    assert measured_tables([run]) == []
    columns = {name: values.copy() for name, values in run.client_columns.items()}
    first, second = np.flatnonzero(columns["participated"])[:2]
    columns["measured_s"][[first, second]] = 3.0, 5.0
    columns["measured_j"][first] = 8.0
    columns["compute_energy_j"][first] = 2.0
    columns["latency_s"][[first, second]] = 2.0, 4.0
    columns["payload_bits"][[first, second]], columns["rate_bps"][[first, second]] = 1e6, 1e6
    (table,) = measured_tables([replace(run, client_columns=columns)])
    assert table.rows[0].cells == [run.codec, "2", "2.00 s", "4.00 s", "2.00 J", "8.00 J"]
