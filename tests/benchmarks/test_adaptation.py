"""The comparison of adaptive policies with fixed bits: its yardstick, its verdicts, and a small run."""

import numpy as np
import pytest

from benchmarks.adaptation import (
    ADAPTIVE,
    CODECS,
    Point,
    energy_at_error,
    excess,
    fixed,
    planned_points,
    saving,
    trained,
    trained_table,
    trainings,
    verdict,
)
from qccf.core.intervals import estimate
from qccf.rounds.run import Run
from tests.rounds.test_targets import made_run


def points(*pairs: tuple[float, float]) -> list[Point]:
    return [Point(energy_j, error, 1.0, 1.0) for energy_j, error in pairs]


def test_energy_is_interpolated_in_the_logarithm_of_the_error() -> None:
    found = points((1.0, 100.0), (2.0, 1.0), (5.0, 0.01))
    assert energy_at_error(found, 10.0) == pytest.approx(1.5)
    assert energy_at_error(found, 1.0) == pytest.approx(2.0)
    assert energy_at_error(found, 1e6) == 1.0
    assert energy_at_error(found, 0.0) == 5.0


def test_bits_that_the_links_do_not_carry_are_no_yardstick() -> None:
    found = points((1.0, 100.0), (2.0, 1.0), (9.0, 1.5), (5.0, 0.01))
    assert energy_at_error(found, 1.5) < 2.0


def test_savings_are_paired_by_cell() -> None:
    yardsticks = [points((2.0, 1.0), (4.0, 0.1)), points((20.0, 1.0), (40.0, 0.1))]
    own = [Point(1.0, 1.0, 1.0, 1.0), Point(10.0, 1.0, 1.0, 1.0)]
    assert saving(own, yardsticks).mean == pytest.approx(0.5)


def test_the_error_at_the_same_energy_is_a_geometric_mean() -> None:
    yardsticks = [points((2.0, 1.0), (4.0, 0.01))] * 2
    own = [Point(3.0, 0.05, 1.0, 1.0), Point(3.0, 0.0125, 1.0, 1.0)]
    assert excess(own, yardsticks) == pytest.approx((2.0 * 8.0) ** 0.5)
    assert np.isnan(excess([Point(3.0, 0.0, 1.0, 1.0)] * 2, yardsticks))


@pytest.mark.parametrize(
    ("saved", "times", "words"),
    [
        ((0.2, 0.21, 0.19), 1.0, ": adaptation pays (+20.0 ± 2.5 %"),
        ((0.2, 0.9, -0.5), 1.0, ": no clear difference"),
        ((0.0,), 3.0, ": adaptation pays"),
        ((0.0,), 1.0, ": no difference"),
        ((-0.2, -0.21, -0.19), 1.0, ": adaptation costs more"),
    ],
)
def test_verdicts_follow_the_interval(saved: tuple[float, ...], times: float, words: str) -> None:
    assert words in verdict("model", estimate(saved), times)


@pytest.mark.parametrize("codec", CODECS)
def test_more_fixed_bits_err_less_and_cost_more(codec: str) -> None:
    found = [planned_points("quick", 2, codec, fixed(bits), range(1))[0] for bits in (1, 2)]
    assert found[1].error < found[0].error
    assert found[1].energy_j > found[0].energy_j
    assert np.isfinite([one.bits for one in found]).all()


def test_small_steps_have_an_error_as_well() -> None:
    """`lean` states a batch size, so its number of steps is not a setting."""
    assert 0.0 < planned_points("lean", 2, "update", fixed(1), range(1))[0].error < np.inf


def trained_run(accuracies: list[float], energy_j: float, bits: int) -> Run:
    run = made_run(accuracies, energy_j)
    count = len(accuracies)
    run.client_columns.update(participated=np.ones(count, bool), num_bits=np.full(count, bits))
    return run


def test_every_policy_is_trained_with_every_codec() -> None:
    """Without quantization the codec is not used, so that one training stands for all."""
    made = [(codec, kind.label) for codec, kind in trainings()]
    for kind in (*ADAPTIVE, fixed(1), fixed(4)):
        codecs = CODECS[:1] if kind.label == "no-quantization" else CODECS
        assert [codec for codec, label in made if label == kind.label] == list(codecs)
    assert len(made) == 7 * 4 + 1


def test_trained_figures_have_intervals_and_joules_to_an_accuracy() -> None:
    """Two evaluations count. 10 % is reached in round 2 by both seeds, with 4 J and 6 J: 5 J, and Student's t for one
    degree of freedom gives 12.7 times the standard error of 1 J. 25 % is reached by one of them."""
    runs = [trained_run([0.1, 0.1, 0.2, 0.3], 2.0, 1), trained_run([0.1, 0.1, 0.1, 0.2], 3.0, 2)]
    heads, _, line, alone = trained_table({("update", "mine"): runs, ("sparse", "other"): runs[:1]}, [0.1, 0.25, 0.4])
    assert heads == "| codec | policy | bits | accuracy (%) | energy (J) | J to 10 % | J to 25 % | J to 40 % |"
    assert line == (
        "| update | mine | 1.50 ± 6.35 | 25.0 ± 63.5 | 10 ± 25.4 | 5 ± 12.7 | reached by 1 of 2 | not reached |"
    )
    assert alone == "| sparse | other | 1.00 | 30.0 | 8 | 4 | 8 | not reached |"


def test_the_matrix_is_trained_seed_by_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def simulate(scenario, *, policy: str) -> Run:
        asked.append((scenario.codec.name, policy, scenario.federation.seed, scenario.federation.rounds))
        return trained_run([0.1, 0.2, 0.2], 1.0, 1)

    monkeypatch.setattr("qccf.simulate", simulate)
    trained("quick", 3, 2, [])
    assert asked[:3] == [("model", "qccf", 0, 3), ("model", "qccf", 1, 3), ("model", "qccf", 0, 3)]
    assert len(asked) == 2 * len(trainings())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "quick, 3 rounds, 2 cells, trained"
    assert lines[2].endswith("| energy (J) | J to 10 % | J to 15 % | J to 20 % |")
    assert len(lines) == 4 + len(trainings())
