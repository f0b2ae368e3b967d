"""Same-Size: QCCF for a server that assumes that all datasets are as large as the largest."""

from dataclasses import replace

import numpy as np

from qccf.core.contracts import Statistics
from qccf.policies.qccf import Qccf


class SameSize(Qccf):
    """Decides as if every dataset had the largest size; the energy is charged for the true sizes.

    Paper: Section VI, baseline (d).
    """

    colour, marker = "#009E73", "D"

    def assumed(self, statistics: Statistics) -> Statistics:
        sizes = statistics.dataset_sizes
        return replace(statistics, dataset_sizes=np.full_like(sizes, sizes.max()))
