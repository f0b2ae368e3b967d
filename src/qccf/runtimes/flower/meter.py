"""Measures G² and σ² of any PyTorch training loop, from the gradients that it computes anyway."""

from typing import Any

import torch

from qccf.learning.training import spread


class Meter:
    """Collects the gradient of every step of an optimizer; each step is one mini-batch.

    G² is the squared norm of their mean and σ² their spread around it. The model changes between the steps.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._sums: dict[torch.Tensor, torch.Tensor] = {}
        self._sum_of_squares = 0.0
        self._count = 0
        optimizer.register_step_pre_hook(self._add_gradient)

    def _add_gradient(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            gradient = p.grad.detach()
            self._sums[p] = gradient.clone() if p not in self._sums else self._sums[p].add_(gradient)
            self._sum_of_squares += float(gradient.square().sum())
        self._count += 1

    def metrics(self, *, num_examples: int, loss: float) -> dict[str, float | int]:
        """The metrics that the mod `quantize` needs. `loss` is the loss before the first step: the server compares it
        between clients."""
        mean_sq = sum(float((total / self._count).square().sum()) for total in self._sums.values())
        return {
            "num-examples": num_examples,
            "loss": loss,
            "gradient-norm-sq": mean_sq,
            "gradient-variance": spread(self._sum_of_squares, mean_sq, self._count),
        }
