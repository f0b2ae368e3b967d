"""Numbers in the units of a reader."""

import math

import pytest

from qccf.core.intervals import Estimate
from qccf.reports.page.numbers import NO_BREAK, counted, energies_shown, listed, percent_shown


def known(mean: float, half: float) -> Estimate:
    return Estimate(mean, half, 3)


@pytest.mark.parametrize(
    ("energies", "shown"),
    [
        ([known(1.2e3, 370.0), known(9.9e3, 10.0)], ["1.20 ± 0.37 kJ", "9.90 ± 0.01 kJ"]),
        ([known(5.613, 0.12), known(1200.0, 1.0)], ["5.61 ± 0.12 J", "1,200.00 ± 1.00 J"]),
        ([known(0.0561, 0.0439)], ["56.1 ± 43.9 mJ"]),
        ([known(4e-5, math.nan)], ["40.0 µJ"]),
        ([known(0.0, 0.0), known(140.0, 0.0)], ["0 J", "140 J"]),
        ([Estimate(math.nan, math.nan, 0)], ["–"]),
    ],
)
def test_energies_share_a_unit_and_have_no_exponent(energies: list[Estimate], shown: list[str]) -> None:
    assert [text.replace(NO_BREAK, " ") for text in energies_shown(energies)] == shown


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    assert " " not in percent_shown(known(0.812, 0.004))
    assert percent_shown(known(0.812, 0.004)).replace(NO_BREAK, " ") == "81.2 ± 0.4 %"


def test_words() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert counted([1, 1], "round") == "1 round"
    assert counted([30, 10], "client") == "10 to 30 clients"
