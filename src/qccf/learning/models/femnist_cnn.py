"""The paper's network for FEMNIST."""

import torch
from torch import nn

from qccf.learning.fast_convolution.layers import ConvPoolRelu


class FemnistCnn(nn.Module):
    """Two 5×5 convolutions (32 and 64 channels) and one linear layer: 246,590 parameters. Paper: Section VI."""

    deterministic = True

    def __init__(self) -> None:
        super().__init__()
        self.first = ConvPoolRelu(1, 32)
        self.second = ConvPoolRelu(32, 64)
        self.head = nn.Linear(3136, 62)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(images)).flatten(1))
