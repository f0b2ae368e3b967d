"""Fading has the stated distribution, and the stated correlation from round to round."""

import numpy as np
import pytest
from scipy.stats import kstest, ncx2

from qccf.wireless.fading import GaussMarkov, rician_power_gains, rician_power_quantile


@pytest.mark.parametrize(("k", "zeta"), [(4.0, 1.0), (0.0, 2.0), (10.0, 0.5)])
def test_rician_power_has_the_stated_moments_and_distribution(k: float, zeta: float) -> None:
    n = 400_000
    scattered = np.random.default_rng(32).standard_normal((2, n))
    gains = rician_power_gains(scattered, rician_k=k, mean_power=zeta)
    variance = zeta**2 * (2 * k + 1) / (k + 1) ** 2
    fourth = ncx2(2, 2 * k).stats(moments="k") + 3.0
    assert gains.mean() == pytest.approx(zeta, abs=5 * np.sqrt(variance / n))
    assert gains.var() == pytest.approx(variance, abs=5 * variance * np.sqrt((fourth - 1) / n))
    law = ncx2(2, 2 * k, scale=zeta / (2 * (k + 1)))
    assert kstest(gains[:20_000], law.cdf).pvalue > 1e-6
    assert rician_power_quantile(0.9, rician_k=k, mean_power=zeta) == pytest.approx(law.ppf(0.9))


def draw(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(50_000)


def test_gauss_markov_by_hand() -> None:
    """ρ = 0.6: x(1) = 0.6·w(0) + 0.8·w(1) and x(2) = 0.36·w(0) + 0.48·w(1) + 0.8·w(2)."""
    process = GaussMarkov(0.6, draw)
    np.testing.assert_array_equal(process.at(0), draw(0))
    np.testing.assert_allclose(process.at(1), 0.6 * draw(0) + 0.8 * draw(1))
    np.testing.assert_allclose(process.at(2), 0.36 * draw(0) + 0.48 * draw(1) + 0.8 * draw(2))


def test_gauss_markov_is_standard_normal_and_correlated() -> None:
    process = GaussMarkov(0.9, draw, kept=2)
    values = [process.at(n) for n in range(12)]
    assert kstest(values[11], "norm").pvalue > 1e-6
    for lag in (1, 3):
        found = np.mean(values[11] * values[11 - lag])
        assert found == pytest.approx(0.9**lag, abs=5 * np.sqrt((1 + 0.9 ** (2 * lag)) / 50_000))


def test_a_round_has_the_same_value_however_it_is_reached() -> None:
    in_order, jumping, remembering = GaussMarkov(0.9, draw), GaussMarkov(0.9, draw), GaussMarkov(0.9, draw, kept=4)
    values = [in_order.at(n) for n in range(8)]
    for n in (7, 2, 5, 0, 6):
        np.testing.assert_array_equal(jumping.at(n), values[n])
        np.testing.assert_array_equal(remembering.at(n), values[n])
    np.testing.assert_array_equal(GaussMarkov(0.0, draw).at(5), draw(5))
