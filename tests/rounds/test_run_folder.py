"""Damage to the files of a run is seen when they are read, and repaired from the checkpoint when the run is resumed."""

import json
import shutil
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from qccf.core.errors import QccfError, RunFolderError
from qccf.rounds import packed_table
from qccf.rounds.run import Run
from qccf.rounds.run_folder import (
    _has_completed,
    begin_run,
    find_begun,
    find_runs,
    holds_results,
    is_finished,
    read_progress,
    read_run,
    read_scenario,
    read_summary,
    require_only_data,
    require_same_run,
    settings_difference,
    table_bytes,
    write_run,
)
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import Scenario, load_scenario
from tests.helpers.tiny import tiny_dataset, tiny_scenario

ROUNDS = 3
TABLES = ("rounds.parquet", "clients.parquet", "statistics.parquet")


def trained(out: Path, *settings: str) -> Run:
    return simulate(tiny_scenario(f"federation.rounds={ROUNDS}", *settings), out=out, dataset=tiny_dataset())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    trained(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def test_every_flipped_bit_of_a_table_is_seen(folder: Path) -> None:
    for name in TABLES:
        data = (folder / name).read_bytes()
        for place in range(0, len(data), 997):
            changed = bytearray(data)
            changed[place] ^= 1 << (place % 8)
            (folder / name).write_bytes(changed)
            with pytest.raises(RunFolderError, match=f"{name} is damaged"):
                read_run(folder)
        (folder / name).write_bytes(data)
    assert read_run(folder).num_rounds == ROUNDS


def test_statistics_are_written_some_rounds_at_a_time_and_read_as_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_table, "PART_ROWS", 10)
    run = trained(tmp_path, "codec.name=update+entropy")
    file = pq.ParquetFile(tmp_path / "statistics.parquet")
    assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [10, 5]
    read = read_run(tmp_path).statistics_columns
    assert list(read) == list(run.statistics_columns)
    for name, column in run.statistics_columns.items():
        assert (read[name].dtype, read[name].shape) == (column.dtype, column.shape), name
        assert read[name].tobytes() == column.tobytes(), name
    frame = pd.read_parquet(tmp_path / "statistics.parquet")
    assert frame["upload_errors"][7].tolist() == run.statistics_columns["upload_errors"][7].tolist()


def test_an_unknown_number_is_null_for_other_programs(folder: Path) -> None:
    measured = pq.read_table(folder / "clients.parquet")["measured_s"]
    assert measured.null_count == len(measured)
    assert np.isnan(read_run(folder).client_columns["measured_s"]).all()


def test_a_changed_number_in_the_summary_or_the_settings_is_seen(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"energy_j": summary["energy_j"] * 2}))
    with pytest.raises(RunFolderError, match=r"summary\.json is damaged"):
        read_run(folder)
    (folder / "summary.json").write_text(json.dumps(summary))
    assert read_run(folder).finished
    settings = (folder / "scenario.toml").read_text()
    (folder / "scenario.toml").write_text(settings.replace("learning_rate = 0.1", "learning_rate = 0.2"))
    with pytest.raises(RunFolderError, match=r"scenario\.toml is damaged or of another run"):
        read_run(folder)


def test_an_empty_summary_is_no_old_one(folder: Path) -> None:
    (folder / "summary.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"summary\.json is not the summary of a run"):
        read_run(folder)


def test_a_summary_whose_digests_are_not_found_is_damaged(folder: Path) -> None:
    """One flipped bit in the key made it look like the summary of an old version, whose numbers are not checked."""
    text = (folder / "summary.json").read_text()
    for key, flipped in (("digests", "dhgests"), ("clients.parquet", "cliants.parquet")):
        (folder / "summary.json").write_text(text.replace(f'"{key}"', f'"{flipped}"'))
        with pytest.raises(RunFolderError, match=r"summary\.json is damaged, because it has not all checksums"):
            read_run(folder)
        assert not is_finished(folder, ROUNDS)


def test_a_folder_of_version_0_1_without_digests_is_read_as_before(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text()) | {"version": "0.1.0"}
    del summary["digests"]
    (folder / "summary.json").write_text(json.dumps(summary))
    run = read_run(folder)
    assert run.summary == summary
    assert run.statistics_columns
    assert is_finished(folder, ROUNDS)
    begin_run(folder, run.scenario)
    assert read_run(folder).summary == summary, "it gets no digests of a part of its files"
    (folder / "statistics.parquet").unlink()
    assert read_run(folder).statistics_columns == {}, "early ones have no statistics"


def test_settings_and_tables_of_version_0_1_are_checked_as_far_as_possible(folder: Path) -> None:
    """Its settings had other names, and its tables have checksums of their own."""
    without_digests(folder)
    settings = (folder / "scenario.toml").read_text()
    (folder / "scenario.toml").write_text(settings.replace('path_loss = "umi"', 'scenario = "uma"'))
    assert read_run(folder).scenario.cell.path_loss == "uma"
    data = bytearray((folder / "rounds.parquet").read_bytes())
    data[last_byte(pq.ParquetFile(folder / "rounds.parquet"))] ^= 1
    (folder / "rounds.parquet").write_bytes(data)
    with pytest.raises(RunFolderError, match=r"rounds\.parquet is damaged"):
        read_run(folder)


def without_digests(folder: Path, *missing: str) -> None:
    """Pretend that version 0.1 wrote the summary."""
    summary = json.loads((folder / "summary.json").read_text()) | {"version": "0.1.0"}
    for key in ("digests", *missing):
        del summary[key]
    (folder / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize("name", ["summary.json", "scenario.toml"])
def test_a_folder_without_summary_or_settings_holds_no_run(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(RunFolderError, match=r"holds no complete run, because it has no summary\.json or"):
        read_run(folder)


def test_a_table_that_the_summary_names_must_be_there(folder: Path) -> None:
    (folder / "statistics.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"holds no complete run: .*statistics\.parquet"):
        read_run(folder)
    assert not is_finished(folder, ROUNDS)


def test_a_run_can_be_written_to_a_new_folder(folder: Path, tmp_path: Path) -> None:
    run = read_run(folder)
    write_run(tmp_path / "new", run)
    assert read_run(tmp_path / "new").summary == run.summary


def one_short(columns: dict) -> dict:
    return {name: column[:-1] for name, column in columns.items()}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda run: {"client_columns": one_short(run.client_columns)}, "its tables are not those of 3 rounds of 5 cl"),
        (lambda run: {"round_columns": one_short(run.round_columns)}, "its tables are not those of 2 rounds of 5 clie"),
        (
            lambda run: {"round_columns": run.round_columns | {"mean_bits": np.array(["x"] * 3)}},
            "the column mean_bits holds no numbers",
        ),
        (
            lambda run: {"client_columns": run.client_columns | {"num_bits": np.array(["x"] * 15)}},
            "the column num_bits holds no numbers",
        ),
        (lambda run: {"summary": run.summary | {"seed": "x"}}, "seed = 'x' in summary.json is not of type int"),
        (
            lambda run: {"summary": run.summary | {"health": [{"kind": 1, "message": "x"}]}},
            "a finding in summary.json is not of texts",
        ),
        (
            lambda run: {"summary": run.summary | {"health": [{"kind": "x", "message": 1}]}},
            "a finding in summary.json is not of texts",
        ),
        (
            lambda run: {"summary": run.summary | {"privacy": {"delta": "x"}}},
            "privacy.delta = 'x' in summary.json is not of its type",
        ),
    ],
)
def test_tables_and_summary_must_be_of_one_run_and_of_their_types(folder: Path, change, reason: str) -> None:
    """Whoever writes them can compute the digests, too."""
    run = read_run(folder)
    write_run(folder, replace(run, **change(run)))
    with pytest.raises(RunFolderError, match=f"holds no complete run: {reason}"):
        read_run(folder)


@pytest.mark.parametrize("name", [*TABLES, "summary.json"])
def test_a_damaged_result_is_repaired_from_the_checkpoint(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-9])
    assert not is_finished(folder, ROUNDS)
    assert trained(folder).finished
    assert (folder / name).read_bytes() == whole


def test_results_without_a_checkpoint_are_not_replaced(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints")
    (folder / "rounds.parquet").write_bytes(b"")
    before = (folder / "clients.parquet").read_bytes()
    with pytest.raises(RunFolderError, match="holds no checkpoint from which its run can be resumed: restore one"):
        trained(folder)
    assert (folder / "clients.parquet").read_bytes() == before


def test_damaged_checkpoints_are_no_reason_to_start_again(folder: Path) -> None:
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(
        RunFolderError, match=r"can be resumed \(round-000003.npz is cut short or damaged. round-000002"
    ):
        trained(folder)


def test_every_byte_at_the_ends_of_a_checkpoint(folder: Path) -> None:
    """The zip directory is at the end and the first header at the beginning; a changed bit is no traceback."""
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    data = newest.read_bytes()
    from qccf.rounds import checkpoint
    from qccf.runtimes.simulator import run_fingerprint

    fingerprint = run_fingerprint(tiny_scenario(f"federation.rounds={ROUNDS}"), tiny_dataset())
    places = [*range(0, 128), *range(len(data) - 1500, len(data), 7)]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        newest.write_bytes(changed)
        try:
            state, _ = checkpoint.load(newest, fingerprint)
        except QccfError:
            continue
        assert state.round_index == ROUNDS  # a byte that nothing depends on, such as a date


def test_other_workers_do_not_make_the_settings_look_damaged(folder: Path) -> None:
    settings = (folder / "scenario.toml").read_text()
    assert "workers = 0" in settings
    (folder / "scenario.toml").write_text(settings.replace("workers = 0", "workers = 2"))
    assert read_run(folder).scenario.execution.workers == 2
    trained(folder, "execution.workers=1", "execution.checkpoint_every=2")
    assert read_run(folder).finished


def last_byte(file: pq.ParquetFile) -> int:
    """The place of the last byte of the first column."""
    column = file.metadata.row_group(0).column(0)
    return (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1


def test_tables_have_page_checksums(folder: Path) -> None:
    """A reader of another program can check them, too."""
    whole = pd.read_parquet(folder / "rounds.parquet")
    table = pq.ParquetFile(folder / "rounds.parquet", page_checksum_verification=True).read()
    assert table.num_rows == len(whole) == ROUNDS
    data = bytearray((folder / "rounds.parquet").read_bytes())
    data[last_byte(pq.ParquetFile(folder / "rounds.parquet"))] ^= 1
    (folder / "rounds.parquet").write_bytes(data)
    with pytest.raises(OSError, match=r"(?i)crc|checksum|deserialize"):
        pq.ParquetFile(folder / "rounds.parquet", page_checksum_verification=True).read()


def test_a_run_has_completed_its_rounds_or_stopped_at_its_accuracy() -> None:
    whole = {"finished": True, "rounds": 8, "stopped_at_accuracy": None}
    stopped = {"finished": True, "rounds": 5, "stopped_at_accuracy": 0.4}
    assert _has_completed(whole, 8, 0.0)
    assert _has_completed(whole, 8, 0.4), "it never reached the accuracy"
    assert not _has_completed(whole, 9, 0.0)
    assert not _has_completed(whole, 9, 0.4)
    assert _has_completed(stopped, 8, 0.4)
    assert not _has_completed(stopped, 8, 0.0)
    assert not _has_completed(stopped, 8, 0.5)
    assert not _has_completed(stopped | {"finished": False}, 8, 0.4)
    assert not _has_completed({}, 8, 0.0)
    assert not _has_completed(stopped | {"stopped_at_accuracy": 0.0}, 8, 0.0), "0 is no accuracy to stop at"


def test_a_run_stopped_at_an_accuracy_is_finished_only_where_that_accuracy_is_asked_for(folder: Path) -> None:
    run = read_run(folder)
    write_run(folder, replace(run, summary=run.summary | {"stopped_at_accuracy": 1.0}))
    assert is_finished(folder, 8, 1.0)
    assert not is_finished(folder, 8)


def test_one_file_of_results_is_enough_to_hold_results(tmp_path: Path) -> None:
    assert not holds_results(tmp_path)
    (tmp_path / "scenario.toml").touch()
    assert not holds_results(tmp_path), "settings are no result"
    for name in ("summary.json", "rounds.parquet", "clients.parquet"):
        (tmp_path / name).touch()
        assert holds_results(tmp_path)
        (tmp_path / name).unlink()


def test_the_progress_of_an_extended_run_without_a_newer_checkpoint_is_its_tables(folder: Path) -> None:
    begin_run(folder, tiny_scenario(f"federation.rounds={ROUNDS + 1}"))
    shutil.rmtree(folder / "checkpoints")
    run = read_progress(folder)
    assert (run.num_rounds, run.finished) == (ROUNDS, False)
    (folder / "summary.json").unlink()
    with pytest.raises(RunFolderError, match="has not completed a round yet: wait for its first checkpoint"):
        read_progress(folder)


def test_a_summary_that_cannot_be_read_is_refused_with_the_reason(folder: Path) -> None:
    (folder / "summary.json").rename(folder.parent / "summary.json")
    (folder / "summary.json").symlink_to(folder.parent / "summary.json")
    with pytest.raises(RunFolderError, match=r"holds no complete run: .*summary\.json leads out of "):
        read_run(folder)


def test_statistics_that_are_not_known_come_back(folder: Path) -> None:
    """An unknown number in a column with several values per row is null as well."""
    run = read_run(folder)
    rows = ROUNDS * run.scenario.federation.num_clients
    errors = np.arange(2.0 * rows).reshape(rows, 2)
    errors[3, 1] = np.nan
    write_run(folder, replace(run, statistics_columns={"upload_errors": errors}))
    np.testing.assert_array_equal(read_run(folder).statistics_columns["upload_errors"], errors)
    write_run(folder, replace(run, statistics_columns={"upload_errors": errors[:, 1:]}))
    np.testing.assert_array_equal(read_run(folder).statistics_columns["upload_errors"], errors[:, 1:])


def test_a_table_as_bytes_is_a_file_that_other_programs_read() -> None:
    columns = {"a": np.array([1.0, np.nan]), "b": np.array([[1, 2], [3, 4]])}
    data = bytearray(table_bytes(columns))
    table = pq.read_table(BytesIO(data), page_checksum_verification=True)
    assert table["a"].null_count == 1
    assert table["b"].to_pylist() == [[1, 2], [3, 4]]
    data[last_byte(pq.ParquetFile(BytesIO(data)))] ^= 1
    with pytest.raises(OSError, match=r"(?i)crc|checksum|deserialize"):
        pq.read_table(BytesIO(data), page_checksum_verification=True)


def test_the_progress_of_a_run_is_its_newest_checkpoint(folder: Path) -> None:
    run = read_run(folder)
    write_run(folder, replace(run, summary=run.summary | {"kind": "own", "finished": False}))
    for name in TABLES:
        (folder / name).unlink()
    progress = read_progress(folder)
    assert (progress.num_rounds, progress.finished, progress.summary["kind"]) == (ROUNDS, False, "own")
    assert len(set(run.accuracy)) == ROUNDS
    assert progress.summary["test_accuracy"] == run.accuracy[-1], "that of the last round"
    (folder / "summary.json").unlink()
    assert read_progress(folder).summary["kind"] == "train"


def test_one_round_is_progress(tmp_path: Path) -> None:
    trained(tmp_path, "federation.rounds=1")
    (tmp_path / "summary.json").unlink()
    assert read_progress(tmp_path).num_rounds == 1


def test_progress_is_never_less_than_what_the_summary_tells(folder: Path) -> None:
    (folder / "checkpoints" / "round-000003.npz").unlink()
    begin_run(folder, tiny_scenario(f"federation.rounds={ROUNDS + 1}"))
    assert read_progress(folder).num_rounds == ROUNDS


def test_a_summary_that_does_not_say_so_is_that_of_a_finished_run(folder: Path) -> None:
    without_digests(folder, "finished")
    assert read_progress(folder).finished


def test_a_finished_run_stays_finished_if_it_begins_again_with_as_many_rounds(folder: Path) -> None:
    before = (folder / "summary.json").read_bytes()
    begin_run(folder, tiny_scenario(f"federation.rounds={ROUNDS}"))
    assert (folder / "summary.json").read_bytes() == before
    assert is_finished(folder, ROUNDS)


def test_an_unfinished_run_that_gets_more_rounds_can_still_be_read(folder: Path) -> None:
    run = read_run(folder)
    write_run(folder, replace(run, summary=run.summary | {"finished": False}))
    begin_run(folder, tiny_scenario(f"federation.rounds={ROUNDS + 1}"))
    assert read_run(folder).scenario.federation.rounds == ROUNDS + 1
    assert not read_run(folder).finished


def test_a_run_has_begun_with_its_first_checkpoint_or_summary(tmp_path: Path) -> None:
    for name in ("settings", "checkpoints", "summary"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scenario.toml").touch()
    (tmp_path / "checkpoints" / "checkpoints").mkdir()
    (tmp_path / "summary" / "summary.json").touch()
    assert find_begun(tmp_path) == [tmp_path / "checkpoints", tmp_path / "summary"]


def test_runs_are_found_below_a_folder_and_not_through_links(folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "all"
    shutil.copytree(folder, there / "deep" / "run")
    shutil.copytree(folder, there / "unfinished")
    (there / "unfinished" / "summary.json").unlink()
    (there / "link").symlink_to(folder)
    assert find_runs([there, there / "deep"]) == [there / "deep" / "run"]
    with pytest.raises(RunFolderError, match="missing is not a folder: name one that "):
        find_runs([tmp_path / "missing"])


def test_settings_behind_a_link_are_not_read(folder: Path) -> None:
    (folder / "scenario.toml").rename(folder.parent / "scenario.toml")
    (folder / "scenario.toml").symlink_to(folder.parent / "scenario.toml")
    with pytest.raises(QccfError, match="leads out of "):
        read_scenario(folder)
    (folder / "scenario.toml").unlink()
    with pytest.raises(RunFolderError, match="holds no run, because it has no scenario"):
        read_scenario(folder)


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"digests": []}', "no json", "[" * 100_000])
def test_a_summary_of_another_form_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    assert read_summary(tmp_path) is None
    assert not is_finished(tmp_path, ROUNDS)


def test_a_folder_with_settings_and_no_round_can_be_used_for_another_run(tmp_path: Path) -> None:
    begin_run(tmp_path, tiny_scenario())
    require_same_run(tmp_path, tiny_scenario("federation.seed=1"))
    (tmp_path / "checkpoints").mkdir()
    require_same_run(tmp_path, tiny_scenario("federation.seed=1"))
    (tmp_path / "checkpoints" / "round-000001.npz").touch()
    with pytest.raises(RunFolderError, match="holds another run"):
        require_same_run(tmp_path, tiny_scenario("federation.seed=1"))


def test_a_run_of_another_version_of_the_own_code_is_refused(folder: Path) -> None:
    run = read_run(folder)
    require_same_run(folder, run.scenario)
    write_run(folder, replace(run, summary=run.summary | {"own_code": "another"}))
    with pytest.raises(RunFolderError, match="holds a run of another version of your own code"):
        require_same_run(folder, run.scenario)


def test_the_difference_of_two_runs_is_not_how_they_are_executed() -> None:
    plain, other = tiny_scenario(), tiny_scenario("execution.workers=2", "execution.checkpoint_every=4")
    assert settings_difference(plain, other) == "of other settings"
    assert settings_difference(plain, other.replaced(server={"optimizer": "fedadam"})) == (
        "server.optimizer = average there, fedadam here"
    )


@pytest.mark.parametrize(
    ("section", "key", "value", "known"),
    [
        ("radio", "trace", "mine.csv", "trace_digest"),
        ("devices", "table", "mine.csv", "digest"),
        ("devices", "profile", "mine.toml", "digest"),
    ],
)
def test_a_run_that_names_a_file_is_resumed_only_with_its_checksum(
    tmp_path: Path, section: str, key: str, value: str, known: str
) -> None:
    def named(**values: str) -> Scenario:
        plain = load_scenario("femnist")
        changed = getattr(plain, section).model_copy(update=values)
        return plain.model_copy(update={section: changed})

    require_only_data(tmp_path, load_scenario("femnist"))
    with pytest.raises(RunFolderError, match=rf"names a file \({section}.{key} = '{value}'\) without its checksum"):
        require_only_data(tmp_path, named(**{key: value}))
    require_only_data(tmp_path, named(**{key: value, known: "0" * 64}))


@pytest.mark.parametrize("name", ["checkpoints", "figures", "tensorboard", "scenario.toml", "summary.json"])
def test_a_run_from_whose_folder_a_link_leads_out_is_not_resumed(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(QccfError, match=f"{name} leads out of "):
        require_only_data(tmp_path / "run", load_scenario("femnist"))
