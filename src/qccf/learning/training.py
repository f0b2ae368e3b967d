"""Local training of a client: steps of mini-batch SGD, and the statistics measured during them.

All parameters of a model are in one flat vector, and so are their gradients. A step, a norm and an upload are then one
operation each. Paper: Section II-A, steps 3 and 5.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from qccf.learning.results import Flat, LocalResult, LocalStatistics


class FlatModel:
    """A model whose parameters and gradients are views into two flat tensors."""

    def __init__(self, model: nn.Module, *, device: str, precision: str) -> None:
        self.device = torch.device(device)
        self.bf16 = precision == "bf16"
        self.model = model.to(self.device)
        parameters = list(model.parameters())
        self.size = sum(p.numel() for p in parameters)
        self.weights = torch.empty(self.size, device=self.device)
        self.gradients = torch.zeros(self.size, device=self.device)
        offset = 0
        for p in parameters:
            piece = slice(offset, offset + p.numel())
            self.weights[piece] = p.detach().reshape(-1)
            p.data = self.weights[piece].view(p.shape)
            p.grad = self.gradients[piece].view(p.shape)
            offset += p.numel()

    def load(self, weights: Flat) -> None:
        self.weights.copy_(torch.from_numpy(weights))

    def read(self) -> Flat:
        return self.weights.detach().cpu().numpy().copy()

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Class scores of uint8 images [sample, height, width(, colour)]."""
        scaled = images.to(self.device).float().div_(255.0)
        scaled = scaled.unsqueeze(1) if scaled.ndim == 3 else scaled.permute(0, 3, 1, 2)
        scaled = scaled.contiguous(memory_format=torch.channels_last)
        if not self.bf16:
            return self.model(scaled)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            return self.model(scaled).float()

    def gradient_at(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Write the gradient of the mean loss to `gradients`; return the loss."""
        self.gradients.zero_()
        loss = functional.cross_entropy(self.logits(images), labels.to(self.device))
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())


def local_update(
    model: FlatModel,
    start: Flat,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    local_updates: int,
    local_epochs: int,
    learning_rate: float,
    rng: np.random.Generator,
) -> LocalResult:
    """τ steps in τ_e epochs. Each epoch shuffles the client's data and cuts them into equal batches."""
    model.load(start)
    steps = local_updates // local_epochs
    losses: list[float] = []
    norms_sq, variances = [], []
    for _ in range(local_epochs):
        before = model.weights.clone()
        sum_of_squares = 0.0
        for batch in batches(len(labels), steps, rng):
            losses.append(model.gradient_at(images[batch], labels[batch]))
            sum_of_squares += float(model.gradients.dot(model.gradients))
            model.weights.add_(model.gradients, alpha=-learning_rate)
        mean = (before - model.weights) / (learning_rate * steps)
        mean_sq = float(mean.dot(mean))
        norms_sq.append(mean_sq)
        variances.append(spread(sum_of_squares, mean_sq, steps))
    statistics = LocalStatistics(
        gradient_norm_sq=max(norms_sq),
        gradient_variance=float(np.mean(variances)),
        weight_range=float(model.weights.abs().max()),
        loss=losses[0],
    )
    return LocalResult(model.read(), statistics)


def probe(
    model: FlatModel,
    start: Flat,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    local_updates: int,
    local_epochs: int,
    learning_rate: float,
    rng: np.random.Generator,
) -> LocalResult:
    """The same statistics for a fixed model, from the gradients of one epoch without updates.

    The returned weights are those after the local updates if every gradient were the mean of these gradients.
    """
    model.load(start)
    num_batches = local_updates // local_epochs
    total = torch.zeros_like(model.gradients)
    sum_of_squares, losses = 0.0, []
    for batch in batches(len(labels), num_batches, rng):
        losses.append(model.gradient_at(images[batch], labels[batch]))
        total += model.gradients
        sum_of_squares += float(model.gradients.dot(model.gradients))
    mean = total / num_batches
    mean_sq = float(mean.dot(mean))
    statistics = LocalStatistics(
        gradient_norm_sq=mean_sq,
        gradient_variance=spread(sum_of_squares, mean_sq, num_batches),
        weight_range=float(np.abs(start).max()),
        loss=losses[0],
    )
    return LocalResult((model.weights - learning_rate * local_updates * mean).cpu().numpy(), statistics)


def batches(num_samples: int, count: int, rng: np.random.Generator) -> list[torch.Tensor]:
    """All samples, shuffled and cut into `count` nearly equal batches. If there are fewer samples, they repeat."""
    order = rng.permutation(num_samples)
    if num_samples < count:
        order = np.resize(order, count)
    return [torch.from_numpy(part) for part in np.array_split(order, count)]


def spread(sum_of_squares: float, mean_sq: float, count: int) -> float:
    """Unbiased variance of `count` vectors from the sum of their squared norms and the squared norm of their mean."""
    return max(sum_of_squares - count * mean_sq, 0.0) / (count - 1) if count > 1 else 0.0


def score(model: FlatModel, weights: Flat, images: torch.Tensor, labels: torch.Tensor) -> tuple[int, float]:
    """The number of correctly classified samples, and the sum of the losses."""
    model.load(weights)
    with torch.inference_mode():
        logits, answers = model.logits(images), labels.to(model.device)
        right = int((logits.argmax(1) == answers).sum())
        return right, float(functional.cross_entropy(logits, answers, reduction="sum"))
