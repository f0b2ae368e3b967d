"""The paper's two networks, and how a name in the config becomes a model.

Pooling comes before ReLU: the largest of some values, cut at zero, is the same in either order, and a quarter (or a
ninth) of the element-wise work remains.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from qccf.core.registry import Registry
from qccf.learning.fast_convolution.layers import Conv5x5, ConvPoolRelu


class FemnistCnn(nn.Module):
    """Two 5×5 convolutions (32 and 64 channels) and one linear layer: 246,590 parameters. Paper: Section VI."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ConvPoolRelu(1, 32)
        self.second = ConvPoolRelu(32, 64)
        self.head = nn.Linear(3136, 62)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(images)).flatten(1))


class Cifar10Cnn(nn.Module):
    """Two 5×5 convolutions (64 channels each) and three linear layers: 576,778 parameters. Paper: Section VI."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 5)
        self.second = Conv5x5(64, 64)
        self.head = nn.Sequential(nn.Linear(1024, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(functional.max_pool2d(self.first(images), 3, 2, ceil_mode=True))
        hidden = functional.relu(functional.max_pool2d(self.second(hidden), 3, 2))
        return self.head(hidden.flatten(1))


MODELS: Registry[Callable[..., nn.Module]] = Registry(
    "model", {"femnist-cnn": FemnistCnn, "cifar10-cnn": Cifar10Cnn}, call="Class()"
)


def build_model(name: str, seed: int) -> nn.Module:
    """The model of that name, or a user's own as `module:callable`, with weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = MODELS.build(name)
        return model


def count_parameters(name: str) -> int:
    """The number of parameters of a model; no memory is allocated for them."""
    with torch.device("meta"):
        model: nn.Module = MODELS.build(name)
    return sum(p.numel() for p in model.parameters())
