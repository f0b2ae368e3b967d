"""FedYogi: FedAdam with a memory that changes by at most a share of the squared change (Reddi et al., ICLR 2021)."""

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.learning.server.fedadam import FedAdam


class FedYogi(FedAdam):
    """v ← v − (1 − β2)·Δ²·sign(v − Δ²); the rest is FedAdam's."""

    section = "fedyogi"

    def next_square(self, square: FloatArray, change_sq: FloatArray) -> FloatArray:
        return square - (1.0 - self.options.second_decay) * change_sq * np.sign(square - change_sq)
