"""Mutation testing changes what a test can notice, one place at a time, and samples every part alike."""

import ast
from collections import Counter

from benchmarks.mutants import PARTS, all_mutants, part_of, sample, share_interval
from support.mutations import mutants

SOURCE = '''
"""A module."""
LIMIT: int = 3


class Box:
    def room(self, used: float, *, spare: bool = True) -> float:
        """Nothing here is changed: neither this text nor the 5 in it."""
        assert used >= 0.0, f"{used + 1}"
        if used > LIMIT and spare:
            raise ValueError(f"more than {LIMIT * 2}")
        log(3, "nobody sees this")
        self.note(used)
        return max(used,
                   -1.5)
'''


def test_every_change_is_one_that_a_test_can_notice() -> None:
    found = mutants("box.py", SOURCE)
    assert [(one.function, one.change) for one in found] == [
        ("", "3 -> 4"),
        ("Box.room", "True -> False"),
        ("Box.room", "used > LIMIT and spare -> (used > LIMIT or spare)"),
        ("Box.room", "used > LIMIT -> (used >= LIMIT)"),
        ("Box.room", "self.note(used) -> pass"),
        ("Box.room", "max(used, -1.5) -> min(used, -1.5)"),
        ("Box.room", "-1.5 -> (1.5)"),
        ("Box.room", "1.5 -> 3.0"),
    ]
    assert found[0].assigned == ("LIMIT",)
    assert [one.statement for one in found if one.function] == [(0, 0), (3, 3), (3, 3), (6, 6), *[(7, 8)] * 3]
    for one in found:
        assert ast.dump(ast.parse(one.source)) != ast.dump(ast.parse(SOURCE)), one.name


def test_a_sample_has_the_same_share_of_every_part() -> None:
    found = all_mutants()
    chosen = Counter(part_of(one) for one in sample(found, 400, seed=3))
    for part, count in Counter(part_of(one) for one in found).items():
        assert 0 <= chosen[part] - 400 * count / len(found) < 1, part
    assert set(chosen) == set(PARTS)
    assert sample(found, 400, seed=3) == sample(found, 400, seed=3) != sample(found, 400, seed=4)


def test_the_interval_of_a_share_by_hand() -> None:
    """Wilson's interval of 95 in 100, as in tables."""
    low, high = share_interval(95, 100)
    assert (round(low, 4), round(high, 4)) == (0.8882, 0.9785)
