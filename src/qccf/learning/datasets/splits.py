"""Test samples held out of a dataset that comes without a split of its own."""

import numpy as np
from numpy.typing import NDArray

from qccf.core.streams import stream


def held_out(groups: NDArray[np.int64], fraction: float, *, seed: int, name: str) -> NDArray[np.bool_]:
    """True where a sample belongs to the test part: ``fraction`` of each group, drawn from the stream of ``name``.

    Group by label and every class is tested in proportion; group by writer and every client's hand is. A group of two
    or more gives at least one sample to each part; a group of one stays in training.
    """
    rng = stream(seed, "dataset", name, "test")
    in_test = np.zeros(len(groups), dtype=np.bool_)
    # Shuffle once, then sort stably by group: each group's members arrive in random order without a draw per group.
    order = rng.permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for members in np.split(order, starts[1:]):
        count = min(max(round(len(members) * fraction), 1), len(members) - 1)
        in_test[members[:count]] = True
    return in_test
