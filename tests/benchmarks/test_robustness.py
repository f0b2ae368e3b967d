"""The criteria of the bank: each figure against a loop or an example by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import robustness
from benchmarks.robustness import (
    Task,
    code_digest,
    compute,
    dominates,
    metrics,
    multiplied,
    planned,
    planned_runs,
    play,
    verdicts,
)
from qccf.rounds.run import Run
from support.scenario_bank import BankScenario, BankSource, named_scenarios

ROUNDS = 8


def small(**changes: Any) -> BankScenario:
    one = next(one for one in named_scenarios() if one.name == "10-clients-3-channels/update+entropy")
    federation = one.settings["federation"] | {"rounds": ROUNDS, "num_clients": 5}
    return replace(one, settings=one.settings | {"federation": federation} | changes)


def planned_and_judged(one: BankScenario, policy: str) -> tuple[Run, BankSource, dict[str, Any]]:
    run = planned(one, policy, {})
    return run, BankSource(run.scenario, one.clients, run.dataset_sizes), metrics(run)


def test_the_figures_are_those_of_a_loop_over_the_rounds() -> None:
    run, source, found = planned_and_judged(small(), "channel-allocate")
    arrived, bits, sizes = run.by_round("arrived"), run.by_round("num_bits"), run.dataset_sizes
    assert found["rounds"] == ROUNDS
    assert found["energy_j"] == pytest.approx(run.round_columns["energy_j"].sum())
    assert found["participation"] == pytest.approx(arrived.sum() / (5 * ROUNDS))
    assert found["uploads"] == arrived.sum(axis=0).tolist()
    assert found["missed"] == run.round_columns["missed"].sum()
    assert found["empty_though_able"] == 0
    assert found["able_share"] == [1.0] * 5
    fair = 3.0 / 5.0 * ROUNDS
    assert found["fair_uploads"] == pytest.approx([fair] * 5)
    assert found["least_fair_share"] == pytest.approx(arrived.sum(axis=0).min() / fair)
    counts = arrived.sum(axis=0)
    assert found["fairness"] == pytest.approx(counts.sum() ** 2 / (5.0 * (counts**2).sum()))
    errors = []
    last = source.values(0).errors.copy()  # what each client reported last
    for n in range(ROUNDS):
        on = np.flatnonzero(arrived[n])
        errors.append(np.sum((sizes[on] / sizes[on].sum()) ** 2 * last[on, bits[n, on] - 1]))
        last[on] = source.values(n).errors[on]
    assert found["mean_error"] == pytest.approx(np.mean(errors))
    assert found["error_to_budget"] == pytest.approx(1.0 / robustness.DEFAULT_SLACK)  # it sends the most bits


def test_a_policys_own_budget_counts() -> None:
    run, _, found = planned_and_judged(small(), "qccf")
    errors, budgets = run.round_columns["aggregate_error"], run.round_columns["error_budget"]
    assert found["error_to_budget"] == pytest.approx(np.mean(errors / budgets))
    assert found["mean_error"] == pytest.approx(np.mean(errors))


def test_floats_have_no_error_and_an_unattainable_deadline_no_participant() -> None:
    plenty = small(device={"deadline_s": 10.0, "cycles_per_sample": 1000})
    _, _, found = planned_and_judged(plenty, "no-quantization")
    assert (found["mean_error"], found["error_to_budget"]) == (0.0, 0.0)
    assert found["participation"] == pytest.approx(3.0 / 5.0)
    _, _, found = planned_and_judged(small(), "no-quantization")
    assert found["empty_though_able"] == ROUNDS
    assert (found["mean_error"], found["error_to_budget"], found["mean_bits"]) == (None, None, None)
    json.dumps(found, allow_nan=False)


def test_a_round_in_which_nobody_is_able_is_not_an_empty_one() -> None:
    hard = small(device={"deadline_s": 0.0073, "cycles_per_sample": 1000}, codec={"name": "model"})
    run, _, found = planned_and_judged(hard, "qccf")
    able = run.by_round("able")
    assert 0 < found["rounds_somebody_able"] == able.any(axis=1).sum() < ROUNDS
    assert not run.by_round("participated")[~able.any(axis=1)].any()
    assert found["empty_though_able"] == 0


def result(**values: Any) -> dict[str, Any]:
    """A run that meets every criterion, with other values."""
    good = {
        "empty_though_able": 0,
        "rounds_somebody_able": 200,
        "least_fair_share": 0.9,
        "error_to_budget": 1.0,
        "energy_j": 10.0,
        "mean_error": 1.0,
        "participation": 0.5,
        "missed": 0,
        "fairness": 0.9,
    }
    return good | values


def test_each_criterion_at_its_limit() -> None:
    def judged(looser_j: float = 10.1, baseline: dict[str, Any] | None = None, **ours: Any) -> dict[str, bool]:
        runs = {"qccf": result(**ours), "slack × 2": result(energy_j=looser_j), "slack × 5": result(energy_j=1.0)}
        runs |= dict.fromkeys(robustness.BASELINES, baseline or result(energy_j=11.0))
        return {key: verdict.passed for key, verdict in verdicts(runs).items()}

    assert judged() == dict.fromkeys(robustness.CRITERIA, True)
    assert not judged(empty_though_able=1)["a"]
    assert judged(least_fair_share=0.5)["b"]
    assert not judged(least_fair_share=0.499)["b"]
    assert "b" not in judged(least_fair_share=None)
    assert judged(error_to_budget=1.1)["c"]
    assert not judged(error_to_budget=1.11)["c"]
    assert not judged(baseline=result(energy_j=9.0, mean_error=0.9))["d"]
    assert not judged(baseline=result(energy_j=9.0, mean_error=0.9))["d, fair"]
    unfair = judged(baseline=result(energy_j=9.0, mean_error=0.9, fairness=0.88))
    assert (unfair["d"], unfair["d, fair"]) == (False, True)
    assert not judged(looser_j=10.2)["e"]
    assert judged(rounds_somebody_able=0) == {}


def test_a_crash_is_a_failure_and_the_bank_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> Any:
        raise OverflowError("too large")

    monkeypatch.setattr(robustness, "planned", crash)
    task = Task(small(), tmp_path / "one.json", "scale-free", {}, ("qccf",))
    compute(task)
    runs = json.loads(task.path.read_text())["runs"]
    found = verdicts(runs)
    assert list(found) == ["0"]
    assert not found["0"].passed
    assert found["0"].text == "qccf: OverflowError: too large"
    looser = {"qccf": result(), "slack × 2": runs["qccf"]}
    assert {key: one.passed for key, one in verdicts(looser).items()} == {"0": False, "a": True, "b": True, "c": True}


def test_a_baseline_is_better_only_in_energy_and_error_at_no_less_participation_and_in_time() -> None:
    ours = result()
    better = {"energy_j": 9.0, "mean_error": 0.9}
    assert dominates(result(**better), ours)
    assert not dominates(result(**better | {"energy_j": 10.0}), ours)
    assert not dominates(result(**better | {"mean_error": 1.0}), ours)
    assert not dominates(result(**better, participation=0.49), ours)
    assert not dominates(result(**better, missed=1), ours)
    assert not dominates(result(**better | {"mean_error": None}), ours)
    assert dominates(result(energy_j=99.0), result(mean_error=None))


def test_a_looser_budget_is_a_multiple_of_the_scenarios_value() -> None:
    one = small()
    labels = {label: (policy, changes) for label, policy, changes in planned_runs("paper", {}, ("looser",))}
    assert set(labels) == {f"paper.{k} × {f}" for k in ("quantization_budget", "energy_weight") for f in (3,)}
    changes = multiplied(one, labels["paper.energy_weight × 3"][1], "paper.energy_weight × 3")
    assert changes == {"control.form": "paper", "control.paper.energy_weight": 300.0}
    knobs = {"control.slack": 3.0}
    (*_, base), *_ = planned_runs("scale-free", knobs, ("qccf",))
    assert base == {"control.form": "scale-free", "control.slack": 3.0}
    assert multiplied(one, base, "qccf") == base


def test_a_finished_scenario_is_not_computed_again_until_something_changes(tmp_path: Path) -> None:
    task = Task(small(), tmp_path / "one.json", "scale-free", {}, ("qccf", "baselines"))
    assert [label for label, *_ in task.missing()] == ["qccf", *robustness.BASELINES]
    compute(task)
    assert task.missing() == []
    saved = json.loads(task.path.read_text())
    assert saved["runs"]["principle"]["energy_j"] == play(task.one, "principle", {})["energy_j"]
    assert [label for label, *_ in replace(task, parts=("qccf", "looser")).missing()] == [
        f"{knob} × {factor}" for knob in ("slack", "energy_weight") for factor in (3,)
    ]
    assert [label for label, *_ in replace(task, form="paper").missing()] == ["qccf", "same-size"]
    assert len(replace(task, one=replace(task.one, clients=replace(task.one.clients, tail=3.0))).missing()) == 5
    task.path.write_text("{")  # damaged
    assert len(task.missing()) == 5


def test_the_digest_of_a_baseline_does_not_depend_on_the_controller() -> None:
    assert code_digest(True) != code_digest(False)
