"""Fading has the stated distribution; the rate follows Shannon's formula."""

import numpy as np
import pytest
from scipy.stats import kstest, ncx2

from qccf.wireless.fading import rician_power_gains, rician_power_quantile
from qccf.wireless.link import rates_bps


@pytest.mark.parametrize(("k", "zeta"), [(4.0, 1.0), (0.0, 2.0), (10.0, 0.5)])
def test_rician_power_has_the_stated_moments_and_distribution(k: float, zeta: float) -> None:
    n = 400_000
    gains = rician_power_gains((n,), rician_k=k, mean_power=zeta, rng=np.random.default_rng(32))
    variance = zeta**2 * (2 * k + 1) / (k + 1) ** 2
    fourth = ncx2(2, 2 * k).stats(moments="k") + 3.0
    assert gains.mean() == pytest.approx(zeta, abs=5 * np.sqrt(variance / n))
    assert gains.var() == pytest.approx(variance, abs=5 * variance * np.sqrt((fourth - 1) / n))
    law = ncx2(2, 2 * k, scale=zeta / (2 * (k + 1)))
    assert kstest(gains[:20_000], law.cdf).pvalue > 1e-6
    assert rician_power_quantile(0.9, rician_k=k, mean_power=zeta) == pytest.approx(law.ppf(0.9))


def test_rate_by_hand() -> None:
    """1 W over a gain of 1e-9 in 1 MHz with 1e-18 W/Hz of noise is an SNR of 1000: log2(1001) b/s/Hz."""
    rate = rates_bps(1e-9, transmit_power_w=1.0, bandwidth_hz=1e6, noise_w_per_hz=1e-18)
    assert float(rate) == pytest.approx(1e6 * np.log2(1001.0))
