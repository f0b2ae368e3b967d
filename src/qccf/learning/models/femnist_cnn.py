"""The paper's network for FEMNIST."""

import torch
from torch import nn
from torch.nn import functional

from qccf.core.errors import ConfigError
from qccf.learning.fast_convolution.layers import ConvPoolRelu


class FemnistCnn(nn.Module):
    """Two 5×5 convolutions (32 and 64 channels) and one linear layer: 246,590 parameters. Paper: Section VI.

    With `dropout` each input of the linear layer is 0 with that probability in training; the paper has none.
    """

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise ConfigError(f"learning.model_options: dropout = {dropout} is not at least 0 and below 1.")
        self.first = ConvPoolRelu(1, 32)
        self.second = ConvPoolRelu(32, 64)
        self.head = nn.Linear(3136, 62)
        self.dropout = dropout
        self.deterministic = dropout == 0.0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.second(self.first(images)).flatten(1)
        return self.head(functional.dropout(hidden, self.dropout, self.training) if self.dropout else hidden)
