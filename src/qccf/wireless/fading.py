"""Small-scale fading."""

import numpy as np

from qccf.core.contracts import FloatArray


def rician_power_gains(
    shape: tuple[int, ...], *, rician_k: float, mean_power: float, rng: np.random.Generator
) -> FloatArray:
    """Power gains |g|² of a Rician channel. The direct path is K times as strong as the scattered paths together.

    Their mean is ζ (`mean_power`) and their variance ζ²(2K + 1)/(K + 1)². Paper: h_Rician, (K, ζ).
    """
    direct = np.sqrt(rician_k / (rician_k + 1.0))
    scattered = np.sqrt(0.5 / (rician_k + 1.0)) * rng.standard_normal((2, *shape))
    return np.asarray(mean_power * (np.square(direct + scattered[0]) + np.square(scattered[1])))


def rician_power_quantile(probability: float, *, rician_k: float, mean_power: float) -> float:
    """The power gain that a Rician channel does not exceed with this probability."""
    from scipy.special import chndtrix  # inverse of the noncentral chi-square distribution

    return float(mean_power / (2.0 * (rician_k + 1.0)) * chndtrix(probability, 2, 2.0 * rician_k))
