"""The figures of the study of accuracy: whole seeds only, three axes, and the front over V."""

import sys
from pathlib import Path

import numpy as np
import pytest

import benchmarks.accuracy_figures
from benchmarks.accuracy import FRONT, record_name, recorded_runs
from benchmarks.accuracy_figures import accuracy_chart, front_chart, main, whole_seeds
from qccf.policies.registry import PAPERS_POLICIES
from qccf.rounds.run_record import RunRecords
from tests.benchmarks.test_accuracy import as_claimed, recorded, weights_record
from tests.helpers.made_runs import ROUNDS


def test_a_seed_without_every_policy_is_left_out() -> None:
    records = RunRecords()
    for seed in (0, 1):
        for policy in PAPERS_POLICIES[: 5 - seed]:
            records.add(record_name("mnist-writers", policy, seed), recorded(policy, seed))
    runs = whole_seeds("mnist-writers", records)
    assert [(kind, [(run.policy, run.seed) for run in mine]) for kind, mine in runs.items()] == [
        (policy, [(policy, 0)]) for policy in PAPERS_POLICIES
    ]
    assert whole_seeds("emnist", records) == {}


def test_the_front_has_only_seeds_with_every_v_every_constant_and_every_policy() -> None:
    whole, records = weights_record(as_claimed), RunRecords()
    for name in whole.names():
        if name != record_name("weights", "3 bits", 1):
            records.add(name, whole.run(name))
    assert len(recorded_runs("weights", records)["V = 1"]) == 3
    runs = whole_seeds("weights", records)
    assert list(runs) == list(FRONT)
    assert {tuple(run.seed for run in mine) for mine in runs.values()} == {(0, 2)}
    chart = front_chart(runs)
    assert "60 rounds, 480 samples per client, 2 seeds. Fewer than 3 seeds" in chart.caption


def test_three_panels_have_the_same_accuracies_over_rounds_time_and_energy() -> None:
    runs = [recorded("qccf", seed) for seed in range(3)]
    rounds, time, energy = accuracy_chart("emnist", runs).panels
    (a,), (b,), (c,) = rounds.series, time.series, energy.series
    assert np.array_equal(a.y, b.y)
    assert np.array_equal(a.y, c.y)
    assert np.allclose(a.x, np.arange(1, ROUNDS + 1))
    assert np.allclose(b.x, 0.02 * np.arange(1, ROUNDS + 1))
    assert np.allclose(c.x, np.mean([run.energy_j for run in runs], axis=0))


def test_the_front_has_a_point_for_each_v_each_number_of_bits_and_each_baseline() -> None:
    by_kind = whole_seeds("weights", weights_record(as_claimed))
    chart = front_chart(by_kind)
    (panel,) = chart.panels
    series = {one.name: one for one in panel.series}
    assert {name: len(one.x) for name, one in series.items()} == {
        "qccf over V": 5, "no-quantization": 1, "channel-allocate": 1, "principle": 1, "same-size": 1,
        "constant bits": 4,
    }  # fmt: skip
    assert len({(one.colour, one.marker) for one in series.values()}) == len(series)
    # Energy falls with V, and qccf of the five policies is the one with V = 100.
    over_v = series["qccf over V"]
    for place, kind in enumerate(("V = 1e+06", "V = 10000", "V = 1000", "qccf", "V = 1")):
        assert over_v.x[place] == np.mean([run.energy_j[-1] for run in by_kind[kind]])
        assert over_v.y[place] == pytest.approx(np.mean([run.final_accuracy() for run in by_kind[kind]]))
    assert np.all(np.array(over_v.low) < over_v.y), "three seeds have intervals"
    assert "3 seeds. 95 % intervals" in chart.caption


def test_the_caption_names_the_points_from_left_to_right() -> None:
    by_kind = {kind: runs[:1] for kind, runs in whole_seeds("weights", weights_record(as_claimed)).items()}
    for bits, energy in ((2, 3.0), (3, 1.0), (4, 2.0), (6, 4.0)):
        by_kind[f"{bits} bits"] = [recorded("fixed-bits", 0, energy=energy)]
    caption = front_chart(by_kind).caption
    assert "1 seed. Fewer" in caption
    assert "From left to right: qccf with V = 1000000, 10000, 1000, 100, 1; 3, 4, 2, 6 constant bits." in caption


def test_the_figures_of_both_record_files_are_written(monkeypatch, capsys, tmp_path: Path) -> None:
    weights_record(as_claimed).write(tmp_path / "r-weights.json")
    records = RunRecords()
    for policy in PAPERS_POLICIES:
        records.add(record_name("cifar10", policy, 0), recorded(policy, 0))
    records.add(record_name("emnist", "qccf", 0), recorded("qccf", 0))
    records.write(tmp_path / "r.json")
    drawn: dict[str, str] = {}
    monkeypatch.setattr(
        benchmarks.accuracy_figures, "save_chart", lambda chart, path: drawn.update({str(path): chart.title})
    )
    where = ["--record", str(tmp_path / "r.json"), "--images", "pictures"]
    monkeypatch.setattr(sys, "argv", ["accuracy_figures", *where])
    main()
    assert drawn == {
        "pictures/accuracy-cifar10.png": "Accuracy on cifar10",
        "pictures/accuracy-weights.png": "Energy and accuracy over V",
    }
    said = capsys.readouterr().out.splitlines()
    assert [line.partition("Written: ")[2] for line in said if "Written" in line] == list(map(str, drawn))
    assert "emnist: 0 of 8 seeds with all runs, so there is no figure" in said
    assert said[2].startswith("cifar10: 1 of 3 seeds with all runs. Written: ")
