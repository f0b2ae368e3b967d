"""Numbers and nouns in sentences."""

import pytest

from qccf.core.words import article, counted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 rounds"), (1, "1 round"), (2, "2 rounds"), (10_000, "10,000 rounds")]
)
def test_a_noun_agrees_with_its_number(count: int, text: str) -> None:
    assert counted(count, "round") == text


def test_a_noun_on_y() -> None:
    assert [counted(1, "study"), counted(2, "study")] == ["1 study", "2 studies"]


def test_the_article_of_a_noun() -> None:
    assert [article(noun) for noun in ("model", "optimizer")] == ["a", "an"]
