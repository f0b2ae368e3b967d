"""A packed table gives back what was put in, to the bit, and takes memory only for rows that change."""

import tracemalloc

import numpy as np
import pytest

from qccf.rounds import packed_table
from qccf.rounds.packed_table import Columns, PackedTable

CLIENTS = 4000


def rounds_of(count: int, participants: int = 20, clients: int = CLIENTS) -> list[Columns]:
    """Rounds in which a few clients change their row."""
    rng = np.random.default_rng(1)
    errors, made = rng.random((clients, 32)), []
    for index in range(count):
        chosen = rng.choice(clients, participants, replace=False)
        errors = errors.copy()
        errors[chosen] = rng.random((participants, 32))
        loss = np.full(clients, np.nan)
        loss[chosen] = rng.random(participants)
        on = np.isin(np.arange(clients), chosen)
        names = np.array(["phone", "板"])[np.arange(clients) % 2]
        made.append({"round": np.full(clients, index), "loss": loss, "on": on, "device": names, "errors": errors})
    return made


def packed(rounds: list[Columns]) -> PackedTable:
    table = PackedTable()
    for columns in rounds:
        table.append(columns)
    return table


def assert_holds(table: PackedTable, rounds: list[Columns]) -> None:
    assert table.num_rounds == len(rounds)
    assert list(table) == list(rounds[0])
    for name, column in table.columns().items():
        whole = np.concatenate([one[name] for one in rounds])
        assert (column.dtype, column.shape) == (whole.dtype, whole.shape)
        assert column.tobytes() == whole.tobytes()
        assert table[name].tobytes() == whole.tobytes()
    for name, column in table.last.items():
        assert column.tobytes() == rounds[-1][name].tobytes()


def test_everything_comes_back_to_the_bit() -> None:
    rounds = rounds_of(5)
    rounds[2]["loss"][:2] = -0.0, np.frombuffer(np.uint64(0x7FF8DEADBEEF0001).tobytes())[0]  # a NaN of its own
    assert_holds(packed(rounds), rounds)


def test_memory_follows_the_rows_that_change() -> None:
    """20 rows of 33 doubles are news, half as much again is for their places; 1.2 MB of zeros take a 200th."""
    few, many = packed(rounds_of(11)), packed(rounds_of(11, participants=200))
    first = packed(rounds_of(1)).nbytes
    assert (few.nbytes - first) / 10 < 1.5 * 20 * 33 * 8 + sum(c.nbytes for c in rounds_of(1)[0].values()) / 200
    assert (many.nbytes - first) / 10 > 5 * (few.nbytes - first) / 10


def test_a_table_is_restored_and_grows_on() -> None:
    rounds = rounds_of(5)
    first = packed(rounds[:3])
    again = PackedTable.unpacked(*first.packed(), CLIENTS)
    assert_holds(again, rounds[:3])
    for columns in rounds[3:]:
        again.append(columns)
    assert_holds(again, rounds)
    assert again.packed()[1]["content"].tobytes() == packed(rounds).packed()[1]["content"].tobytes()


@pytest.mark.parametrize("kept", [0, 1, 3, 5, 9])
def test_a_truncated_table_is_that_of_the_first_rounds(kept: int) -> None:
    rounds = rounds_of(5)
    table = packed(rounds)
    table.truncate(kept)
    for columns in rounds[kept:]:
        table.append(columns)
    assert_holds(table, rounds)


def test_parts_are_the_whole_table_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_table, "PART_ROWS", 2 * CLIENTS + 1)
    rounds = rounds_of(5)
    parts = list(packed(rounds).parts())
    assert [len(part["round"]) // CLIENTS for part in parts] == [2, 2, 1]
    for name in rounds[0]:
        joined, whole = (np.concatenate([one[name] for one in some]) for some in (parts, rounds))
        assert joined.tobytes() == whole.tobytes()


def test_parts_have_at_least_one_round_and_at_most_the_stated_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, clients, expected in ((3, 1, [3, 2]), (3, 2, [1] * 5), (3, 4, [1] * 5), (8, 2, [4, 1])):
        monkeypatch.setattr(packed_table, "PART_ROWS", most)
        parts = packed(rounds_of(5, participants=1, clients=clients)).parts()
        assert [len(part["round"]) // clients for part in parts] == expected


def test_a_row_has_at_most_16_kb() -> None:
    wide = {"a": np.zeros((1, 2048))}
    assert PackedTable.unpacked(*packed([wide]).packed(), 1).num_rounds == 1
    with pytest.raises(ValueError, match="not those of 1 clients"):
        PackedTable.unpacked(*packed([wide | {"b": np.zeros(1, dtype=bool)}]).packed(), 1)


def test_a_table_of_one_column_has_parts() -> None:
    assert [part["a"].tolist() for part in packed([{"a": np.ones(2)}]).parts()] == [[1.0, 1.0]]


def test_a_table_without_rounds_has_no_columns() -> None:
    table = PackedTable()
    assert (len(table), table.columns(), list(table.parts())) == (0, {}, [{}])
    assert PackedTable.unpacked(*table.packed(), 3).columns() == {}
    with pytest.raises(KeyError):
        _ = table["round"]


def test_a_round_of_other_columns_is_refused() -> None:
    table = packed([{"a": np.zeros(3)}])
    for other in ({"b": np.zeros(3)}, {"a": np.zeros(4)}, {"a": np.zeros(3, dtype=np.int64)}):
        with pytest.raises(ValueError, match="column"):
            table.append(other)
    with pytest.raises(ValueError, match="column"):
        table.append({"b": np.zeros(3)}, before={"b": 0.0})  # one begins and one is gone
    assert table.columns()["a"].tolist() == [0.0, 0.0, 0.0]


def test_a_hostile_layout_gets_no_memory() -> None:
    """Zeros can be packed a thousandfold, so that a small file could ask for much."""
    layout, arrays = packed([{"a": np.zeros(1000)}]).packed()
    for claimed in ([("a", "<f8", (10**9,))], [("a", "<f8", (1000, 10**6))], [("a", "<U100000", (1000,))]):
        with pytest.raises(ValueError, match="not those of 1000 clients"):
            PackedTable.unpacked(claimed, arrays, 1000)
    with pytest.raises(ValueError, match="not those of 5 clients"):
        PackedTable.unpacked(layout, arrays, 5)
    for unlike in ([("a", "|O", (1000,))], [("a", "<M8[s]", (1000,))], [(3, "<f8", (1000,))]):
        with pytest.raises(ValueError, match="not those of 1000 clients"):
            PackedTable.unpacked(unlike, arrays, 1000)
    bomb = packed([{"a": np.zeros(10**6)}]).packed()[1]
    cancelled = [("a", "<f8", (1000, 10**6)), ("b", "<f8", (1000, -(10**6)))]
    odd = [("a", "<f8", (1000, 0.5)), ("b", "<f8", (1000, 0.5))]
    empty = [("a", "<f8", (1000, 0))]
    for claimed in (layout, [], cancelled, odd, empty, [("a", "<U0", (1000,))], [("a", "<f8", ())]):
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"not those of 1000 clients|a round of 8000 bytes"):
            PackedTable.unpacked(claimed, bomb, 1000)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 200_000, claimed


def test_each_round_unpacks_to_exactly_its_bytes() -> None:
    layout, arrays = packed([{"a": np.arange(1000.0)}, {"a": np.ones(1000)}]).packed()
    content, sizes = arrays["content"], arrays["sizes"]
    first = int(sizes[0])
    assert PackedTable.unpacked(layout, arrays, 1000).num_rounds == 2
    for wrong in (
        {"content": content[:-1], "sizes": sizes},  # cut short
        {"content": content[:-1], "sizes": sizes - [0, 1]},
        packed([{"a": np.arange(1000.0)[:500]}] * 2).packed()[1],
        {"content": np.append(content, content[:1]), "sizes": sizes},  # nobody's byte at the end
        {"content": content, "sizes": sizes[:1]},
        {"content": content, "sizes": np.array([first, -1])},
        {"content": content, "sizes": np.array([-sizes[1], len(content) + sizes[1]])},  # the same places, from the end
        {"content": content.astype(np.int64), "sizes": sizes},
        {"content": content[:, None], "sizes": sizes},
        {"content": content, "sizes": sizes.astype(float)},
        {"content": np.insert(content, first, 0), "sizes": sizes + np.array([1, 0])},  # a byte after the end of a round
    ):
        with pytest.raises(ValueError, match="packed"):
            PackedTable.unpacked(layout, wrong, 1000)


def test_a_column_may_begin_later_and_texts_may_grow() -> None:
    def a_round(index: int, **more: list[str] | list[float]) -> Columns:
        return {"round": np.full(2, index), **{name: np.array(values) for name, values in more.items()}}

    table = PackedTable()
    table.append(a_round(0))
    before = {"device": "paper", "battery_j": np.inf}
    table.append(a_round(1, device=["paper", "pi"], battery_j=[np.inf, 5.0]), before)
    table.append(a_round(2, device=["raspberry-pi-4", "pi"], battery_j=[4.0, 5.0]), before)
    table.append(a_round(3, device=["pi", "pi"], battery_j=[4.0, 5.0]), before)
    found = table.columns()
    assert found["device"].tolist() == ["paper", "paper", "paper", "pi", "raspberry-pi-4", "pi", "pi", "pi"]
    assert found["battery_j"].tolist() == [np.inf, np.inf, np.inf, 5.0, 4.0, 5.0, 4.0, 5.0]
    assert found["round"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table.last["device"].tolist() == ["pi", "pi"]
    for wrong in (a_round(4), a_round(4, device=[1.0, 2.0], battery_j=[1.0, 1.0]), a_round(4, device=["a"] * 3)):
        with pytest.raises(ValueError, match="column"):
            table.append(wrong, before)
    assert PackedTable.unpacked(*table.packed(), 2).columns()["device"].tolist() == found["device"].tolist()
