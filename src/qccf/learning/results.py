"""What local training comes to. Apart from the training, so that whoever only passes it on need not load PyTorch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Flat = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Report:
    """What a client reports beside its model: statistics that cost nothing beyond the training itself.

    Over an epoch θ moves by η times the sum of its mini-batch gradients, so their mean is known from where the epoch
    began and ended. G² is the squared norm of that mean (the largest over the epochs), σ² the spread of the mini-batch
    gradients around it (the mean over the epochs), both with the model moving under them. The loss is that of the first
    mini-batch, before the first step.
    """

    gradient_norm_sq: float
    gradient_variance: float
    weight_range: float
    loss: float


@dataclass(frozen=True, slots=True)
class LocalResult:
    """A client's model after its local updates, and its report."""

    weights: Flat
    report: Report
