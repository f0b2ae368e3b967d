"""Shannon's formula."""

from typing import Any

import numpy as np


class Shannon:
    """The most that any code can carry: B·log2(1 + SNR). Paper: v = B·log2(1 + p·h/(B·N0))."""

    def rates_bps(self, signal_to_noise: Any, *, bandwidth_hz: float) -> Any:
        return bandwidth_hz * np.log1p(signal_to_noise) / np.log(2.0)
