"""Who holds which samples. No sample is held twice; too little data is an error, never a smaller client."""

from typing import Literal

import numpy as np

from qccf.core.contracts import IntArray
from qccf.core.errors import ConfigError
from qccf.core.streams import stream

Method = Literal["writer", "dirichlet", "iid"]


def partition(
    labels: IntArray,
    writers: IntArray | None,
    sizes: IntArray,
    *,
    method: Method,
    dirichlet_alpha: float,
    seed: int,
) -> list[IntArray]:
    """Indexes of each client's samples, as many as `sizes` says. Paper: Section VI, non-IID data."""
    wanted = int(sizes.sum())
    if wanted > len(labels):
        raise ConfigError(
            f"the clients want {wanted:,} samples together but the dataset has {len(labels):,}: lower "
            "data.dataset_size_mean or federation.num_clients, or take a larger dataset."
        )
    rng = stream(seed, "partition")
    if method == "iid":
        return list(np.split(rng.permutation(len(labels))[:wanted], np.cumsum(sizes)[:-1]))
    if method == "dirichlet":
        return _by_label(labels, sizes, dirichlet_alpha, rng)
    if writers is None:
        raise ConfigError('data.partition = "writer" needs a dataset with writers: use "dirichlet" or "iid".')
    return _by_writer(writers, sizes, rng)


def _by_writer(writers: IntArray, sizes: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Each client takes whole writers in random order, and of its last one only what it still needs.

    What is left of that writer goes to nobody unless the writers run out: then the leftovers are dealt as well.
    """
    order = rng.permutation(np.unique(writers))
    by_writer = {writer: rng.permutation(np.flatnonzero(writers == writer)) for writer in order}
    queue = [by_writer[writer] for writer in order]
    leftovers: list[IntArray] = []
    clients = []
    for size in sizes:
        parts: list[IntArray] = []
        missing = int(size)
        while missing:
            if not queue:
                queue, leftovers = leftovers, []
            samples = queue.pop(0)
            parts.append(samples[:missing])
            if len(samples) > missing:
                leftovers.append(samples[missing:])
            missing -= len(parts[-1])
        clients.append(np.concatenate(parts))
    return clients


def _by_label(labels: IntArray, sizes: IntArray, alpha: float, rng: np.random.Generator) -> list[IntArray]:
    """Each client draws a mixture of labels from Dirichlet(α) around the dataset's own, then samples from it.

    A label that runs out leaves the mixture; what is missing is drawn from the rest.
    """
    classes, counts = np.unique(labels, return_counts=True)
    pools = [list(rng.permutation(np.flatnonzero(labels == label))) for label in classes]
    prior = counts / counts.sum()
    clients = []
    for size in sizes:
        mixture = rng.dirichlet(alpha * len(classes) * prior)
        mine: list[int] = []
        while len(mine) < size:
            left = np.array([len(pool) for pool in pools])
            chances = np.where(left > 0, mixture, 0.0)
            chances = chances if chances.sum() > 0.0 else left.astype(float)
            draws = np.minimum(rng.multinomial(int(size) - len(mine), chances / chances.sum()), left)
            for pool, draw in zip(pools, draws, strict=True):
                mine.extend(pool.pop() for _ in range(draw))
        clients.append(np.array(mine))
    return clients
