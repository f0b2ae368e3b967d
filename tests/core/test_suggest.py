"""What a mistyped name was probably meant to be."""

import pytest

from qccf.core.suggest import closest, hint

KNOWN = ["qccf", "same-size", "no-quantization"]


@pytest.mark.parametrize(
    ("name", "found"),
    [("qcff", "qccf"), ("same_size", "same-size"), ("SAME-SIZE", "same-size"), ("nothing-like-it", None), ("", None)],
)
def test_the_closest_name_is_found_if_there_is_one(name: str, found: str | None) -> None:
    assert closest(name, KNOWN) == found


def test_two_names_that_are_equally_close_are_no_suggestion() -> None:
    assert closest("fig6", ["fig2", "fig3"]) is None
    assert closest("fig6", ["fig2", "fig6b", "fig3"]) == "fig6b"


def test_a_hint_is_a_suggestion_or_the_list() -> None:
    assert hint("qcff", KNOWN) == "did you mean qccf?"
    assert hint("x", KNOWN) == "choose one of qccf, same-size, no-quantization."
    assert hint("gpu", ["cpu", "cuda"]) == "choose one of cpu, cuda.", "short words are alike by chance"
    assert hint("rnu", ["run", "plan"]) == "did you mean run?"
