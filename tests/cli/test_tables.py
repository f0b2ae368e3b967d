"""The tables of the terminal: means, spreads, differences, and a width of 80 columns."""

from io import StringIO

import pytest
from rich.console import Console

from qccf.cli.tables import plan_table, print_health, results_table, service_table


def printed(table, width: int = 80) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(table)
    return console.file.getvalue().splitlines()


def shown(table) -> list[str]:
    return [" ".join(line.split()) for line in printed(table)]


def summary(seed: int, accuracy: float | None, energy_j: float, bits: float | None = 3.0):
    return {"seed": seed, "test_accuracy": accuracy, "energy_j": energy_j, "mean_bits": bits}


def test_results_are_means_over_seeds_and_differences_paired_by_seed() -> None:
    labels = ["first", "second"] * 2
    summaries = [summary(0, 0.5, 1.0), summary(0, 0.6, 1.5), summary(1, 0.7, 2.0), summary(1, 0.9, 2.0)]
    lines = shown(results_table("title", labels, summaries))
    assert "first 60±14 1.50±0.71 3.0" in lines
    assert "second 75±21 1.75±0.35 +25±35 +15.0±7.1 3.0" in lines
    assert any(line.startswith("Δ: difference from the first row, paired by seed. Accuracy: of") for line in lines)


def test_one_run_has_no_difference_and_an_unknown_value_is_a_dash() -> None:
    lines = shown(results_table("title", ["one"], [summary(0, None, 1.0, None)]))
    assert "one – 1.00 –" in lines
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
    assert "policy J mJ ms bits first→last vs size" in lines
    assert "mine 2.00±0.50 4.00 20.0 3.00±0.40 2.0→– -0.50" in lines
    assert "nobody – – – – –→– –" in lines


EXTREMES_J = [10.0**power for power in range(-6, 10)]
LONG = "my_laboratory.policies.experimental:VeryPatientPolicy"


def plan_row(policy: str, energy_j: float):
    spread = {"mean": energy_j, "std": 0.3 * energy_j}
    bits = {"mean": 12.34, "std": 5.6}
    keys = ("energy_j", "energy_per_upload_j", "round_latency_s")
    ends = {"bits_first_tenth": 32.0, "bits_last_tenth": 32.0, "bits_size_correlation": {"mean": -0.5}}
    return {"policy": policy, "bits": bits, **dict.fromkeys(keys, spread), **ends}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("energies_j", [[1e-6, 1e9], EXTREMES_J, *([one] for one in EXTREMES_J)])
def test_no_value_is_cut_whatever_its_size(energies_j: list[float], width: int) -> None:
    labels = [LONG if index % 2 else f"policy-{index}" for index in range(len(energies_j))] * 2
    summaries = [summary(seed, 0.5, (1 + 0.2 * seed) * one) for seed in (0, 1) for one in energies_j]
    plans = [plan_row(f"{LONG}{index}", one) for index, one in enumerate(energies_j)]
    for table in (results_table("title", labels, summaries), plan_table("title", plans)):
        lines = printed(table, width)
        assert max(map(len, lines)) <= width
        assert not any("…" in line or "e+" in line or "e-" in line for line in lines)


def test_hidden_columns_are_named() -> None:
    lines = printed(plan_table("title", [plan_row("no-quantization", 1.0)]), 60)
    assert "2 columns hidden at this width: bits first→last, bits vs " in lines
    assert "size; widen the terminal or use --json." in lines
    assert not any("hidden" in line for line in printed(plan_table("title", [plan_row("qccf", 1.0)]), 80))


def test_a_heading_is_not_folded_to_the_width_of_short_labels() -> None:
    assert any("policy" in line for line in printed(plan_table("title", [plan_row("qccf", 1.0)]), 80))


def test_what_is_charged_besides_computing_and_uploading_is_named() -> None:
    row = plan_row("qccf", 1.0) | {"charged": "computing, uploading, receiving"}
    assert any("Energy: computing, uploading, receiving" in line for line in shown(plan_table("title", [row])))
    assert not any("Energy:" in line for line in shown(plan_table("title", [plan_row("qccf", 1.0)])))
    summary = {"seed": 0, "test_accuracy": 0.5, "energy_j": 1.0, "mean_bits": 1.0}
    charged = summary | {"charged": "computing, uploading, coding"}
    folded = " ".join(shown(results_table("t", ["a"], [charged])))
    assert "Energy: computing, uploading, coding" in folded
    assert not any("Energy:" in line for line in shown(results_table("t", ["a"], [summary])))


def test_rows_are_named_by_their_codec_where_codecs_differ() -> None:
    rows = [plan_row("qccf", 1.0) | {"codec": codec} for codec in ("model", "update")]
    assert any(line.startswith("qccf, update 1.00") for line in shown(plan_table("title", rows)))
    assert any(line.startswith("qccf 1.00") for line in shown(plan_table("title", rows[:1])))


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
