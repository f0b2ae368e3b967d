"""Decisions alone: the points of the studies, the trainings that cells replay, and cells that are added to a record."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import decisions
from benchmarks.decision_tables import best_constants, energy_at_error, savings
from benchmarks.decisions import (
    POLICIES,
    Point,
    compute,
    extended,
    points,
    read_record,
    recordings_of,
    scenario_of,
)
from benchmarks.trace_of_run import trace_text
from qccf.rounds.recordings import Recording, bundled_recording, write_recording
from qccf.rounds.sources import RecordedStatistics, StatisticsModel
from qccf.runtimes.simulator import simulate
from tests.helpers.tiny import tiny_dataset, tiny_scenario


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two trainings, whose losses tell them apart."""
    recorded = bundled_recording("femnist")
    for seed in range(2):
        series = {**recorded.series, "loss": recorded.series["loss"] + seed}
        write_recording(tmp_path / f"emnist-{seed}.npz", replace(recorded, series=series))
    monkeypatch.setattr(decisions, "NUM_TRAININGS", 2)
    return tmp_path


def test_every_point_has_a_key_of_its_own_and_loads() -> None:
    every = list(points())
    assert len({point.key for point in every}) == len(every)
    for point in every:
        scenario = scenario_of(point)
        assert (scenario.control.form, scenario.codec.name, scenario.statistics.model) == ("paper", "model", "recorded")
    both = {point.label: scenario_of(point).device.deadline_s for point in every if "× B (" in point.study}
    assert len(set(both.values())) == 2, "both repairs of Table I"


def test_cells_take_the_trainings_in_turn(monkeypatch: pytest.MonkeyPatch, trainings: Path) -> None:
    seen = []

    def cell(_point: Point, recording: Recording, _seed: int) -> dict:
        seen.append(float(recording.series["loss"][0, 0]))
        return {"qccf": {"energy_j": 1.0}}

    monkeypatch.setattr(decisions, "policies_in_cell", cell)
    compute([Point("s", "x", ())], 4, trainings / "record.json", trainings)
    assert np.round(np.array(seen) - seen[0], 3).tolist() == [0.0, 1.0, 0.0, 1.0]
    with pytest.raises(SystemExit, match="has no other"):
        recordings_of(Point("s", "x", (), trainings="other-?.npz"), trainings)
    (trainings / "emnist-1.npz").unlink()
    with pytest.raises(SystemExit, match="has 1 of 2 trainings"):
        recordings_of(Point("s", "x", ()), trainings)


def test_a_trace_of_a_run_gives_its_statistics_again(tmp_path: Path) -> None:
    run = simulate(tiny_scenario("federation.rounds=3"), dataset=tiny_dataset())
    path = tmp_path / "trace.csv"
    path.write_text(trace_text(run))
    scenario = tiny_scenario("statistics.model=trace", f"statistics.trace={path}")
    ours, theirs = StatisticsModel(scenario, run.dataset_sizes), RecordedStatistics(run)
    for number in range(3):
        for name in ("gradient_norms_sq", "gradient_variances", "weight_ranges"):
            assert np.allclose(getattr(ours.known(number), name), getattr(theirs.known(number), name), rtol=1e-4)
        assert np.allclose(ours.losses(number), theirs.losses(number), rtol=1e-4)


def test_a_cell_more_is_a_value_more_in_every_column() -> None:
    first = extended({}, {"a": {"energy_j": math.nan}}, 0)
    assert first == {"a": {"energy_j": [None]}}
    second = extended(first, {"a": {"energy_j": 1.23456789, "bits": 3.0}}, 1)
    assert second == {"a": {"energy_j": [None, 1.2346], "bits": [None, 3.0]}}
    assert extended(second, {"a": {"energy_j": 2.0}}, 2)["a"]["bits"] == [None, 3.0, None]


def test_cells_are_computed_once_and_added(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trainings: Path) -> None:
    """In batches: all points have the first cells before one has more."""
    monkeypatch.setattr(decisions, "BATCH", 2)
    seen = []

    def cell(point: Point, _recording: Recording, seed: int) -> dict:
        seen.append((point.label, seed))
        return {"qccf": {"energy_j": float(seed)}}

    monkeypatch.setattr(decisions, "policies_in_cell", cell)
    chosen, file = [Point("s", "x", ()), Point("s", "y", ())], tmp_path / "record.json"
    compute(chosen, 3, file, trainings)
    assert seen == [("x", 0), ("x", 1), ("y", 0), ("y", 1), ("x", 2), ("y", 2)]
    compute(chosen, 3, file, trainings)
    assert len(seen) == 6, "nothing is repeated"
    assert read_record(file)["s: y"] == {"qccf": {"energy_j": [0.0, 1.0, 2.0]}}
    json.loads(file.read_text())
    compute([Point("genetic", "z", ())], 12, file, trainings)
    assert len(read_record(file)["genetic: z"]["qccf"]["energy_j"]) == 10, "studies with many points have fewer cells"
    (trainings / "emnist-1.npz").unlink()
    with pytest.raises(SystemExit, match="computed from other trainings"):
        compute(chosen, 4, file, trainings)


def test_two_commands_may_fill_one_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trainings: Path) -> None:
    """What another command adds while a cell is computed stays."""
    file = tmp_path / "record.json"

    def cell(point: Point, _recording: Recording, _seed: int) -> dict:
        if point.label == "x":
            compute([Point("s", "y", ())], 1, file, trainings)
        return {"qccf": {"energy_j": 1.0}}

    monkeypatch.setattr(decisions, "policies_in_cell", cell)
    compute([Point("s", "x", ())], 1, file, trainings)
    assert list(read_record(file)) == ["s: y", "s: x"]


def test_maps_keep_only_what_they_show(trainings: Path) -> None:
    point = replace(next(one for one in points() if one.study == "T_max × B"), settings=("federation.rounds=2",))
    cell = decisions.policies_in_cell(point, recordings_of(point, trainings)[0], 0)
    assert {measure for measured in cell.values() for measure in measured} == set(decisions.KEPT_IN_MAPS)


def test_the_best_constants_are_the_cheapest_that_are_as_precise_and_serve_as_many() -> None:
    """Cell 1: two bits are too coarse, three are the cheapest of the rest. Cell 2: none is precise enough."""
    columns = {
        "qccf": {"energy_j": [2.0, 2.0], "error": [1.0, 0.1], "participation": [0.5, 1.0]},
        "fixed-bits 2": {"energy_j": [1.0, 1.0], "error": [2.0, 2.0], "participation": [1.0, 1.0]},
        "fixed-bits 3": {"energy_j": [3.0, 3.0], "error": [1.0, 1.0], "participation": [0.5, 1.0]},
        "fixed-bits 4": {"energy_j": [2.5, 4.0], "error": [0.5, 0.5], "participation": [0.4, 1.0]},
        "fixed-bits 5": {"energy_j": [5.0, None], "error": [0.2, None], "participation": [1.0, None]},
    }
    energies = best_constants(columns, "qccf")
    assert energies[0] == 3.0
    assert math.isnan(energies[1])
    assert savings(columns, "fixed-bits 3").mean == pytest.approx(1 / 3)


def test_the_energy_at_an_error_lies_between_the_values_of_v() -> None:
    """Errors 1 and 100 cost 8 and 2 J in cell 0: an error of 10 costs 4 J. Beyond both there is no answer."""
    recorded = {
        "V: V = 1": {"qccf": {"error": [1.0, 1.0], "energy_j": [8.0, 8.0]}},
        "V: V = 10": {"qccf": {"error": [100.0, 2.0], "energy_j": [2.0, 4.0]}},
    }
    energies = energy_at_error(recorded, np.array([10.0, 10.0]))
    assert energies[0] == pytest.approx(4.0)
    assert math.isnan(energies[1])


def test_policies_and_the_genetic_algorithm_in_one_cell(trainings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "GENETIC_ROUNDS", 2)
    recording = recordings_of(Point("s", "x", ()), trainings)[0]
    cell = decisions.policies_in_cell(Point("s", "x", ("federation.rounds=4",), tuple(POLICIES)), recording, 0)
    gaps = decisions.genetic_in_cell(Point("s", "x", ()), recording, 0)
    nowhere = Point("s", "x", ("device.deadline_s=1e-5", "federation.rounds=4"), ("qccf",))
    assert math.isnan(decisions.policies_in_cell(nowhere, recording, 0)["qccf"]["energy_j"])
    assert cell.keys() == POLICIES.keys()
    assert [cell[f"fixed-bits {bits}"]["bits"] for bits in (1, 2, 3)] == [1.0, 2.0, 3.0]
    errors = [cell[f"fixed-bits {bits}"]["error"] for bits in (1, 2, 3)]
    assert errors[0] > errors[1] > errors[2]
    assert cell["qccf, updates"]["error"] < 0.1 * cell["qccf"]["error"], "updates are far smaller than models"
    assert cell["no-quantization"]["late"] == 1.0
    assert cell["qccf"]["energy_j"] < cell["same-size, joint"]["energy_j"] < cell["same-size, CPU follows"]["energy_j"]
    assert gaps.keys() == decisions.GENETIC.keys()
    assert all(one["gap"] >= -1e-9 for one in gaps.values()), "no decision is better than the exact one"
    weight = scenario_of(Point("s", "x", ())).control.paper.energy_weight
    lost, gap = (np.array([one[name] for one in gaps.values()]) for name in ("lost_j", "gap"))
    assert lost[gap > 1e-6].min() > 0.0
    assert (lost[gap <= 0.0] <= 1e-12 / weight).all()
