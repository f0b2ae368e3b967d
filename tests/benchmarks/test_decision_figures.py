"""Figures of the recorded decisions: which are drawn, and what stands where."""

import numpy as np
import pytest

from benchmarks.decision_figures import CLIENTS, ROUNDS, coordinates, drawn, few_channels
from benchmarks.decision_figures import _per_upload as per_upload
from benchmarks.decisions import RECORD, points, read_record


def test_what_is_recorded_is_drawn(tmp_path) -> None:
    recorded = read_record(RECORD)
    names = {file.name for file in drawn(recorded, tmp_path)}
    assert {"savings.png", "map-deadline.png", "few-channels.png"} <= names
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)
    without = {key: value for key, value in recorded.items() if key.startswith("policies: ")}
    assert [file.name for file in drawn(without, tmp_path)] == ["savings.png"]


def test_every_point_of_a_map_has_its_place() -> None:
    rows, columns, places = coordinates("T_max × B")
    assert rows[0] == "T_max = 0.01 s"
    assert columns[-1] == "B = 20 MHz"
    assert len(places) == len(rows) * len(columns) == sum(point.study == "T_max × B" for point in points())
    assert places[0, len(columns) - 1].settings == ("device.deadline_s=0.01", "radio.bandwidth_hz=20e6")


def test_energy_is_that_of_uploads_that_count() -> None:
    """3 J in 100 rounds in which a quarter of 20 clients arrive: 6 mJ each."""
    made = {"a": {"energy_j": [3.0, 3.0], "participation": [0.25, 0.0]}}
    found = per_upload(made, "a")
    assert found[0] == pytest.approx(3e3 / (0.25 * ROUNDS * CLIENTS))
    assert np.isnan(found[1])
    key = next(point.key for point in points() if point.study == "channels")
    assert few_channels({key: made}) == {5: made}
