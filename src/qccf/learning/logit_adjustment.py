"""Logit adjustment: what a client adds to its scores in training, because its classes are not those of everybody.

A client with many zeros learns that most images are zeros, and the average of such clients knows less than each of
them. If clients differ only in how often they have each class, then their best scores for class k differ only by
log(p_k/P_k), where p_k is the client's share of the class and P_k its share in all data. With this added, the scores of
all clients are for the same shares P, and their average loses little. Nothing is added in evaluation.

P may also be the shares of classes where the model will be used. Its scores are then the best ones there, also where
the clients together have other shares.
"""

import numpy as np
import torch
from numpy.typing import NDArray

ABSENT = -30.0
"""For a class that the client does not have, whose scores it then leaves as they are."""


def class_counts(clients: NDArray[np.int64], num_classes: int, meets: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many labels of each class the data have that the model meets, 0 where no client has the class.

    `clients` are the labels of all clients, `meets` those for which the model should be the best one.
    """
    counts = np.bincount(meets, minlength=num_classes)
    return np.where(np.bincount(clients, minlength=num_classes) > 0, counts, 0)


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
