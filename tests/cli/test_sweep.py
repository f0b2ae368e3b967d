"""`qccf sweep`: user errors, tables, resume and retries."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from qccf.cli.main import main
from qccf.core.errors import QccfError
from qccf.jobs.planning import PlanJob
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan_run
from qccf.settings.loading import load_scenario
from tests.helpers.batch_jobs import interrupt_third_run, wait_for
from tests.helpers.tiny import SETTINGS

ROOT = Path(__file__).parents[2]

PLAN = """
scenario = "quick"
kind = "plan"
[settings]
federation.rounds = 2
[grid]
policy = ["qccf", "principle"]
"control.energy_weight" = [10, 20]
seed = [3, 4]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(PLAN)
    return path


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("seed = [3, 4]", "seed = []", "seed = [] in [grid] is not a list of values"),
        ("seed = [3, 4]", "seed = 3", "seed = 3 in [grid] is not a list of values"),
        ("seed = [3, 4]", "seed = [3, 3]", "makes the same run twice (policy qccf, seed 3)"),
        ("seed = [3, 4]", "execution.workers = [1, 2]", "makes the same run twice"),
        ("seed = [3, 4]", "seed = [3, -4]", "federation.seed = -4 is out of range: it must be at least 0"),
        ("seed = [3, 4]", "bandwidth = [3]", "'bandwidth' is not a setting: write section.key"),
        ("energy_weight", "energy_wieght", "did you mean control.energy_weight?"),
        ("[10, 20]", '[10, "much"]', "control.energy_weight = 'much' is not a number"),
        ('"qccf", ', '"best", ', "policy 'best' is not one of"),
        ("rounds = 2", 'rounds = 2\nstatistics.model = "constant"', "cannot price codec 'update+entropy'"),
        ("seed = [3, 4]", 'codec = ["model"]\nradio.bandwidth_hz = [1e7, 1e3]', "no client can ever upload"),
        ("rounds = 2", "rounds.few = 2", "federation.rounds.few cannot be set: 'rounds' is a value, not a section"),
        ('kind = "plan"', 'kind = "guess"', "kind = 'guess' is not one of train, plan, measure"),
        ('kind = "plan"', "kinds = 1", "'kinds' is not a key of a sweep"),
        ('"quick"', '"quickest"', "'quickest' is neither a preset"),
        ('"quick"', "3", "scenario = 3 is not text"),
        ("seed = [3, 4]", f"seed = {list(range(30_000))}", "makes 120,000 runs, more than 100,000"),
        (
            "federation.rounds = 2",
            'codec.name = "model"\nstatistics = {model = "trace", trace = "no.csv"}',
            "'no.csv' cannot be read",
        ),
        ('"plan"', '"train"\n#', "dataset 'nowhere' is not one of"),
        ("[grid]", "[grid", "is not valid TOML"),
    ],
)
def test_user_errors_get_one_sentence_before_the_first_run(
    file: Path, capsys, old: str, new: str, sentence: str
) -> None:
    text = PLAN.replace("federation.rounds = 2", 'federation.rounds = 2\ndata.dataset = "nowhere"')
    assert old in text
    file.write_text((text if "train" in new else PLAN).replace(old, new, 1))
    assert main(["sweep", str(file), "--out", str(file.parent / "out")]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (file.parent / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--jobs", "0"], "--jobs 0 is out of range"),
        (["--address", "auto"], "--address auto is the address of a Ray cluster: add --engine ray"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "nothing answers at --address 127.0.0.1:1"),
        (["--engine", "ray", "--address", "ray://127.0.0.1:1"], "nothing answers at --address ray://127.0.0.1:1"),
        (["--engine", "ray", "--address", "127.0.0.1:x"], "nothing answers at --address 127.0.0.1:x"),
    ],
)
def test_an_impossible_engine_is_refused_with_one_sentence(
    file: Path, capsys, arguments: list[str], sentence: str
) -> None:
    assert main(["sweep", str(file), "--out", str(file.parent / "out"), *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_without_ray_a_sentence_says_how_to_get_it(file: Path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["sweep", str(file), "--out", str(file.parent / "out"), "--engine", "ray"]) == 2
    assert capsys.readouterr().err == "qccf: --engine ray needs ray: pip install 'qccf[ray]'.\n"


def test_the_tables_hold_the_results_of_the_runs(file: Path, capsys) -> None:
    out = file.parent / "out"
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "8 runs in" in shown
    assert "8 done, 0 running, 0 left" in shown
    results = pd.read_parquet(out / "results.parquet")
    assert list(results.columns[:5]) == ["run", "kind", "policy", "codec", "seed"]
    assert results["run"].is_unique
    assert {path.name for path in (out / "runs").iterdir()} == set(results["run"])
    row = results[(results["policy"] == "principle") & (results["control.energy_weight"] == 20) & (results.seed == 4)]
    scenario = load_scenario("quick", ["federation.rounds=2", "control.energy_weight=20.0"])
    run = plan_run(build_world(scenario, 4), "principle")
    assert row["energy_j"].item() == run.energy_j[-1]
    assert row["compute_energy_j"].item() == run.round_columns["compute_energy_j"].sum()
    assert row["participation"].item() == run.by_round("participated").mean()
    assert row["missed"].item() == run.missed_share()
    assert row["mean_bits"].item() == run.mean_upload_bits()
    assert row["mean_latency_s"].item() == run.round_columns["latency_s"].mean()
    assert row["control.paper.data_budget"].item() == "auto"
    assert row["data.dataset_size_mean"].item() == 200
    assert "decision_s" not in results
    rounds = pd.read_parquet(out / "rounds.parquet")
    assert len(rounds) == 8 * 2
    mine = rounds[rounds["run"] == row["run"].item()]
    assert list(mine["round"]) == [0, 1]
    np.testing.assert_array_equal(mine["energy_j"], run.round_columns["energy_j"])
    np.testing.assert_array_equal(mine["cumulative_energy_j"], run.energy_j)
    np.testing.assert_array_equal(mine["participants"], run.round_columns["participants"])
    assert set(mine["policy"]) == {"principle"}
    assert (out / "sweep.toml").read_text() == PLAN


def test_a_second_call_runs_only_what_is_missing(file: Path, capsys, monkeypatch) -> None:
    out = file.parent / "out"
    ran: list[str] = []
    run = PlanJob.run
    monkeypatch.setattr(PlanJob, "run", lambda job, *rest: (ran.append(job.folder.name), run(job, *rest))[1])
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    assert len(set(ran)) == len(ran) == 8
    before = pd.read_parquet(out / "results.parquet")
    (out / "runs" / ran[5] / "summary.json").unlink()
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    assert ran[8:] == [ran[5]]
    assert "8 runs in" in capsys.readouterr().out
    pd.testing.assert_frame_equal(pd.read_parquet(out / "results.parquet"), before)
    file.write_text(PLAN.replace("seed = [3, 4]", "seed = [4, 5]"))
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    assert len(ran) == 9 + 4
    results = pd.read_parquet(out / "results.parquet")
    assert len(results) == 8, "the table belongs to the present file"
    assert set(results["seed"]) == {4, 5}


def test_a_failed_run_is_retried_and_then_named(file: Path, capsys, monkeypatch) -> None:
    out = file.parent / "out"
    tries: dict[str, int] = {}
    run = PlanJob.run

    def breaks(job, *rest):
        tries[job.label] = tries.get(job.label, 0) + 1
        weight, seed = job.scenario.control.energy_weight, job.scenario.federation.seed
        if weight == 10 and seed == 3 and (job.scenario.policy.name == "qccf" or tries[job.label] < 3):
            raise MemoryError("no more")
        run(job, *rest)

    monkeypatch.setattr(PlanJob, "run", breaks)
    assert main(["sweep", str(file), "--out", str(out)]) == 1
    shown = capsys.readouterr().out
    assert "energy weight 10, seed 3 will be retried: MemoryError: no more" in shown
    assert (
        "codec update+entropy, 10 clients, 10 channels, β 50, energy weight 10, seed 3 failed: MemoryError: no more"
        in shown
    )
    assert "1 failed; the same command tries them again." in shown
    assert sorted(tries.values()) == [1] * 6 + [3, 3]
    results = pd.read_parquet(out / "results.parquet")
    assert len(results) == 7
    assert not ((results["policy"] == "qccf") & (results["control.energy_weight"] == 10) & (results.seed == 3)).any()
    monkeypatch.setattr(PlanJob, "run", run)
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    assert len(pd.read_parquet(out / "results.parquet")) == 8


def test_an_interrupt_keeps_the_finished_runs(file: Path, capsys, monkeypatch) -> None:
    out = file.parent / "out"
    calls = interrupt_third_run(PlanJob, monkeypatch)
    assert main(["sweep", str(file), "--out", str(out)]) == 130
    assert "Stopped: 2 done, 0 running, 6 left" in capsys.readouterr().out
    assert len(pd.read_parquet(out / "results.parquet")) == 2
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    assert "8 runs in" in capsys.readouterr().out
    assert len(calls) == 9
    assert len(pd.read_parquet(out / "results.parquet")) == 8


def test_finished_runs_survive_the_loss_of_a_cluster(file: Path, capsys, monkeypatch) -> None:
    class Dying:
        def run(self, queue) -> None:
            for _ in range(3):
                index, job = queue.take()
                job.run(job.folder, lambda _: None)
                queue.end(index, None)
            raise QccfError("the cluster is gone.")

    monkeypatch.setattr("qccf.cli.sweep.build_engine", lambda *_, **__: Dying())
    assert main(["sweep", str(file), "--out", str(file.parent / "out")]) == 2
    assert "the cluster is gone." in capsys.readouterr().err
    assert len(pd.read_parquet(file.parent / "out" / "results.parquet")) == 3


@pytest.mark.usefixtures("tiny_source")
def test_trained_runs_are_in_the_table_too(tmp_path: Path) -> None:
    settings = "\n".join(
        f'{key} = "{value}"' if not value[0].isdigit() else f"{key} = {value}"
        for key, value in (setting.split("=") for setting in SETTINGS if not setting.startswith("codec"))
    )
    file = tmp_path / "grid.toml"
    file.write_text(f'[settings]\n{settings}\ndata.dataset = "tiny"\n[grid]\ncodec = ["model", "update"]\nseed = [1]\n')
    out = tmp_path / "out"
    assert main(["sweep", str(file), "--out", str(out)]) == 0
    results = pd.read_parquet(out / "results.parquet")
    assert list(results["codec"]) == ["model", "update"]
    for _, row in results.iterrows():
        summary = json.loads((out / "runs" / row["run"] / "summary.json").read_text())
        assert summary["codec"] == row["codec"]
        assert summary["test_accuracy"] == row["test_accuracy"]
        assert summary["energy_j"] == row["energy_j"]
    rounds = pd.read_parquet(out / "rounds.parquet")
    assert len(rounds) == 2 * 8
    assert rounds["test_accuracy"].notna().any()
    assert main(["report", str(out)]) == 0


@pytest.mark.usefixtures("tiny_source")
def test_the_table_names_the_dataset_that_was_used_and_the_warning_comes_once(tmp_path: Path, capsys) -> None:
    settings = "\n".join(
        f"{key} = {json.dumps(value) if not value[0].isdigit() else value}"
        for key, value in (setting.split("=") for setting in SETTINGS)
    )
    file = tmp_path / "grid.toml"
    data = 'data.dataset = "emnist"\ndata.fallbacks = ["tiny"]'
    file.write_text(f"[settings]\n{settings}\n{data}\n[grid]\nseed = [1, 2]\n")
    assert main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err.count("Using tiny instead") == 1
    assert list(pd.read_parquet(tmp_path / "out" / "results.parquet")["data.dataset"]) == ["tiny"] * 2


def test_a_plan_counts_the_parameters_of_its_model(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'kind = "plan"\n[settings]\nfederation.rounds = 1\nlearning.num_parameters = 0\n[grid]\nseed = [1]\n'
    )
    assert main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 0
    assert list(pd.read_parquet(tmp_path / "out" / "results.parquet")["learning.num_parameters"]) == [246_590]


MEASURE = """
scenario = "quick"
kind = "measure"
[settings]
federation.rounds = 2
[grid]
size = [
    {federation.num_clients = 10, radio.num_channels = 1},
    {federation.num_clients = 3000, radio.num_channels = 30},
    {federation.num_clients = 20, radio.num_channels = 1},
]
"""


@pytest.mark.slow
def test_time_and_memory_are_measured_per_run(tmp_path: Path, capsys) -> None:
    file = tmp_path / "growth.toml"
    file.write_text(MEASURE)
    assert main(["sweep", str(file), "--jobs", "2"]) == 2
    assert "one job at a time" in capsys.readouterr().err
    assert main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 0
    results = pd.read_parquet(tmp_path / "out" / "results.parquet").set_index("federation.num_clients")
    added = (results["peak_memory_bytes"] - results["start_memory_bytes"]) / 2**20
    assert added[3000] > 3000 * 30 * 8 * 2 / 2**20
    assert added[20] < added[10] + 5, "a large run does not change the memory of the next one"
    assert (results["start_memory_bytes"] > 10 * 2**20).all()
    assert results["start_memory_bytes"].max() < results["start_memory_bytes"].min() + 20 * 2**20
    assert (results["decision_s"] > 0).all()
    assert (results["decision_s"] <= results["decision_max_s"]).all()
    assert results["decision_s"][3000] > results["decision_s"][10]
    rounds = pd.read_parquet(tmp_path / "out" / "rounds.parquet")
    assert rounds.groupby("run")["decision_s"].max().max() == results["decision_max_s"].max()


@pytest.mark.slow
def test_ctrl_c_ends_the_worker_processes_too(file: Path) -> None:
    """The interrupt comes while a run is in progress: the policy leaves a file when it decides."""
    text = PLAN.replace('policy = ["qccf", "principle"]', 'policy = ["tests.helpers.slow_policy:Slow"]')
    file.write_text(text.replace("rounds = 2", f'rounds = 3000\npolicy.options.folder = "{file.parent}"'))
    out = file.parent / "out"
    command = [sys.executable, "-m", "qccf", "sweep", str(file), "--jobs", "2", "--out", str(out)]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True
    )
    assert any("4 runs in" in line for line in running.stdout), "it ended without a word"
    wait_for((file.parent / f"session-{running.pid}").exists)
    os.killpg(running.pid, signal.SIGINT)
    shown, _ = running.communicate(timeout=120)
    assert running.returncode == 130, shown
    assert "Traceback" not in shown
    assert "Stopped: 0 done, 0 running, 4 left" in shown
