"""The ladder under device and radio models: what is planned, and how it is compared."""

import pytest

from benchmarks.ladder import FIRST, LAST, MOST_ROUNDS, record_key, rungs
from benchmarks.ladder_devices import CELLS, Planned, planned, results, share, table


def made_record(rounds: dict[tuple[str, int], int | None]) -> dict:
    found = {}
    for (rung, seed), count in rounds.items():
        reached = None if count is None else {"rounds": count, "seconds": 1.0, "energy_j": 1.0}
        found[record_key(rung, rungs()[rung], MOST_ROUNDS, seed)] = {"targets": {"0.75": reached}}
    return found


def test_rungs_are_planned_for_the_rounds_that_they_took() -> None:
    record = made_record({(FIRST, 0): 4, (LAST, 0): 2, (LAST, 1): None})
    for cell in ("the paper's model", "phones"):
        found = results(record, cell, 0.75, 2)
        assert set(found) == {FIRST, LAST}
        assert set(found[LAST]) == {0}, "a seed that did not reach the target is left out"
        twice = planned(cell, FIRST, 8, 0)
        assert twice is not None
        assert 1.5 < twice.energy_j / found[FIRST][0].energy_j < 2.5
        assert found[FIRST][0].participation == 1.0
        assert found[LAST][0].participation == 0.2
        coding = [found[rung][0].coding_share for rung in (FIRST, LAST)]
        if cell == "phones":
            assert 0.0 < coding[0] < coding[1] < 0.01
        else:
            assert coding == [0.0, 0.0], "no room in the deadline"
    assert 0.0 < found[FIRST][0].radio_share < 0.1, "real devices spend their energy on computing"


def test_each_rung_is_charged_for_its_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times the cycles at the same frequency are three times the joules."""
    free = {"model": 0.0, "update+entropy": 80.0}
    monkeypatch.setattr("benchmarks.ladder_devices.CODING_CYCLES", free)
    paper, lean = (planned("phones", rung, 2, 0) for rung in (FIRST, LAST))
    assert paper is not None
    assert lean is not None
    assert paper.coding_share == 0.0
    monkeypatch.setitem(free, "update+entropy", 240.0)
    thrice = planned("phones", LAST, 2, 0)
    assert thrice is not None
    coding_j = [one.coding_share * one.energy_j for one in (lean, thrice)]
    assert coding_j[1] == pytest.approx(3.0 * coding_j[0], rel=1e-6)


def test_shares_are_paired_by_seed() -> None:
    mine = {0: Planned(1.0, 0.1, 0.01, 1.0), 1: Planned(9.0, 0.1, 0.02, 1.0)}
    first = {0: Planned(4.0, 0.1, 0.01, 1.0)}
    assert share(mine, first).mean == 0.25
    assert share(mine, first).count == 1
    lines = table("here", {FIRST: first, LAST: mine}, 0.75)
    assert lines[-1].startswith(f"| {LAST} | 2 | 5")
    assert "| 25 % | 10.0% | 1.50% | 100% |" in lines[-1]


def test_a_rung_that_cannot_run_in_a_cell_is_named(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setitem(CELLS, "slow", ("femnist", {"radio.bandwidth_hz": 1e3}))  # type: ignore[index]
    assert planned("slow", FIRST, 1, 0) is None
    assert "slow, paper: " in capsys.readouterr().out
