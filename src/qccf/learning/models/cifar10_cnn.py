"""The paper's network for CIFAR-10."""

import torch
from torch import nn
from torch.nn import functional

from qccf.learning.fast_convolution.layers import Conv5x5


class Cifar10Cnn(nn.Module):
    """Two 5×5 convolutions (64 channels each) and three linear layers: 576,778 parameters. Paper: Section VI.

    Pooling comes before ReLU. The result is the same in both orders, and ReLU has a quarter of the work.
    """

    deterministic = True

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 5)
        self.second = Conv5x5(64, 64)
        self.head = nn.Sequential(nn.Linear(1024, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(functional.max_pool2d(self.first(images), 3, 2, ceil_mode=True))
        hidden = functional.relu(functional.max_pool2d(self.second(hidden), 3, 2))
        return self.head(hidden.flatten(1))
