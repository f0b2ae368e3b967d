"""`qccf plan`: sums, traces, files, and what a user sees."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from qccf.cli.main import main
from qccf.core.errors import ConfigError
from qccf.rounds.run import bits_size_correlation
from qccf.rounds.sources import StatisticsModel, read_trace
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan, plan_run, plan_summary, planned_scenario
from qccf.settings.loading import load_scenario

FAST = ["federation.rounds=10"]
PAPERS = "codec.name=model"
CONSTANT = [PAPERS, "statistics.model=constant"]


def test_summary_adds_up() -> None:
    scenario = load_scenario("quick", [*FAST, *CONSTANT])
    runs = plan(scenario, ["qccf", "principle"], 3)
    rows = plan_summary(runs)
    assert [row["policy"] for row in rows] == ["qccf", "principle"]
    mine = [run for run in runs if run.policy == "qccf"]
    totals = np.array([run.energy_j[-1] for run in mine])
    assert rows[0]["energy_j"]["mean"] == pytest.approx(totals.mean())
    assert rows[0]["energy_j"]["std"] == pytest.approx(totals.std(ddof=1))
    uploads = np.concatenate([run.uploads["compute_energy_j"] + run.uploads["upload_energy_j"] for run in mine])
    assert rows[0]["energy_per_upload_j"]["mean"] == pytest.approx(uploads.mean())
    assert rows[0]["participation"]["mean"] == pytest.approx(
        np.mean([run.by_round("participated").mean() for run in mine])
    )
    assert rows[0]["bits_first_tenth"] == pytest.approx(np.mean([run.by_round("num_bits")[0] for run in mine]))
    assert rows[0]["bits_last_tenth"] == pytest.approx(np.mean([run.by_round("num_bits")[-1] for run in mine]))
    share = sum(run.round_columns["compute_energy_j"].sum() for run in mine) / totals.sum()
    assert rows[0]["compute_energy_share"] == pytest.approx(share)
    assert 0 < share < 1
    latency = np.concatenate([run.round_columns["latency_s"] for run in mine])
    assert rows[0]["round_latency_s"]["p95"] == pytest.approx(np.quantile(latency, 0.95))
    assert rows[0]["seeds"] == 3
    assert rows[0]["missed"] == 0.0
    correlations = [bits_size_correlation(run.client_columns) for run in mine]
    assert rows[0]["bits_size_correlation"]["mean"] == pytest.approx(np.mean(correlations))
    assert np.isfinite(mine[0].round_columns["error_price"]).all()
    assert np.isnan(runs[-1].round_columns["error_price"]).all()


def test_bits_and_sizes_are_correlated_within_rounds() -> None:
    from scipy.stats import spearmanr

    run = plan_run(build_world(load_scenario("quick", CONSTANT), 1), "qccf")
    each = []
    for bits, on in zip(run.by_round("num_bits"), run.by_round("participated"), strict=True):
        if on.sum() > 2:
            sizes = run.dataset_sizes[on]
            each.append(spearmanr(bits[on], sizes).statistic if np.ptp(bits[on]) else 0.0)
    assert bits_size_correlation(run.client_columns) == pytest.approx(np.mean(each))


def test_constant_and_trace_statistics(tmp_path: Path) -> None:
    sizes = np.full(10, 100.0)
    constant = StatisticsModel(
        load_scenario("quick", [*CONSTANT, "statistics.weight_range=0.7", "statistics.loss=2.0"]), sizes
    )
    assert set(constant.known(5).weight_ranges) == {0.7}
    assert set(constant.losses(5)) == {2.0}
    path = tmp_path / "trace.csv"
    path.write_text("round,client,weight_range\n0,1,1.0\n10,1,2.0\n0,3,5.0\n0,0,3.0\n0,9,4.0\n")
    traced = StatisticsModel(load_scenario("quick", ["statistics.model=trace", f"statistics.trace={path}"]), sizes)
    assert traced.known(4).weight_ranges.tolist() == pytest.approx([3.0, 1.4, 0.4, 5.0] + [0.4] * 5 + [4.0])
    assert traced.known(99).weight_ranges[1] == 2.0
    bundled = StatisticsModel(
        load_scenario("femnist", ["statistics.model=trace", "statistics.trace=growing-weights"]), sizes
    )
    assert bundled.known(0).weight_ranges[0] == 0.2
    assert bundled.known(99).weight_ranges[0] == 0.65
    trained = StatisticsModel(load_scenario("femnist", ["statistics.model=trace", "statistics.trace=emnist"]), sizes)
    losses = [trained.losses(n)[0] for n in (0, 99, 198, 396)]
    assert losses[0] == 4.133
    assert losses[1] == 0.199
    assert losses[2] / losses[1] == pytest.approx(losses[3] / losses[2]), "it goes on falling by a power law"
    assert losses[2] < 0.8 * losses[1]


@pytest.mark.parametrize("loss", [0.199, 0.5, 1.0])
def test_a_constant_loss_stays_constant_beyond_its_trace(loss: float, tmp_path: Path) -> None:
    """A slope of rounding errors would let it fall a little, and principle compares losses."""
    path = tmp_path / "trace.csv"
    path.write_text("round,loss\n" + "".join(f"{n},{loss}\n" for n in range(20)))
    traced = StatisticsModel(
        load_scenario("quick", ["statistics.model=trace", f"statistics.trace={path}"]), np.full(10, 100.0)
    )
    assert set(traced.losses(500)) == {loss}


def test_constant_gradients_shrink_with_the_learning_rate() -> None:
    """What is known in round 3 was measured in round 2, at η·0.5²."""
    decaying = StatisticsModel(load_scenario("quick", [*CONSTANT, "learning.decay=0.5"]), np.full(10, 100.0))
    assert decaying.known(0).gradient_norms_sq == pytest.approx(decaying.known(1).gradient_norms_sq)
    for name in ("gradient_norms_sq", "gradient_variances"):
        assert getattr(decaying.known(3), name) == pytest.approx(getattr(decaying.known(0), name) / 16.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("client,loss\n0,1\n", "has no column 'round'"),
        ("round,lost\n0,1\n", "unknown column 'lost'"),
        ("round,loss\n0,x\n", "row 1 is not all numbers"),
        ("round,loss\n0,nan\n", "not between 0 and 1e"),
        ("round,weight_range\n0,1e300\n", "not between 0 and 1e"),
        ("round,loss\n0,1,2\n", "row 1 has 3 cells, but there are 2 columns"),
        ("round,loss,loss\n0,1,2\n", "a column twice"),
        ("round,loss\n0,1\n0,2\n", "gives a round twice"),
        ("round,client,loss\n0,0,1\n0,0,2\n0,1,1\n", "gives a round twice"),
        ("round,loss\n0,1000001\n", "row 1 has a value that is not between 0 and 1e"),
        ("round,loss\n", "holds no values"),
        ("round,client,loss\n0,44,1\n", "names client 44"),
        ("round,client,loss\n0,10,1\n", "names client 10, but there are clients 0 to 9"),
        ("round,client,loss\n0,-1,1\n", "names client -1"),
        (f"round,loss\n0,{'1' * 200_000}\n", "is not a CSV file: field larger"),
    ],
)
def test_bad_traces_get_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_trace(str(path), 10)


def test_a_trace_has_values_up_to_a_million(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("round,loss\n7,1000000\n0,0\n")
    ((rounds, values),) = read_trace(str(path), 10).values()
    assert (rounds.tolist(), values.tolist()) == ([0.0, 7.0], [0.0, 1e6])


def test_missing_trace() -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        planned_scenario(load_scenario("quick", [PAPERS, "statistics.model=trace", "statistics.trace=none.csv"]))


def test_plan_writes_json_and_a_figure_and_shows_a_table(tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    status = main(["plan", "quick", "--rounds", "6", "--seeds", "2", "--out", str(out), "--set", "radio.gain_db=3"])
    assert status == 0
    shown = capsys.readouterr().out
    for name in ("qccf", "no-quantization", "channel-allocate", "principle", "same-size", "plan.json", "plan.png"):
        assert name in shown
    report = json.loads((out / "plan.json").read_text())
    assert report["scenario"]["radio"]["gain_db"] == 3
    assert len(report["runs"]) == 10
    first = report["runs"][0]
    assert len(first["rounds"]["energy_j"]) == 6
    assert max(first["clients"]["mean_latency_s"]) <= 0.0200001
    for name in ("error_price", "aggregate_error", "error_budget"):
        assert all(value > 0.0 for value in first["rounds"][name])
    assert first["rounds"]["participation_queue"] is report["runs"][2]["rounds"]["error_price"] is None
    assert report["runs"][2]["rounds"]["error_budget"] == [None] * 6
    assert report["runs"][2]["rounds"]["aggregate_error"] == [0.0] * 6
    assert first["clients"]["turns"] == [6.0] * 10
    assert first["health"] == []
    summary = report["summary"][0]
    assert summary["error_ratio"] == pytest.approx(
        np.mean(
            [np.divide(run["rounds"]["aggregate_error"], run["rounds"]["error_budget"]) for run in report["runs"][:2]]
        )
    )
    assert (summary["participation_ratio"], summary["jain"], summary["empty_rounds"]) == (1.0, 1.0, 0.0)
    assert report["summary"][1]["error_ratio"] is None
    assert sum(first["rounds"]["energy_j"]) == pytest.approx(sum(first["clients"]["energy_j"]))
    assert (out / "plan.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert sorted(os.listdir(out)) == [".lock", "command.json", "plan.json", "plan.png"]


def test_plan_as_json_for_one_policy_of_ones_own(tmp_path: Path, capsys) -> None:
    arguments = ["plan", "quick", "--rounds", "4", "--seeds", "1", "--out", str(tmp_path), "--json", "full"]
    assert main([*arguments, "--policy", "examples.custom_policy:BestLinks"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in report["summary"]] == ["examples.custom_policy:BestLinks"]


def test_when_nobody_takes_part(tmp_path: Path, capsys) -> None:
    arguments = ["plan", "quick", "--rounds", "1", "--seeds", "1", "--out", str(tmp_path)]
    assert main([*arguments, "--policy", "tests.helpers.tiny:Nobody"]) == 0
    assert "–→–" in capsys.readouterr().out, "no upload, no bits"


def test_a_policy_named_twice_counts_once(tmp_path: Path, capsys) -> None:
    arguments = ["plan", "quick", "--rounds", "2", "--seeds", "2", "--out", str(tmp_path), "--json", "full"]
    assert main([*arguments, "--policy", "qccf", "--policy", "qccf"]) == 0
    assert [row["seeds"] for row in json.loads(capsys.readouterr().out)["summary"]] == [2]


def test_the_policy_of_the_config_runs_beside_the_five(tmp_path: Path, capsys) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('preset = "quick"\n[federation]\nrounds = 2\n[policy]\nname = "examples.custom_policy:BestLinks"\n')
    assert main(["plan", str(file), "--seeds", "1", "--out", str(tmp_path / "out"), "--json", "full"]) == 0
    names = [row["policy"] for row in json.loads(capsys.readouterr().out)["summary"]]
    assert names == ["qccf", "no-quantization", "channel-allocate", "principle", "same-size",
                     "examples.custom_policy:BestLinks"]  # fmt: skip
    assert main(["plan", "quick", "--set", "policy.name=nope", "--out", str(tmp_path / "out")]) == 2
    assert "policy 'nope'" in capsys.readouterr().err


def test_nowhere_to_write_is_found_out_first(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("in the way")
    assert main(["plan", "quick", "--seeds", "1", "--out", str(tmp_path / "file")]) == 2
    captured = capsys.readouterr()
    assert "cannot be written to" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("change", [["control.inner=closed-form", "learning.num_parameters=1000"],
                                    ["control.inner=closed-form", "device.deadline_s=60"],
                                    ["control.inner=closed-form-taylor"], ["control.inner=printed"]])  # fmt: skip
def test_every_inner_solution_runs_silently(tmp_path: Path, change: list[str]) -> None:
    """Warnings are errors here."""
    overrides = [part for setting in (PAPERS, "control.form=paper", *change) for part in ("--set", setting)]
    arguments = ["plan", "quick", "--rounds", "3", "--seeds", "1", "--policy", "qccf", "--out", str(tmp_path)]
    assert main([*arguments, *overrides]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["paper-table"], "needs 28 Mb/s"),
        (["quick", "--seeds", "0"], "--seeds 0 is out of range"),
        (["quick", "--rounds", "0"], "federation.rounds = 0"),
        (["quick", "--policy", "best"], "policy 'best' is not one of"),
        (["nothing"], "neither a preset"),
    ],
)
def test_plan_refuses_with_one_sentence(tmp_path: Path, capsys, arguments: list[str], words: str) -> None:
    assert main(["plan", *arguments, "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
