"""Logit adjustment: what a client adds to its scores in training, because its classes are not those of everybody.

A client with many zeros learns that most images are zeros, and the average of such clients knows less than each of
them. If clients differ only in how often they have each class, then their best scores for class k differ only by
log(p_k/P_k), where p_k is the client's share of the class and P_k its share in all data. With this added, the scores of
all clients are for the same shares P, and their average loses little. Nothing is added in evaluation.
"""

import numpy as np
import torch
from numpy.typing import NDArray

ABSENT = -30.0
"""For a class that the client does not have, whose scores it then leaves as they are."""


def logit_adjustment(labels: torch.Tensor, everybodys: NDArray[np.int64]) -> torch.Tensor:
    """What a client adds to the score of each class.

    `labels` are the client's, `everybodys` is the number of samples of each class in all data. It is 0 for a class that
    nobody has.
    """
    own = np.bincount(labels.numpy(), minlength=len(everybodys))
    added = np.full(len(everybodys), ABSENT)
    known = (own > 0) & (everybodys > 0)
    added[known] = np.log(own[known] / own.sum()) - np.log(everybodys[known] / everybodys.sum())
    added[everybodys == 0] = 0.0
    return torch.from_numpy(np.maximum(added, ABSENT).astype(np.float32))
