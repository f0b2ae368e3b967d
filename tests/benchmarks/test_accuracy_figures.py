"""The figures of the study of accuracy: whole seeds only, and three axes."""

import numpy as np

from benchmarks.accuracy import record_name
from benchmarks.accuracy_figures import accuracy_chart, front_chart, whole_seeds
from qccf.policies.registry import PAPERS_POLICIES
from qccf.rounds.run import Run
from qccf.rounds.run_record import RunRecords
from tests.helpers.made_runs import ROUNDS, made_record


def recorded(policy: str, seed: int) -> Run:
    run = made_record(policy, seed, first=4)
    energy = np.diff(run.energy_j, prepend=0.0)
    run.round_columns.update(
        latency_s=np.full(ROUNDS, 0.02), energy_j=energy, train_loss=energy, test_loss=energy, arrived=run.mean_bits
    )
    run.client_columns["arrived"] = run.client_columns["participated"]
    return run


def test_a_seed_without_every_policy_is_left_out() -> None:
    records = RunRecords()
    for seed in (0, 1):
        for policy in PAPERS_POLICIES[: 5 - seed]:
            records.add(record_name("mnist-writers", policy, seed), recorded(policy, seed))
    runs = whole_seeds("mnist-writers", records)
    assert [run.policy for run in runs] == list(PAPERS_POLICIES)
    assert {run.seed for run in runs} == {0}
    assert whole_seeds("emnist", records) == []


def test_three_panels_have_the_same_accuracies_over_rounds_time_and_energy() -> None:
    runs = [recorded("qccf", seed) for seed in range(3)]
    rounds, time, energy = accuracy_chart("emnist", runs).panels
    (a,), (b,), (c,) = rounds.series, time.series, energy.series
    assert np.array_equal(a.y, b.y)
    assert np.array_equal(a.y, c.y)
    assert np.allclose(a.x, np.arange(1, ROUNDS + 1))
    assert np.allclose(b.x, 0.02 * np.arange(1, ROUNDS + 1))
    assert np.allclose(c.x, np.mean([run.energy_j for run in runs], axis=0))


def test_the_front_has_a_point_for_each_v_and_each_number_of_bits() -> None:
    runs = [recorded("qccf", seed) for seed in range(3)]
    (panel,) = front_chart({"V = 1": runs, "V = 10": runs[:2], "3 bits": runs}).panels
    over_v, constant = panel.series
    assert (len(over_v.x), len(constant.x)) == (2, 1)
    assert constant.x[0] == np.mean([run.energy_j[-1] for run in runs])
    assert constant.y[0] == np.mean([run.final_accuracy() for run in runs])
