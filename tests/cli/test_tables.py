"""The tables of the terminal: means, spreads, differences, and a width of 80 columns."""

from io import StringIO

import pytest
from rich.console import Console

from qccf.cli.tables import clock, number, plan_table, print_health, results_table, service_table


def shown(table) -> list[str]:
    console = Console(file=StringIO(), width=80)
    console.print(table)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def summary(seed: int, accuracy: float | None, energy_j: float, bits: float | None = 3.0):
    return {"seed": seed, "test_accuracy": accuracy, "energy_j": energy_j, "mean_bits": bits}


def test_results_are_means_over_seeds_and_differences_paired_by_seed() -> None:
    labels = ["first", "second"] * 2
    summaries = [summary(0, 0.5, 1.0), summary(0, 0.6, 1.5), summary(1, 0.7, 2.0), summary(1, 0.9, 2.0)]
    lines = shown(results_table("title", labels, summaries))
    assert "first 60.0±14.1 1.500±0.707 3.0" in lines
    assert "second 75.0±21.2 1.750±0.354 +25.0±35.4 +15.00±7.07 3.0" in lines
    assert "Δ: difference from the first row, paired by seed" in lines


def test_one_run_has_no_difference_and_an_unknown_value_is_a_dash() -> None:
    lines = shown(results_table("title", ["one"], [summary(0, None, 1.0, None)]))
    assert "one – 1.000 –" in lines
    assert not any("Δ" in line for line in lines)


def test_a_plan_has_spreads_where_there_are_any() -> None:
    def spread(mean: float, std: float = 0.0):
        return {"mean": mean, "std": std}

    row = {
        "policy": "mine",
        "energy_j": spread(2.0, 0.5),
        "energy_per_upload_j": spread(0.004),
        "round_latency_s": spread(0.02),
        "bits": spread(3.0, 0.4),
        "bits_first_tenth": 2.0,
        "bits_last_tenth": None,
        "bits_size_correlation": spread(-0.5),
    }
    empty = dict.fromkeys(row) | {"policy": "nobody"}
    lines = shown(plan_table("title", [row, empty]))
    assert "mine 2±0.5 4 20 2.0→–±0.4 -0.50" in lines
    assert "nobody – – – –→– –" in lines


def test_service_is_a_mean_over_seeds_and_fits_80_columns() -> None:
    known = {"participation": 0.5, "missed": 0.25, "empty_rounds": 3, "participation_ratio": 0.9, "jain": 0.75}
    other = {"participation": 0.7, "missed": 0.0, "empty_rounds": 0, "participation_ratio": 1.0, "jain": None}
    summaries = [known | {"error_ratio": None}, {}, other | {"error_ratio": 1.5}]
    lines = shown(
        service_table(["no-quantization, update+entropy", "old", "no-quantization, update+entropy"], summaries)
    )
    assert "no-quantization, update+entropy 60 12 1.5 0.95 0.75 1.50" in lines
    assert "old – – – – – –" in lines
    assert "% % rounds fair share index budget" in lines
    assert not any("…" in line for line in lines)


def test_health_is_one_line_per_sentence_and_nothing_where_all_is_well() -> None:
    console = Console(file=StringIO(), width=80)
    print_health(console, [])
    assert console.file.getvalue() == ""
    print_health(console, ["[b]first: " + "x" * 100 + ".", "second."])
    assert console.file.getvalue().splitlines() == ["Health: [b]first: " + "x" * 100 + ".", "Health: second."]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.9, "0:00"), (61.0, "1:01"), (3599.0, "59:59"), (3661.0, "1:01:01"), (90000.0, "25:00:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_number() -> None:
    assert [number(None), number(float("nan")), number(1234.5), number(0.123, ".1%")] == ["–", "–", "1.23e+03", "12.3%"]
