"""Rounds that are decided with an estimate of the channels and settled with the truth."""

from pathlib import Path

import numpy as np
import pytest

from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan, plan_run
from qccf.settings.loading import load_scenario


@pytest.mark.parametrize("policy", ["qccf", "fixed-bits"])
def test_each_upload_is_settled_with_its_true_rate(policy: str) -> None:
    scenario = load_scenario("femnist", ["radio.estimate_error_db=3", "federation.rounds=6", "codec.name=model"])
    run = plan(scenario, [policy], 1)[0]
    table, c = run.client_columns, scenario.constants()
    on = table["participated"]
    cycles = c.local_epochs * c.cycles_per_sample * table["dataset_size"]
    with np.errstate(divide="ignore", invalid="ignore"):
        finish_s = cycles / table["frequency_hz"] + table["payload_bits"] / table["rate_bps"]
    late = on & (finish_s > c.deadline_s * (1 + 1e-9))
    np.testing.assert_array_equal(table["missed"], late)
    np.testing.assert_array_equal(table["arrived"], on & ~late)
    assert 0 < late.sum() < on.sum()
    sent_s = np.where(late, c.deadline_s - cycles / c.frequency_max_hz, table["payload_bits"] / table["rate_bps"])
    np.testing.assert_allclose(table["upload_energy_j"][on], c.transmit_power_w * sent_s[on])
    fast = np.where(late, c.frequency_max_hz, table["frequency_hz"])
    np.testing.assert_allclose(table["compute_energy_j"][on], (c.energy_coefficient * cycles * fast**2)[on])
    assert "optimistic-estimates" in {finding.kind for finding in run.findings}


def test_decisions_see_the_estimate_and_nothing_else() -> None:
    scenario = load_scenario("femnist", ["radio.estimate_age=1", "federation.rounds=3"])
    world = build_world(scenario, 0)
    run = plan_run(world, "qccf")
    on, channels = run.by_round("participated"), run.by_round("channel")
    for n in range(3):
        estimated, true = world.cell.round_rates_bps(max(n - 1, 0)), world.cell.round_rates_bps(n)
        rows = np.flatnonzero(on[n])
        np.testing.assert_array_equal(run.by_round("estimated_rate_bps")[n][rows], estimated[rows, channels[n][rows]])
        np.testing.assert_array_equal(run.by_round("rate_bps")[n][rows], true[rows, channels[n][rows]])


def test_a_back_off_saves_the_uploads() -> None:
    settings = ["radio.estimate_error_db=2", "federation.rounds=20", "codec.name=model"]
    runs = [
        plan(load_scenario("femnist", [*settings, f"radio.backoff_db={backoff}"]), ["qccf"], 1)[0] for backoff in (0, 8)
    ]
    lost = [float(run.client_columns["missed"].mean()) for run in runs]
    assert lost[0] > 0.2
    assert lost[1] < 0.01
    kinds = {finding.kind for finding in runs[1].findings}
    assert kinds == {"noisy-aggregates"}, "whole models with the bits that are left; no upload is lost"


def test_an_exempt_upload_without_a_link_is_lost_and_costs_a_round(tmp_path: Path) -> None:
    """The link is there in even rounds only, and known one round late; sending for ever would cost infinite energy."""
    np.savez(tmp_path / "t.npz", rates_bps=np.array([[1e8] * 10, [0.0] * 10]))
    settings = [f"radio.trace={tmp_path / 't.npz'}", "radio.estimate_age=1", "federation.rounds=4"]
    run = plan(load_scenario("femnist", settings), ["no-quantization"], 1)[0]
    # round 0 is known; in round 1 the link is thought to be there, in round 2 to be away
    np.testing.assert_array_equal(run.by_round("participated").all(axis=1), [True, True, False, True])
    np.testing.assert_array_equal(run.by_round("arrived").all(axis=1), [True, False, False, False])
    c = run.scenario.constants()
    compute_s = c.local_epochs * c.cycles_per_sample * run.dataset_sizes / c.frequency_max_hz
    np.testing.assert_allclose(run.by_round("upload_energy_j")[1], c.transmit_power_w * (c.deadline_s - compute_s))
    assert (run.by_round("latency_s")[1] == c.deadline_s).all()
