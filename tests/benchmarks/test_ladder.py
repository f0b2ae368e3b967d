"""The ladder from the paper's QCCF to `lean`: its rungs, its record and its table."""

import json

import numpy as np
import pytest

from benchmarks.ladder import (
    ACCURATE,
    ALL_THREE,
    BEFORE_LAST,
    CIFAR10,
    CODING,
    EMNIST,
    FIRST,
    LAST,
    LEVERS,
    MORE_ROUNDS,
    NOT_ALONE,
    RECEIVING,
    VARIANTS,
    charges_j,
    charges_table,
    coding_j,
    coding_line,
    ends_lines,
    energies,
    figure,
    is_alone,
    measures,
    named_rungs,
    other_lines,
    participants,
    planned,
    ratio,
    read_record,
    record_key,
    rung_scenario,
    rungs,
    shown,
    stops_at,
    table,
    task_scenario,
    with_coding,
)
from qccf.settings.loading import load_scenario
from tests.rounds.test_targets import made_run


def figures(*energy_mj: float | None, until: float = 0.85) -> dict:
    names = ("0.7", "0.75", "0.8", "0.82", "0.85")
    costs = [None if one is None else {"rounds": 1, "seconds": 1.0, "energy_j": one / 1e3} for one in energy_mj]
    made = {"until": until, "targets": dict(zip(names, costs, strict=False)), "computing_share": 0.5}
    return {**made, "charges_mj": [8.0, 24.0]}


def test_the_first_rung_is_the_papers_and_the_last_is_the_preset() -> None:
    made = {name: rung_scenario(changes, rounds=5, until=0.75, seed=3) for name, changes in rungs().items()}
    assert len(made) == 1 + 2 * len(LEVERS) - len(NOT_ALONE) + len(VARIANTS)
    assert (made[FIRST].control.form, made[FIRST].codec.name, made[FIRST].learning.local_updates) == (
        "paper",
        "model",
        6,
    )
    for rung, file in ((LAST, "lean"), (ACCURATE, "examples/accurate_lean.toml")):
        scenario = load_scenario(file)
        for section in ("learning", "server", "control", "codec"):
            assert getattr(made[rung], section) == getattr(scenario, section), (rung, section)
    assert made[ACCURATE].data.transform == scenario.data.transform
    assert MORE_ROUNDS[ACCURATE] == scenario.federation.rounds
    assert {one.evaluation.until_accuracy for one in made.values()} == {0.75}
    assert {one.federation.seed for one in made.values()} == {3}


def test_each_rung_adds_one_lever() -> None:
    added = [changes for name, changes in rungs().items() if not is_alone(name) and name not in VARIANTS]
    for before, after, lever in zip(added, added[1:], LEVERS.values(), strict=False):
        assert {**before, **lever} == after
    assert len(added) == 1 + len(LEVERS)


def test_the_plan_runs_both_ends_first_and_levers_alone_last() -> None:
    plan = planned(list(rungs()), [0, 1, 2, 3, 4])
    assert plan[:4] == [(FIRST, 0), (LAST, 0), (FIRST, 1), (LAST, 1)]
    assert plan[10:16] == [(variant, 0) for variant in VARIANTS]
    assert plan[40] == ("… small steps", 0)
    assert plan[-2:] == [("+ logit adjustment", 0), ("+ averaged models", 0)]
    assert len(plan) == len(set(plan)) == 5 * (1 + len(LEVERS) + len(VARIANTS)) + (len(LEVERS) - len(NOT_ALONE))
    assert planned(["lean"], [7]) == [("lean", 7)]
    stops = [stops_at(rung) for rung in (FIRST, "… one epoch", "+ one epoch", LAST, ACCURATE)]
    assert stops == [0.75, 0.75, 0.70, 0.75, 0.85]


def test_a_run_that_stopped_below_a_target_says_nothing_about_it() -> None:
    run = made_run([0.5, 0.7, 0.72, 0.78, 0.8], energy_j=1e-3)
    latencies_s = np.tile([0.01, 0.02], 5)
    run.client_columns.update(participated=np.ones(10, bool), num_bits=np.ones(10), latency_s=latencies_s)
    run.round_columns.update(compute_energy_j=0.5e-3 * np.ones(5))
    found = measures(run, 0.75)
    assert found["targets"] == {"0.7": {"rounds": 3, "seconds": 1.5, "energy_j": pytest.approx(3e-3)}, "0.75": {
        "rounds": 4, "seconds": 2.0, "energy_j": pytest.approx(4e-3)}}  # fmt: skip
    assert energies([found], 0.8) == []
    assert shown(energies([found], 0.8), 1) == "not run"
    assert found["computing_share"] == 0.5
    assert found["accuracies"] == [0.5, 0.7, 0.72, 0.78, 0.8]
    assert found["energies_mj"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    values = run.scenario.learning.num_parameters
    receiving_j, resting_j = 2 * 0.1 * 32 * values / 1e8, 2 * 0.01 * 0.02
    np.testing.assert_allclose(charges_j(run), receiving_j + resting_j)
    np.testing.assert_allclose(found["charges_mj"], 1e3 * (receiving_j + resting_j) * np.arange(1, 6), atol=1e-4)
    run.client_columns.update(participated=np.tile([True, False], 5))
    np.testing.assert_allclose(charges_j(run), (receiving_j + 2 * 0.01 * 0.01) / 2, err_msg="one of two takes part")
    json.dumps(found)


def test_the_participants_follow_from_what_receiving_would_have_cost() -> None:
    """The model takes 0.1 W for 32·246,590 bits at 100 Mb/s, 7.89 mJ, and rest up to 0.01 W for 20 ms, 0.2 mJ."""
    scenario = task_scenario(EMNIST)
    model_mj = 0.1 * 32 * 246_590 / 1e8 * 1e3
    rests_mj = np.array([0.2, 0.0, 0.06, 0.0])
    counts = [10, 2, 0, 5]
    known = {"charges_mj": [round(one, 4) for one in np.cumsum(counts * (model_mj + rests_mj))]}
    assert participants(known, scenario) == counts
    assert participants({"charges_mj": [0.0, 0.0]}, scenario) is None
    with pytest.raises(ValueError, match=r"round 1: receiving and resting cost 7 mJ, which is no number of clients"):
        participants({"charges_mj": [8.0, 15.0]}, scenario)
    run = made_run([0.5, 0.7])
    latencies_s = np.array([0.01, 0.02, 0.02, 0.005])
    run.client_columns.update(
        participated=np.array([True, True, False, True]), latency_s=latencies_s, num_bits=np.ones(4)
    )
    run.round_columns.update(compute_energy_j=0.5e-3 * np.ones(2))
    assert participants(measures(run, 0.75), run.scenario) == [2, 1]


def test_coding_is_priced_at_the_slowest_frequency() -> None:
    """33 cycles for each of 246,590 parameters, 1e-26·(200 MHz)² joules per cycle; the first round has one participant,
    the second has two."""
    scenario = task_scenario(EMNIST)
    least_j = {"model": 33 * 246_590 * 1e-26 * 2e8**2, "update+entropy": 80 * 246_590 * 1e-26 * 2e8**2}
    for codec, each_j in least_j.items():
        assert coding_j(codec, scenario) == pytest.approx(each_j)
    charging = {**figures(50.0, 60.0), "charges_mj": [0.0, 0.0]}
    variant, base = "lean with a coded downlink", LAST
    constant = {**figures(2.0, 4.0), "charges_mj": [16.0, 32.0]}
    found = with_coding({FIRST: {0: figures(10.0, 20.0)}, base: {3: constant}, variant: {0: charging}})
    model_mj, entropy_mj = (1e3 * one for one in least_j.values())
    assert found[FIRST][0]["coding_mj"] == pytest.approx([model_mj, 3 * model_mj])
    assert found[base][3]["coding_mj"] == pytest.approx([2 * entropy_mj, 4 * entropy_mj])
    assert found[variant][0]["coding_mj"] == pytest.approx([2 * entropy_mj, 4 * entropy_mj]), "as in the rung it varies"
    varying = with_coding({base: {0: figures(2.0, 4.0)}, variant: {0: charging}})
    assert "coding_mj" not in varying[variant][0], "one participant or two: nobody knows how many"
    assert "3.25 mJ with model (8.1 million cycles: 41 ms at 200 MHz, 8.1 ms at 1000 MHz)" in coding_line()
    assert "outside the deadline of 20 ms. Receiving the whole model: 7.89 mJ; " in coding_line()
    assert "the probe before the first round, 79 mJ for all clients" in coding_line(), "10 clients"


def test_the_second_table_charges_for_more() -> None:
    """Targets are reached in round 1, where one client takes part: receiving and resting cost 8 mJ, and coding 3.255 mJ
    with the paper's codec and 7.891 mJ with that of `lean`."""
    results = {
        FIRST: {0: figures(100.0, 200.0)},
        LAST: {0: {**figures(2.0, 4.0), "charges_mj": [8.0, 16.0]}},
        "lean with a coded downlink": {0: {**figures(5.0, 9.0), "charges_mj": [0.0, 0.0]}},
        "+ one epoch": {0: {**figures(50.0), "until": 0.7}},
    }
    heads, _, *lines = charges_table(results)
    assert heads == (
        "| rung | seeds | mJ to 75 % with coding | of the paper's | mJ to 75 % with receiving and resting "
        "| of the paper's | mJ to 75 % with all three | of the paper's |"
    )
    assert lines == [
        "| paper | 1 | 203 | 100 % | 208 | 100 % | 211 | 100 % |",
        "| lean | 1 | 11.9 | 5.85 % | 12 | 5.77 % | 19.9 | 9.42 % |",
        "| lean with a coded downlink | 1 | – | – | 9 | 4.33 % | 16.9 | 8 % |",
    ]
    coded = with_coding(results)
    assert energies(list(coded[LAST].values()), 0.75, CODING) == pytest.approx([4e-3 + 7.89088e-3])
    assert energies(list(coded[LAST].values()), 0.75, ALL_THREE) == pytest.approx([12e-3 + 7.89088e-3])


def test_the_table_pairs_by_seed_and_says_what_was_not_reached() -> None:
    results = {
        FIRST: {0: figures(100.0, 200.0, None, None, None), 1: figures(200.0, 400.0, None, None, None)},
        LAST: {
            0: figures(2.0, 4.0, 8.0, None, None),
            1: figures(2.0, 4.0, None, None, None),
            2: figures(9.0, 9.0, 9.0, 9.0, 9.0),
        },
    }
    assert ratio(results[LAST], results[FIRST], 0.75).mean == pytest.approx((0.02 + 0.01) / 2)
    lines = table(results)
    assert lines[2].startswith(
        "| paper | 2 | 150 ± 635 | 300 ± 1.27e+03 | not reached | not reached | not reached | 100 ± 0 % |"
    )
    assert "| reached by 2 of 3 | reached by 1 of 3 | reached by 1 of 3 | 1.5 ± 6.35 % (2 pairs) | 50" in lines[3]
    charged = charges_table(results)
    assert "| 308 ± 1.27e+03 | 100 ± 0 % |" in charged[2]
    assert "| 13.7 ± 7.17 | 4.36 ± 18 % (2 pairs) |" in charged[3]
    assert ratio(results[LAST], results[FIRST], 0.75, RECEIVING).mean == pytest.approx((12 / 208 + 12 / 408) / 2)
    failed = {**results[LAST], 1: figures(2.0, None)}
    assert ratio(failed, results[FIRST], 0.75).count == 0, "not the mean of the lucky ones"
    assert shown([3.841, 5.41], 2) == "4626 ± 9968"
    assert shown([None], 5) == "not reached (1 of 5 run)"
    charging = {**figures(50.0, 60.0), "charges_mj": [0.0, 0.0]}
    chart = figure({**results, "charged": {0: charging}})
    assert chart.panels[0].categories == (FIRST, LAST)
    assert [series.name for series in chart.panels[0].series] == ["70 %", "75 %"]


def test_the_record_of_a_run_is_found_by_its_words(tmp_path) -> None:
    key = record_key(LAST, rungs()[LAST], 120, 2)
    assert key.startswith("lean: data.dataset=emnist, data.dataset_size_std=300.0, control.form=scale-free")
    assert key.endswith("; 120 rounds, seed 2")
    (tmp_path / "record.json").write_text(json.dumps({key: figures(1.0)}))
    assert read_record(tmp_path / "record.json")[key]["until"] == 0.85
    assert read_record(tmp_path / "none.json") == {}
    assert read_record(None) == {}


def test_the_other_task_has_targets_of_its_own_and_no_changes_alone() -> None:
    plan = planned(list(rungs()), [0, 1], CIFAR10)
    assert not any(is_alone(rung) for rung, _ in plan)
    assert len(plan) == 2 * (1 + len(LEVERS))
    stops = [stops_at(rung, CIFAR10) for rung in (FIRST, "… one epoch", BEFORE_LAST, LAST)]
    assert stops == [0.40, 0.40, 0.50, 0.50]
    assert list(rungs()).index(BEFORE_LAST) == list(rungs()).index(LAST) - 1
    made = rung_scenario(rungs()[LAST], rounds=5, until=0.5, seed=3, task=CIFAR10)
    assert (made.data.dataset, made.data.transform) == ("cifar10", ["standardise"])
    assert (made.learning.model, made.learning.batch_size) == ("cifar10-cnn", 20)
    assert record_key(LAST, rungs()[LAST], 120, 2, CIFAR10).startswith("lean: data.dataset=cifar10, ")
    costs = {"0.35": None, "0.4": {"rounds": 1, "seconds": 1.0, "energy_j": 2e-3}}
    results = {FIRST: {0: {"until": 0.4, "targets": costs, "computing_share": 0.5, "charges_mj": [18.5]}}}
    assert "mJ to 40 % with receiving and resting" in charges_table(results, CIFAR10)[0]
    assert charges_table(results, CIFAR10)[2] == "| paper | 1 | 9.61 | 100 % | 20.5 | 100 % | 28.1 | 100 % |"
    assert table(results, CIFAR10)[2].startswith("| paper | 1 | not reached | 2 | not run | not run | 100 % |")
    assert figure(results, CIFAR10).caption.startswith("CIFAR-10, ")


def test_what_all_test_samples_say_of_the_last_models() -> None:
    run = {**figures(10.0, None), "energy_j": 0.25, "rounds": 200, "test_accuracy": 0.82}
    assert ends_lines({ACCURATE: {0: figures(10.0)}}) == []
    assert ends_lines({ACCURATE: {0: run, 1: {**run, "rounds": 210, "test_accuracy": 0.83}, 2: figures(1.0)}}) == [
        "accurate lean, at the end of 2 runs: 82.50 ± 6.35 % of all test samples (82.00% to 83.00%), after 200 to 210 "
        "rounds and 250 ± 0 mJ.",
        "accurate lean: 70% after 1 round.",
    ]


def test_runs_of_no_rung_are_shown() -> None:
    run = {"accuracy": 0.8168, "rounds": 70, "energy_j": 0.3091}
    assert other_lines({"a": run, "b": run}, {"b"}) == ["no rung: a: 81.7% in the last tenth of 70 rounds, 309 mJ"]


def test_names_of_rungs_may_contain_commas() -> None:
    assert named_rungs(f"lean,{BEFORE_LAST},paper") == ["lean", BEFORE_LAST, "paper"]
    assert named_rungs("lean with one client per round") == ["lean with one client per round"]
    assert named_rungs("lean,learn") == []
    assert all(named_rungs(name) == [name] for name in rungs())
