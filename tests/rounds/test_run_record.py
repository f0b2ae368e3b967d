"""Records of runs: what is kept equals the run, and the file is small and written whole."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qccf.cli.main import main
from qccf.core.errors import RunFolderError
from qccf.paper.run_measures import bits_over_rounds, bits_over_sizes, rounds_to
from qccf.rounds.run import Run
from qccf.rounds.run_record import RunRecords, run_to_record
from qccf.runtimes.simulator import simulate
from tests.helpers.made_tables import CLIENTS, made_scenario, made_tables
from tests.helpers.tiny import tiny_dataset, tiny_scenario


def trained(policy: str, *more: str) -> Run:
    scenario = tiny_scenario(f"policy.name={policy}", "evaluation.every=2", *more)
    return simulate(scenario, dataset=tiny_dataset())


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    few = trained("qccf", "radio.num_channels=3", "federation.seed=1")
    late = trained("principle", "principle.initial_bits=9", "radio.bandwidth_hz=2e4")
    assert late.missed_share() > 0.0
    assert not few.client_columns["participated"].all()
    return {
        "few": few,
        "late": late,
        "raw": trained("no-quantization"),
        "a": trained("qccf"),
        "b": trained("same-size"),
    }


@pytest.fixture(scope="module")
def read(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    file = tmp_path_factory.mktemp("records") / "records.json"
    records = RunRecords()
    for name, run in runs.items():
        records.add(name, run)
    records.write(file)
    again = RunRecords(file)
    assert again.names() == sorted(runs)
    return {name: again.run(name) for name in again.names()}


@pytest.mark.parametrize("name", ["few", "late", "raw", "a", "b"])
def test_what_is_kept_equals_the_run(runs: dict[str, Run], read: dict[str, Run], name: str) -> None:
    ours, theirs = read[name], runs[name]
    assert ours.scenario == theirs.scenario
    assert ours.summary == json.loads(json.dumps(theirs.summary))
    for column, values in ours.client_columns.items():
        expected = theirs.client_columns[column]
        on = theirs.client_columns["participated"] if column == "num_bits" else np.full(len(expected), True)
        assert np.array_equal(values[on], expected[on]), column
    for column, values in ours.round_columns.items():
        assert np.allclose(values, theirs.round_columns[column], rtol=1e-4, equal_nan=True), column
    assert np.allclose(ours.energy_j, theirs.energy_j, rtol=1e-6)


@pytest.mark.parametrize("name", ["few", "late", "raw"])
def test_the_measures_of_the_claims_are_the_same(runs: dict[str, Run], read: dict[str, Run], name: str) -> None:
    ours, theirs = read[name], runs[name]
    target = 0.9 * theirs.final_accuracy()
    assert rounds_to(ours, target) == rounds_to(theirs, target)
    for measure in (
        Run.final_accuracy, Run.computing_share, Run.missed_share, Run.mean_upload_bits, Run.final_bits,
        bits_over_rounds, bits_over_sizes,
    ):  # fmt: skip
        assert measure(ours) == pytest.approx(measure(theirs), rel=1e-5, nan_ok=True), measure


def test_numbers_are_kept_with_few_digits(runs: dict[str, Run]) -> None:
    """A third, to as many digits as figures and claims need."""
    digits = {"energy_j": 7, "compute_energy_j": 7, "latency_s": 7, "train_loss": 5, "test_accuracy": 6, "test_loss": 5}
    thirds = dict.fromkeys(digits, np.array([1.0 / 3.0, np.nan] * 4))
    kept = run_to_record(replace(runs["a"], round_columns=runs["a"].round_columns | thirds))
    for name, count in digits.items():
        assert kept[name] == [float("0." + "3" * count), None] * 4


def test_runs_that_differ_in_policy_and_seed_share_their_scenario(runs: dict[str, Run], tmp_path: Path) -> None:
    records = RunRecords()
    for name in ("a", "b", "raw"):
        records.add(name, runs[name])
    records.write(tmp_path / "records.json")
    text = (tmp_path / "records.json").read_text()
    assert len(json.loads(text)["scenarios"]) == 1
    assert len(text.splitlines()) == 3 + 3 + 1, "one line per run"


def test_a_report_is_made_from_a_record(runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    records = RunRecords()
    for name in ("a", "b"):
        records.add(name, runs[name])
    records.write(tmp_path / "records.json")
    assert main(["report", str(tmp_path / "records.json")]) == 0
    said = capsys.readouterr().out
    assert "\n2 training runs on " in said
    assert "policies qccf and same-size" in said
    assert (tmp_path / "report.html").exists()
    RunRecords().write(tmp_path / "empty.json")
    assert main(["report", str(tmp_path / "empty.json")]) == 2
    assert "no run is recorded here yet" in capsys.readouterr().err


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    for text in (
        "no json", "[]", '{"format": 99, "scenarios": {}, "runs": {}}', '{"format": 1, "scenarios": {}, "runs": [1]}',
        '{"format": 1, "scenarios": {}, "runs": {"a": {}, "b": 3}}', '{"format": 1, "scenarios": {"x": 3}, "runs": {}}',
        "[" * 100_000,
    ):  # fmt: skip
        (tmp_path / "records.json").write_text(text)
        with pytest.raises(RunFolderError, match=r"records\.json holds no records"):
            RunRecords(tmp_path / "records.json")
    assert len(RunRecords(tmp_path / "missing.json")) == 0
    (tmp_path / "records.json").write_text('{"format": 1, "scenarios": {}, "runs": {}}')
    assert len(RunRecords(tmp_path / "records.json")) == 0


def test_a_record_by_hand(tmp_path: Path) -> None:
    """In three rounds one client sends 5 bits and is late, then two send 2 and 4 bits of which one is lost, then none.

    The settings name a file, which is not opened when the record is read.
    """
    bits = np.zeros((3, CLIENTS), dtype=np.int64)
    bits[0, 0], bits[1, :2] = 5, (2, 4)
    came = np.zeros((3, CLIENTS), dtype=bool)
    came[1, 0] = True
    late = np.zeros((3, CLIENTS), dtype=bool)
    late[0, 0] = True
    clients = {"participated": bits > 0, "num_bits": bits, "arrived": came, "missed": late}
    energy = {"energy_j": [3.0, 2.0, 0.5], "compute_energy_j": [1.0, 0.5, 0.5], "latency_s": 0.02}
    learned = {"train_loss": 1.0, "test_accuracy": [0.1, np.nan, 0.3], "test_loss": 2.0}
    tables = made_tables(energy | learned, clients, num_rounds=3)
    (tmp_path / "any.csv").write_text("secret")
    scenario = made_scenario()
    named = scenario.radio.model_copy(update={"trace": str(tmp_path / "any.csv")})
    scenario = scenario.model_copy(update={"radio": named})
    records = RunRecords()
    records.add("mine", Run(scenario, {"data": "Übung"}, *tables))
    records.write(tmp_path / "records.json")
    text = (tmp_path / "records.json").read_text(encoding="utf-8")
    assert '"bits":["52.",".4.","...","...","...","..."]' in text
    assert '"missed":["100","000","000","000","000","000"]' in text
    assert '"lost":["100","010","000","000","000","000"]' in text
    assert "Übung" in text, "as it is, for those who read the file"
    read = RunRecords(tmp_path / "records.json")
    assert "mine" in read
    assert "yours" not in read
    run = read.run("mine")
    assert run.scenario.radio.trace_digest == ""
    for column, values in (
        ("participants", [1, 2, 0]), ("arrived", [0, 1, 0]), ("missed", [1, 0, 0]), ("mean_bits", [5.0, 3.0, np.nan]),
        ("cumulative_energy_j", [3.0, 5.0, 5.5]), ("upload_energy_j", [2.0, 1.5, 0.0]),
    ):  # fmt: skip
        np.testing.assert_array_equal(run.round_columns[column], values, err_msg=column)
    for column, table in clients.items():
        np.testing.assert_array_equal(run.by_round(column), table, err_msg=column)


def test_a_record_that_cannot_be_read_says_why(runs: dict[str, Run]) -> None:
    records = RunRecords()
    records.add("a", runs["a"])
    records._runs["a"]["energy_j"] = [0.1]
    with pytest.raises(RunFolderError, match="can read: its tables are not those of 8 rounds of 5 clients; record"):
        records.run("a")
    records._runs["a"] = records._runs["a"] | {"summary": {"energy_j": "much"}, "energy_j": [0.1] * 8}
    with pytest.raises(RunFolderError, match=r"energy_j = 'much' in .* is not of type Real; record"):
        records.run("a")


@pytest.mark.parametrize(
    "change",
    [
        {"scenario": "another"},
        {"scenario": ["a"]},
        {"policy": 3},
        {"seed": "x"},
        {"bits": ["?"]},
        {"bits": []},
        {"bits": [""]},
        {"bits": 3},
        {"bits": ["1"]},
        {"missed": ["0"]},
        {"lost": [3]},
        {"sizes": ["x"] * 5},
        {"sizes": [1]},
        {"sizes": [10**30] * 5},
        {"energy_j": None},
        {"energy_j": [0.1]},
        {"test_accuracy": ["x"] * 8},
        {"summary": None},
        {"summary": {"health": [{"kind": "x", "message": 3}]}},
        {"summary": {"privacy": {"delta": "x"}}},
        {"summary": {"energy_j": "much"}},
    ],
    ids=repr,
)
def test_a_record_of_any_content_ends_in_one_sentence(
    runs: dict[str, Run], tmp_path: Path, change: dict, capsys: pytest.CaptureFixture
) -> None:
    file = tmp_path / "records.json"
    records = RunRecords()
    records.add("a", runs["a"])
    records.write(file)
    tree = json.loads(file.read_text())
    tree["runs"]["a"] |= change
    file.write_text(json.dumps(tree))
    assert main(["report", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert f"{file} holds no record of 'a' that this version can read: " in error


@pytest.mark.parametrize("settings", [{}, {"policy": {}, "federation": {"num_clients": "x"}}, {"policy": 3}])
def test_a_record_with_settings_of_any_content(runs: dict[str, Run], tmp_path: Path, settings: dict) -> None:
    file = tmp_path / "records.json"
    records = RunRecords()
    records.add("a", runs["a"])
    records.write(file)
    tree = json.loads(file.read_text())
    tree["scenarios"] = dict.fromkeys(tree["scenarios"], settings)
    file.write_text(json.dumps(tree))
    with pytest.raises(RunFolderError, match=r"records\.json holds no record of 'a' that this version can read"):
        RunRecords(file).runs()
