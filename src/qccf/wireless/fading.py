"""Small-scale fading, and processes that are correlated from round to round."""

from collections.abc import Callable

import numpy as np

from qccf.core.contracts import FloatArray


def rician_power_gains(scattered: FloatArray, *, rician_k: float, mean_power: float) -> FloatArray:
    """Power gains |g|² of a Rician channel. The direct path is K times as strong as the scattered paths together.

    `scattered` are standard normal numbers [2, …], the two components of the scattered paths. The gains' mean is ζ
    (`mean_power`) and their variance ζ²(2K + 1)/(K + 1)². Paper: h_Rician, (K, ζ).
    """
    direct = np.sqrt(rician_k / (rician_k + 1.0))
    paths = np.sqrt(0.5 / (rician_k + 1.0)) * scattered
    return np.asarray(mean_power * (np.square(direct + paths[0]) + np.square(paths[1])))


def rician_power_quantile(probability: float, *, rician_k: float, mean_power: float) -> float:
    """The power gain that a Rician channel does not exceed with this probability."""
    from scipy.special import chndtrix  # inverse of the noncentral chi-square distribution

    return float(mean_power / (2.0 * (rician_k + 1.0)) * chndtrix(probability, 2, 2.0 * rician_k))


class GaussMarkov:
    """x(0) = w(0), x(n) = ρ·x(n − 1) + sqrt(1 − ρ²)·w(n): standard normal, with the correlation ρ^k after k rounds.

    `draw` gives w(n), standard normal, for each round n. The last `kept` values are remembered, so that rounds in order
    cost one draw each. That changes no value: each depends on ρ and the draws only.
    """

    def __init__(self, correlation: float, draw: Callable[[int], FloatArray], kept: int = 1) -> None:
        self._correlation = correlation
        self._draw = draw
        self._kept = kept
        self._known: dict[int, FloatArray] = {}

    def at(self, round_index: int) -> FloatArray:
        """The value in a round."""
        if self._correlation == 0.0:
            return self._draw(round_index)
        start = max((known for known in self._known if known <= round_index), default=0)
        value = self._known[start] if start in self._known else self._draw(0)
        innovation = np.sqrt(1.0 - self._correlation**2)
        for n in range(start + 1, round_index + 1):
            value = self._correlation * value + innovation * self._draw(n)
            self._remember(n, value)
        self._remember(round_index, value)
        return value

    def _remember(self, round_index: int, value: FloatArray) -> None:
        self._known[round_index] = value
        while len(self._known) > self._kept:
            del self._known[min(self._known)]
