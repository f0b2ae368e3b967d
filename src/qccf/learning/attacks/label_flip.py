"""Flipped labels: the client trains honestly on wrong answers."""

import numpy as np

from qccf.learning.attacks.protocol import Attack, Labels


class LabelFlip(Attack):
    """Class k of K becomes K − 1 − k."""

    def labels(self, labels: Labels, num_classes: int) -> Labels:
        return np.asarray(num_classes - 1 - labels, dtype=labels.dtype)
