"""Damage to the files of a run is seen when they are read, and repaired from the checkpoint when the run is resumed."""

import json
import shutil
from dataclasses import replace
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
    holds_results,
    is_finished,
    read_progress,
    read_run,
    write_run,
)
from qccf.runtimes.simulator import simulate
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
    assert is_finished(folder, ROUNDS)


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
    trained(folder, "execution.workers=1", "execution.checkpoint_every=2")
    assert read_run(folder).finished


def test_tables_have_page_checksums(folder: Path) -> None:
    """A reader of another program can check them, too."""
    whole = pd.read_parquet(folder / "rounds.parquet")
    table = pq.ParquetFile(folder / "rounds.parquet", page_checksum_verification=True).read()
    assert table.num_rows == len(whole) == ROUNDS
    column = pq.ParquetFile(folder / "rounds.parquet").metadata.row_group(0).column(0)
    last = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
    data = bytearray((folder / "rounds.parquet").read_bytes())
    data[last] ^= 1
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
