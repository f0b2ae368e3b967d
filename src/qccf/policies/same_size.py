"""Same-Size: QCCF for a server that takes all datasets to be as large as the largest."""

from dataclasses import replace

import numpy as np

from qccf.core.contracts import Statistics
from qccf.policies.qccf import Qccf


class SameSize(Qccf):
    """Decides as if every dataset had the largest size; the energy that is spent is that of the true sizes.

    Paper: Section VI, baseline (d).
    """

    def believed(self, statistics: Statistics) -> Statistics:
        sizes = statistics.dataset_sizes
        return replace(statistics, dataset_sizes=np.full_like(sizes, sizes.max()))
