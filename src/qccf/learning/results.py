"""The result of local training. This module does not load PyTorch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Flat = NDArray[np.float32]
"""All parameters of a model as one vector, followed by its floating-point buffers if it has any."""


@dataclass(frozen=True, slots=True)
class LocalStatistics:
    """Statistics that a client measures during its training and reports with its upload.

    Over an epoch θ moves by η times the sum of the mini-batch gradients, so their mean follows from the first and the
    last θ. G² is the squared norm of that mean (largest over epochs), σ² the variance of the mini-batch gradients
    around it (mean over epochs). The loss is the one of the first mini-batch, before the first step.
    """

    gradient_norm_sq: float
    gradient_variance: float
    weight_range: float
    loss: float


@dataclass(frozen=True, slots=True)
class LocalResult:
    """A client's model after its local updates, and its statistics.

    A `hostile` result is an attacker's of a simulation: it is sent as it is, without the clipping and noise that
    privacy asks of the others.
    """

    weights: Flat
    statistics: LocalStatistics
    hostile: bool = False
