"""The one channel rule that the baselines without a control problem of their own share."""

import numpy as np

from qccf.control.matching import cheapest_matching
from qccf.core.contracts import BoolArray, FloatArray, IntArray


def fastest_channels(rates_bps: FloatArray, usable: BoolArray) -> IntArray:
    """Channels for the greatest total rate over usable pairs; -1 for a client that gets none."""
    return cheapest_matching(np.where(usable, -rates_bps, 0.0))[1]
