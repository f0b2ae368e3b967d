"""The comparison of adaptive policies with fixed bits: its yardstick, its verdicts, and a small run."""

import numpy as np
import pytest

from benchmarks.adaptation import CODECS, Point, energy_at_error, excess, fixed, planned_points, saving, verdict
from qccf.core.intervals import estimate


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
