"""What an attack is. An attacker trains like everybody else, so it spends the same energy, and then cheats."""

import numpy as np
from numpy.typing import NDArray

from qccf.learning.results import Flat, LocalResult

Labels = NDArray[np.int64]


class Attack:
    """No attack; others change what they need. An attack has no state; randomness comes from the client's stream."""

    def labels(self, labels: Labels, num_classes: int) -> Labels:
        """The labels that the client trains with."""
        return labels

    def result(self, result: LocalResult, received: Flat, rng: np.random.Generator) -> LocalResult:
        """What the client makes of its honest result before it is encoded. `received` is the global model."""
        return result
