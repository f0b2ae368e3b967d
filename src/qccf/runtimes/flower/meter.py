"""G² and σ² of any PyTorch training loop, measured from the gradients that it computes anyway."""

from typing import Any

import torch

from qccf.learning.training import spread


class Meter:
    """Watches an optimizer: every step that it takes is one mini-batch gradient.

    G² is the squared norm of their mean, σ² their spread around it, both with the model moving under them.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._sums: dict[torch.Tensor, torch.Tensor] = {}
        self._sum_of_squares = 0.0
        self._count = 0
        optimizer.register_step_pre_hook(self._note)

    def _note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            gradient = p.grad.detach()
            self._sums[p] = gradient.clone() if p not in self._sums else self._sums[p].add_(gradient)
            self._sum_of_squares += float(gradient.square().sum())
        self._count += 1

    def metrics(self, *, num_examples: int, loss: float) -> dict[str, float | int]:
        """What the mod asks of a training function. `loss` is that before the first step, as the server compares it
        over clients."""
        mean_sq = sum(float((total / self._count).square().sum()) for total in self._sums.values())
        return {
            "num-examples": num_examples,
            "loss": loss,
            "gradient-norm-sq": mean_sq,
            "gradient-variance": spread(self._sum_of_squares, mean_sq, self._count),
        }
