"""How many local steps a client takes (τ in τ_e epochs, or one per batch of a given size), and how far they go."""

import numpy as np

from qccf.core.contracts import Constants, FloatArray, Statistics


def steps_per_epoch(num_samples: int, *, local_updates: int, local_epochs: int, batch_size: int = 0) -> list[int]:
    """The steps of each epoch of a client with this many samples.

    With a batch size each epoch has as many steps as there are batches, the last of which may be smaller. Otherwise the
    steps are spread over the epochs, and the first epochs have one more where they do not divide.
    """
    if batch_size:
        return [-(-num_samples // batch_size)] * local_epochs
    each, more = divmod(local_updates, local_epochs)
    return [each + (epoch < more) for epoch in range(local_epochs)]


def usual_steps(dataset_sizes: FloatArray, constants: Constants) -> float:
    """τ of the median client of a round."""
    if not constants.batch_size:
        return float(constants.local_updates)
    return float(np.median(constants.local_epochs * np.ceil(dataset_sizes / constants.batch_size)))


def usual_update_sq(statistics: Statistics, constants: Constants) -> float:
    """The squared norm of the usual update: learning rate times steps times the mean gradient.

    The median over clients is not moved by a few wrong reports.
    """
    steps = usual_steps(statistics.dataset_sizes, constants)
    return (constants.learning_rate * steps) ** 2 * float(np.median(statistics.gradient_norms_sq))
