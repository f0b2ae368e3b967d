"""The record of the search for `lean`: what is run again, what is kept, and what the table says."""

import json
from pathlib import Path

import pytest

from benchmarks.lean_search import candidate_job, collect, is_known, line


def figures(until: float, energy_j: float | None, rounds: int = 60) -> dict:
    cost = None if energy_j is None else {"rounds": rounds, "seconds": 1.0, "energy_j": energy_j}
    return {"until": until, "rounds": rounds, "targets": {"0.75": {"energy_j": 0.01}, f"{until:g}": cost}}


def test_a_run_that_ended_before_the_accuracy_is_known_until_more_rounds_are_allowed() -> None:
    assert not is_known(None, 0.75, 60)
    assert is_known(figures(0.82, None), 0.82, 60)
    assert not is_known(figures(0.82, None), 0.82, 61)
    assert is_known(figures(0.82, 0.3), 0.82, 300)
    assert is_known(figures(0.82, 0.3), 0.75, 300)
    assert not is_known(figures(0.75, 0.1), 0.82, 60)


def test_the_table_says_how_many_seeds_a_mean_has() -> None:
    mine = [figures(0.82, 0.3), figures(0.75, 0.01), figures(0.75, 0.01)]
    assert line("x", mine) == "| `x` | 3 | – | – | 10.0 | – | 300.0 (1 of 3 run) |"
    assert line("x", [figures(0.82, 0.3), figures(0.82, None)]).endswith("| – | not reached |")


def test_what_all_candidates_share_cannot_be_a_candidates_own(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"federation\.rounds is the same for all candidates: leave it out"):
        candidate_job("control.share=0.2 federation.rounds=9", 10, 0.75, 60, tmp_path, tmp_path)
    first, second = (candidate_job(text, 10, 0.75, 60, tmp_path, tmp_path) for text in ("control.share=0.50", ""))
    assert first.folder == second.folder, "two spellings of one candidate"


class Finished:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def is_finished(self) -> bool:
        return True


def test_no_process_loses_what_another_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text("{}")

    def measured(_: object, __: float) -> dict:
        file.write_text(json.dumps({"other": {"10": figures(0.75, 0.1)}, "longer": {"10": figures(0.82, 0.2)}}))
        return figures(0.75, 0.3)

    monkeypatch.setattr("benchmarks.lean_search.measures", measured)
    monkeypatch.setattr("benchmarks.lean_search.read_run", lambda folder: folder)
    jobs = {("mine", 10): Finished(tmp_path), ("longer", 10): Finished(tmp_path)}
    collect(jobs, 0.75, file)  # type: ignore[arg-type]
    record = json.loads(file.read_text())
    assert set(record) == {"other", "longer", "mine"}
    assert record["longer"]["10"]["until"] == 0.82
