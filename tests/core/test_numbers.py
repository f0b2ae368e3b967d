"""Numbers for people."""

import pytest

from qccf.core.numbers import Spread, clock, column, number, quantity, significant, with_spread


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (1e-6, 0.0, "1.00 µJ"),
        (0.0123, 0.0, "12.3 mJ"),
        (0.9996, 0.0, "1.00 J"),
        (1210.0, 370.0, "1.21±0.37 kJ"),
        (1210.0, 3.7, "1.2100±0.0037 kJ"),
        (1210.0, 1.0, "1.21 kJ"),  # less than a thousandth is rounding
        (1.0, 0.0996, "1.00±0.10 J"),
        (1.0, 370.0, "1±370 J"),
        (1e9, 0.0, "1.00 GJ"),
        (1e17, 0.0, "100,000 TJ"),
        (0.0, 0.0, "0 J"),
        (-0.5, 0.0, "-500 mJ"),
        (None, 0.0, "–"),
        (float("nan"), 0.0, "–"),
    ],
)
def test_a_value_and_its_spread_share_unit_and_decimals(value: float | None, spread: float, text: str) -> None:
    assert quantity(value, "J", spread) == text


def test_seconds_have_no_large_prefix() -> None:
    assert [quantity(value, "s") for value in (2e-5, 0.02, 3600.0)] == ["20.0 µs", "20.0 ms", "3,600 s"]


def test_a_column_shares_a_unit_unless_its_values_are_too_far_apart() -> None:
    assert column([Spread(0.5, 0.1), None, Spread(0.002)], "J") == ("mJ", ["500±100", "–", "2.00"])
    assert column([Spread(5.0), Spread(0.002)], "J") == ("", ["5.00 J", "2.00 mJ"])
    assert column([None, Spread(0.0)], "J") == ("J", ["–", "0"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Spread(12.345), "+12.3"),
        (Spread(12.345, 0.678), "+12.35±0.68"),
        (Spread(-12345.0, 5.0), "<-9,999"),
        (Spread(1e17), ">9,999"),
        (None, "–"),
    ],
)
def test_a_change_has_its_sign(value: Spread | None, text: str) -> None:
    assert with_spread(value, 1, "+") == text


def test_significant_digits_without_an_exponent() -> None:
    assert [significant(value) for value in (0.012345, 9.996, 12345.0)] == ["0.0123", "10.0", "12,345"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.9, "0:00"), (61.0, "1:01"), (3599.0, "59:59"), (3661.0, "1:01:01"), (90000.0, "25:00:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_number() -> None:
    assert [number(None), number(float("nan")), number(1234.5), number(0.123, ".1%")] == ["–", "–", "1.23e+03", "12.3%"]
