"""The rate of a link."""

from typing import Any

import numpy as np


def rates_bps(power_gains: Any, *, transmit_power_w: float, bandwidth_hz: float, noise_w_per_hz: float) -> Any:
    """Uplink rate of an OFDMA channel with this power gain. Paper: v = B·log2(1 + p·h/(B·N0))."""
    signal_to_noise = transmit_power_w * np.asarray(power_gains) / (bandwidth_hz * noise_w_per_hz)
    return bandwidth_hz * np.log1p(signal_to_noise) / np.log(2.0)
