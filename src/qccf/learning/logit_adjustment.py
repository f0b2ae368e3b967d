"""Logit adjustment: what a client adds to its scores in training, because its classes are not those of everybody.

A client with many zeros learns that most images are zeros, and the average of such clients knows less than each of
them. If clients differ only in how often they have each class, then their best scores for class k differ only by
log(p_k/P_k), where p_k is the client's share of the class and P_k its share in all data. With this added, the scores of
all clients are for the same shares P, and their average loses little. Nothing is added in evaluation.

The model's scores may also be for shares M of where it will be used: log(P_k/M_k) is added as well. And a client may
correct a part λ of its own difference only: λ·log(p_k/P_k). Where few classes are common to clients, who therefore
never learn to tell them apart, a part is better in the long run; the whole is better in the first rounds.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

ABSENT = -30.0
"""For a class that the client does not have, whose scores it then leaves as they are."""


@dataclass(frozen=True)
class Adjustment:
    """How many samples of each class all clients have (P), how many the data have that the model will meet (M), and the
    part λ of a client's own difference that is corrected."""

    clients: NDArray[np.int64]
    meets: NDArray[np.int64]
    strength: float = 1.0

    def of(self, labels: torch.Tensor) -> torch.Tensor:
        """What the client with these labels adds to the score of each class; 0 for a class that no client has.

        A class that others have and the client does not counts as half a sample, or, if the whole difference is
        corrected, is left as it is.
        """
        own = np.bincount(labels.numpy(), minlength=len(self.clients)).astype(float)
        learned = (self.clients > 0) & (self.meets > 0)
        added = np.zeros(len(self.clients))
        everybodys, met = (np.log(one[learned] / one.sum()) for one in (self.clients, np.where(learned, self.meets, 0)))
        if self.strength < 1.0:
            own = np.where((own > 0.0) | ~learned, own, 0.5)
        with np.errstate(divide="ignore"):
            mine = np.log(own[learned] / own.sum())
        added[learned] = self.strength * (mine - everybodys) + (everybodys - met)
        return torch.from_numpy(np.maximum(added, ABSENT).astype(np.float32))
