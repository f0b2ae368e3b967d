"""A small ResNet with BatchNorm or GroupNorm on images of one's own: four shapes in noise.

qccf run quick --set data.dataset=examples.own_resnet:shapes --set learning.model=examples.own_resnet:ResNet \
    --set "data.transform=['standardise', 'flip']"
qccf run quick --set data.dataset=examples.own_resnet:shapes --set learning.model=examples.own_resnet:ResNet \
    --set "learning.model_options={norm = 'group'}"
"""

import numpy as np
import torch
from torch import nn

from qccf.learning.datasets import Dataset


def shapes(samples: int = 3200, side: int = 12) -> Dataset:
    """A horizontal bar, a vertical bar, a cross or a square, at a random place, in noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, samples)
    images = rng.integers(0, 90, (samples, side, side))
    for image, label, (y, x) in zip(images, labels, rng.integers(3, side - 3, (samples, 2)), strict=True):
        if label in (0, 2):
            image[y, x - 3 : x + 4] += 150
        if label in (1, 2):
            image[y - 3 : y + 4, x] += 150
        if label == 3:
            image[y - 1 : y + 2, x - 1 : x + 2] += 150
    images = np.clip(images, 0, 255).astype(np.uint8)
    cut = samples * 3 // 4
    return Dataset(
        name="own-shapes",
        train_images=images[:cut],
        train_labels=labels[:cut],
        train_writers=None,
        test_images=images[cut:],
        test_labels=labels[cut:],
        class_names=("horizontal", "vertical", "cross", "square"),
        synthetic=True,
        source="made images of four shapes in noise",
    )


def normalized(norm: str, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(4, channels)


class Block(nn.Module):
    def __init__(self, channels: int, norm: str) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            normalized(norm, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            normalized(norm, channels),
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.relu(hidden + self.inner(hidden))


class ResNet(nn.Module):
    def __init__(self, channels: int = 16, norm: str = "batch") -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, bias=False), normalized(norm, channels), nn.ReLU()
        )
        self.blocks = nn.Sequential(Block(channels, norm), nn.MaxPool2d(2), Block(channels, norm))
        self.head = nn.Linear(channels, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).amax((2, 3)))
