"""The partition of the training samples among clients. No sample is used twice; too few samples are an error."""

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
    """Indexes of each client's samples; `sizes` gives their numbers. Paper: Section VI, non-IID data."""
    wanted = int(sizes.sum())
    if wanted > len(labels):
        raise ConfigError(
            f"the clients need {wanted:,} samples together but the dataset has {len(labels):,}: lower "
            "data.dataset_size_mean or federation.num_clients, or use a larger dataset."
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
    """Each client takes whole writers in random order, and only a part of its last writer.

    The rest of that writer is used only when no whole writers are left.
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
    """Each client draws a mixture of labels from a Dirichlet distribution around the dataset's, then its samples.

    When a label has no samples left, the missing samples are drawn from the other labels.
    """
    classes, counts = np.unique(labels, return_counts=True)
    pools = [list(rng.permutation(np.flatnonzero(labels == label))) for label in classes]
    prior = counts / counts.sum()
    clients = []
    for size in sizes:
        mixture = rng.dirichlet(alpha * len(classes) * prior)
        chosen: list[int] = []
        while len(chosen) < size:
            left = np.array([len(pool) for pool in pools])
            chances = np.where(left > 0, mixture, 0.0)
            chances = chances if chances.sum() > 0.0 else left.astype(float)
            draws = np.minimum(rng.multinomial(int(size) - len(chosen), chances / chances.sum()), left)
            for pool, draw in zip(pools, draws, strict=True):
                chosen.extend(pool.pop() for _ in range(draw))
        clients.append(np.array(chosen))
    return clients
