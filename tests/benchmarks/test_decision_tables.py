"""The tables of the recorded decisions: claims are judged by the rules of the report."""

import numpy as np
import pytest

from benchmarks.decision_tables import (
    best_constants,
    claims_table,
    correlation_over_trainings,
    front_table,
    genetic_table,
    judgements,
    map_table,
    over_trainings,
    savings,
    tables,
    weights_table,
    why,
    with_tables,
)
from benchmarks.decisions import CONSTANTS, NUM_TRAININGS, POLICIES, points
from qccf.core.intervals import estimate
from qccf.paper.verdicts import ENERGY, UP, ZERO


def made_columns(saved: dict[str, float], cells: int = 20) -> dict:
    """QCCF spends 1 J in every cell, and a policy so much that QCCF saves that share."""
    rng = np.random.default_rng(0)
    columns = {}
    for name in POLICIES:
        energy = 1.0 / (1.0 - saved.get(name, 0.3)) * (1.0 + 0.01 * rng.normal(size=cells))
        energy = np.ones(cells) if name == "qccf" else energy
        columns[name] = {
            "energy_j": energy.tolist(), "error": [1.0] * cells, "participation": [1.0] * cells, "bits": [4.0] * cells,
            "late": [0.0] * cells, "bits_round": (0.9 + 0.01 * rng.normal(size=cells)).tolist(),
            "bits_size": (-0.5 + 0.05 * rng.normal(size=cells)).tolist(),
            "last_bits": (5.0 + (name == "principle, paper") * np.linspace(0.9, 1.1, cells)).tolist(),
        }  # fmt: skip
    return columns


SAVED = {"same-size, CPU follows": 0.3542, "same-size, joint": 0.1, "principle, paper": -0.4, "channel-allocate": 0.01}


@pytest.fixture(scope="module")
def recorded() -> dict:
    columns = made_columns(SAVED)
    found = {f"policies: β = {beta}": {n: c for n, c in columns.items() if n not in CONSTANTS} for beta in (300, 150)}
    found["constants: β = 300"] = {name: columns[name] for name in CONSTANTS}
    found["V: V = 100"] = {"qccf": columns["qccf"]}
    return found


def test_claims_about_decisions_get_the_verdict_of_their_number(recorded) -> None:
    lines = "\n".join(claims_table(recorded))
    for words, verdict, reason in (
        ("same-size, CPU follows, β = 300", "holds", "within ±5 % of the paper's"),
        ("same-size, joint, β = 300", "holds in part", "the direction holds, and the number is below the paper's"),
        ("principle, paper, β = 300", "refuted", "the interval is on the other side of 0"),
        ("channel-allocate, β = 300", "tie", "within ±5 %, too small to matter"),
        ("no-quantization, β = 300", "holds", "the interval is on the claimed side of 0"),
    ):
        (row,) = [line for line in lines.splitlines() if f"QCCF saves against {words} " in line]
        assert row.endswith(f"| {NUM_TRAININGS} | {verdict} | {reason} |"), row
    (row,) = [line for line in lines.splitlines() if "bits of principle, paper over dataset sizes, β = 300" in line]
    assert "| refuted |" in row, "they fall with the size here"
    (row,) = [line for line in lines.splitlines() if "energy of qccf from β" in line]
    assert row.startswith("| energy |"), "what QCCF spends does not rest on same-size"
    assert row.endswith("| holds | within ±5 % |"), "it is the same at both β"
    assert "last bits of principle, paper minus qccf, β = 150 | more | +1.0" in lines
    (row,) = [line for line in lines.splitlines() if "the least of the paper's five, β = 300" in line]
    assert row.endswith(f"| {NUM_TRAININGS} | refuted | principle, paper spends less |"), "principle is cheaper"


def test_what_is_not_settled_says_what_is_missing() -> None:
    wide, beside = estimate([-1.0, 1.0, 0.3]), estimate([0.2, 0.21, 0.22])
    assert why(wide, UP, ENERGY, "not settled") == "0 is inside the interval"
    assert why(beside, UP, ENERGY, "not settled") == "0 is outside the interval, but not after Holm's correction"
    assert why(wide, ZERO, ENERGY, "not settled") == "too few trainings to show that it is within ±5 %, or beyond"
    assert why(beside, ZERO, ENERGY, "refuted") == "beyond ±5 %"
    inside = estimate([-0.01, 0.01, 0.0])
    assert why(inside, ZERO, ENERGY, "not settled") == "the interval is within ±5 %, but not after Holm's correction"


def test_every_claim_names_a_cause_and_no_number_is_judged_twice(recorded) -> None:
    every = list(judgements(recorded))
    assert len({one[1] for one in every}) == len(every)
    assert {one[0] for one in every} == {"energy", "same-size", "principle", "bits"}


def test_cells_of_one_training_count_once() -> None:
    """Every training has a value of its own and 5 equal cells: the interval is that of 8 values, not of 40."""
    values = np.tile(np.arange(NUM_TRAININGS, dtype=float), 5)
    values[3] = np.nan
    e = over_trainings(values)
    assert (e.mean, e.count) == (3.5, NUM_TRAININGS)
    assert e.half == pytest.approx(2.3646 * np.std(np.arange(8.0), ddof=1) / np.sqrt(8.0), rel=1e-3)
    z = correlation_over_trainings(np.tanh(values / 10.0))
    assert (z.count, z.mean) == (NUM_TRAININGS, pytest.approx(np.tanh(0.35)))
    assert over_trainings(np.array([1.0, np.nan, 3.0])).count == 2


def test_a_rival_that_serves_nobody_is_no_saving() -> None:
    columns = {"qccf": {"energy_j": [1.0, 0.0, 1.0]}, "x": {"energy_j": [2.0, 0.0, None]}}
    e = savings(columns, "x")
    assert (e.mean, e.count) == (0.5, 1)


def test_unequal_numbers_of_clients_are_compared_per_upload() -> None:
    columns = {
        "qccf": {"energy_j": [2.0, 1.0], "participation": [1.0, 0.0]},
        "x": {"energy_j": [2.0, 1.0], "participation": [0.5, 0.5]},
    }
    assert savings(columns, "x").mean == 0.0
    assert (savings(columns, "x", per_upload=True).mean, savings(columns, "x", per_upload=True).count) == (0.5, 1)


def test_maps_show_the_points_that_are_recorded(recorded) -> None:
    point = next(point for point in points() if point.study == "T_max × B")
    lines = map_table("T_max × B", {point.key: made_columns(SAVED, 3)})
    assert len(lines) == 4
    assert lines[-1].startswith(f"| {point.label} | 3 of 3 | 35.")
    assert any("| V = 100 | 20 |" in line for line in weights_table(recorded, recorded["constants: β = 300"]))
    assert sum("cells" in line for line in tables(recorded)) > 3


def test_two_constants_in_turns_have_any_error_between_theirs() -> None:
    """Errors 9 and 1 at 1 J and 5 J: half of each has an error of 5 for 3 J. One that serves fewer is left out."""
    errors, energies, served = [9.0, 1.0, 0.5], [1.0, 5.0, 2.0], [1.0, 1.0, 0.9]
    columns = {
        f"fixed-bits {k + 1}": {
            "energy_j": [energies[k]] * 3,
            "error": [errors[k]] * 3,
            "participation": [served[k]] * 3,
        }
        for k in range(3)
    }
    columns["qccf"] = {"energy_j": [1.0] * 3, "error": [5.0, 20.0, 0.8], "participation": [1.0] * 3}
    np.testing.assert_allclose(best_constants(columns, "qccf"), [3.0, 1.0, np.nan])
    columns["qccf"]["participation"] = [0.9] * 3
    np.testing.assert_allclose(best_constants(columns, "qccf")[2], 2.0 - 0.3 / 8.5, err_msg="mostly the third")


def test_baselines_are_compared_at_their_own_error() -> None:
    """QCCF takes 2 J at error 1 and 1 J at error 4, so 1.41 J at error 2, where the baseline takes 4 J."""
    cells = 4
    front = {
        f"V: V = {weight}": {"qccf": {"energy_j": [energy] * cells, "error": [error] * cells}}
        for weight, energy, error in ((1, 2.0, 1.0), (100, 1.0, 4.0))
    }
    noise = [0.0, 0.01, -0.01, 0.0]
    other = {"energy_j": [4.0 + one for one in noise], "error": [2.0] * cells, "participation": [1.0] * cells}
    lines = front_table({**front, "policies: β = 300": {"principle, paper": other}, "constants: β = 300": {}})
    assert lines[-1].startswith("| principle, paper | 0 |"), "no constants, so no common cells"
    lines = front_table({**front, "policies: β = 300": {"principle, paper": other}, "constants: β = 300": {"x": other}})
    assert lines[-1].startswith("| principle, paper | 4 | +64.6 ± 0.1 |")
    assert lines[-1].endswith("| holds |")


def test_the_genetic_table_has_a_row_per_size_and_the_range_over_the_rest() -> None:
    settings = {"20 x 20, p_c 0.6": 0.01, "20 x 20, p_c 0.9": 0.03, "20 x 20, p_c 0.9, elitism 1": 0.0}
    columns = {name: {"gap": [gap, 3.0 * gap], "lost_j": [gap, gap]} for name, gap in settings.items()}
    lines = genetic_table({"genetic: a": columns})
    assert lines[-2:] == [
        "| 20 x 20 | 4 (2 to 6) %, 20 mJ (10 to 30) |",
        "| 20 x 20, elitism 1 | 0 (0 to 0) %, 0 mJ (0 to 0) |",
    ]


def test_tables_replace_those_of_a_page() -> None:
    assert with_tables("# A\n\n## Tables\nold\n", ["new", "line"]) == "# A\n\n## Tables\nnew\nline\n"
    with pytest.raises(SystemExit, match="no heading"):
        with_tables("# A\n", [])
