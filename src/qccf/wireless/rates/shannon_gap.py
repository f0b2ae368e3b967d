"""Shannon's formula with a gap and a limit: B·min(log2(1 + SNR/gap), limit)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.core.options import option
from qccf.core.units import db_to_linear


@dataclass(frozen=True)
class ShannonGap:
    """Options of the rate model shannon-gap. Defaults are assumed: a usual gap, and 256-QAM with code rate 948/1024."""

    section = "shannon_gap"

    gap_db: float = option(3.0, "signal-to-noise ratio that a real code and receiver lose", ge=0, le=30)
    efficiency_max: float = option(7.40625, "most bits per second and hertz", unit="b/s/Hz", gt=0, le=100)

    def rates_bps(self, signal_to_noise: Any, *, bandwidth_hz: float) -> Any:
        efficiency = np.log1p(np.asarray(signal_to_noise) / db_to_linear(self.gap_db)) / np.log(2.0)
        return bandwidth_hz * np.minimum(efficiency, self.efficiency_max)
