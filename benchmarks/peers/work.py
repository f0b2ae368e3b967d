"""The work of every contestant: 10 clients × 1,200 images, two epochs in batches of 400, the 246,590-parameter network.

The environment variables BATCH (a divisor of 1,200) and CLIENTS (for a trial with fewer) state other numbers. It uses
only PyTorch, because it also runs in the environments of the peers.
"""

import os

import torch
from torch import nn
from torch.nn import functional

SAMPLES, EPOCHS, LEARNING_RATE = 1200, 2, 0.1
CLIENTS = int(os.environ.get("CLIENTS", "10"))
BATCH = int(os.environ.get("BATCH", "400"))


class Network(nn.Module):
    """Convolution, ReLU, pooling: the usual order of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 32, 5, padding=2)
        self.second = nn.Conv2d(32, 64, 5, padding=2)
        self.head = nn.Linear(3136, 62)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.max_pool2d(functional.relu(self.first(images)), 2)
        hidden = functional.max_pool2d(functional.relu(self.second(hidden)), 2)
        return self.head(hidden.flatten(1))


def client_data(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(client)
    images = torch.rand((SAMPLES, 1, 28, 28), generator=generator)
    return images, torch.randint(0, 62, (SAMPLES,), generator=generator)


def train(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, seed: int) -> None:
    """Two epochs of equal batches."""
    optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for batch in torch.randperm(SAMPLES, generator=generator).split(BATCH):
            optimiser.zero_grad()
            functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimiser.step()
