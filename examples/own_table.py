"""A table of one's own, and an MLP for it: 12 features, three classes on curved surfaces.

qccf run quick --set data.dataset=examples.own_table:table --set learning.model=examples.own_table:Mlp \
    --set "data.transform=['standardise']" --set learning.optimizer=adamw --set learning.learning_rate=0.01
"""

import numpy as np
from torch import nn

from qccf.learning.datasets import Dataset


def table(samples: int = 4000, features: int = 12) -> Dataset:
    """Features of very different scales; the class follows from two products of them."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(samples, features))
    labels = np.digitize(values[:, 0] * values[:, 1] + values[:, 2], [-0.7, 0.7]).astype(np.int64)
    scaled = (values * np.logspace(-2, 2, features)).astype(np.float32)
    train = slice(0, samples * 3 // 4)
    test = slice(samples * 3 // 4, samples)
    return Dataset(
        name="own-table",
        train_images=scaled[train],
        train_labels=labels[train],
        train_writers=None,
        test_images=scaled[test],
        test_labels=labels[test],
        class_names=("low", "middle", "high"),
        synthetic=True,
        source="a made table of curved surfaces",
    )


class Mlp(nn.Module):
    def __init__(self, features: int = 12, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, rows):
        return self.layers(rows)
