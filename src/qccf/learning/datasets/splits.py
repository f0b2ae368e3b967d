"""A test split for datasets whose files contain none."""

import numpy as np
from numpy.typing import NDArray

from qccf.core.streams import stream


def held_out(groups: NDArray[np.int64], fraction: float, *, seed: int, name: str) -> NDArray[np.bool_]:
    """True for samples of the test part: ``fraction`` of each group, drawn from the stream of ``name``.

    Grouping by label keeps the proportions of the classes, grouping by writer those of the writers. A group of two or
    more samples gives at least one sample to each part; a group of one stays in training.
    """
    rng = stream(seed, "dataset", name, "test")
    in_test = np.zeros(len(groups), dtype=np.bool_)
    # One shuffle and a stable sort by group put the members of each group into random order.
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for members in np.split(order, starts[1:]):
        count = min(max(round(len(members) * fraction), 1), len(members) - 1)
        in_test[members[:count]] = True
    return in_test
