"""Local training of a client: steps of mini-batch SGD, and the statistics measured during them.

All parameters of a model are in one flat vector, and so are their gradients. A step, a norm and an upload are then one
operation each. Paper: Section II-A, steps 3 and 5.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from qccf.core.errors import ConfigError
from qccf.core.steps import steps_per_epoch
from qccf.learning.optimizers import MakeOptimizer
from qccf.learning.randomness import OwnRandomness
from qccf.learning.results import Flat, LocalResult, LocalStatistics
from qccf.learning.transforms import Transform

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From scores [sample, class] and labels [sample] to the mean loss."""

PROBED_BATCHES = 8
"""The most batches that a probe measures. Many small ones would cost as much as a round, and no joules count them."""


class FlatModel:
    """A model whose parameters and gradients are views into two flat tensors.

    The vector that is loaded and read is [parameters | buffers]. Its buffers are the floating-point ones of the model's
    state, such as running averages. All other buffers, such as counters, return to their first values with each load,
    so that a client's result does not depend on what the model was used for before.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        device: str,
        precision: str,
        loss: Loss = functional.cross_entropy,
        transforms: Sequence[Transform] = (),
    ) -> None:
        self.device = torch.device(device)
        self.bf16 = precision == "bf16"
        self.model = model.to(self.device)
        self.loss = loss
        self.transforms = transforms
        parameters = checked_parameters(model)
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
        self._sent = list(sent_buffers(model))
        others = {name for name, _ in model.named_buffers()} - set(self._sent)
        self._first = {name: model.get_buffer(name).clone() for name in sorted(others)}

    def load(self, vector: Flat) -> None:
        """Set parameters and buffers."""
        values = torch.from_numpy(vector)
        self.weights.copy_(values[: self.size])
        offset = self.size
        with torch.no_grad():
            for name in self._sent:
                buffer = self.model.get_buffer(name)
                buffer.copy_(values[offset : offset + buffer.numel()].view(buffer.shape))
                offset += buffer.numel()
            for name, first in self._first.items():
                self.model.get_buffer(name).copy_(first)

    def read(self) -> Flat:
        """Parameters and buffers as one vector."""
        weights = self.weights.detach().cpu().numpy()
        return np.concatenate([weights, *(self._buffer(name) for name in self._sent)])

    def _buffer(self, name: str) -> Flat:
        return self.model.get_buffer(name).detach().float().cpu().numpy().reshape(-1)

    def randomness(self, seed: int) -> AbstractContextManager[object]:
        """The context in which the model's random layers draw from a stream with this seed.

        A class that states `deterministic = True` promises to draw nothing, which saves the look at each operation.
        """
        return nullcontext() if getattr(self.model, "deterministic", False) else OwnRandomness(seed, self.device)

    def logits(self, samples: torch.Tensor, rng: np.random.Generator | None = None) -> torch.Tensor:
        """Class scores of samples as a dataset holds them; `rng` is for random transforms, which need it."""
        inputs = model_inputs(samples.to(self.device))
        for transform in self.transforms:
            if rng is not None or not transform.random:
                inputs = transform(inputs, rng)
        if not self.bf16:
            return self.model(inputs)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            return self.model(inputs).float()

    def gradient_at(
        self,
        samples: torch.Tensor,
        labels: torch.Tensor,
        rng: np.random.Generator | None = None,
        adjustment: torch.Tensor | None = None,
    ) -> float:
        """Write the gradient of the mean loss to `gradients`; return the loss. `adjustment` is added to the scores of
        the first classes."""
        self.gradients.zero_()
        scores = self.logits(samples, rng)
        if adjustment is not None:
            scores = scores + functional.pad(adjustment.to(self.device), (0, scores.shape[1] - len(adjustment)))
        loss = self.loss(scores, labels.to(self.device))
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())


def model_inputs(samples: torch.Tensor) -> torch.Tensor:
    """Images as [sample, channel, height, width] from 0 to 1; features and token ids as they are."""
    if samples.dtype != torch.uint8:
        return samples
    scaled = samples.float().div_(255.0)
    scaled = scaled.unsqueeze(1) if scaled.ndim == 3 else scaled.permute(0, 3, 1, 2)
    return scaled.contiguous(memory_format=torch.channels_last)


def checked_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of a model; refuses a model whose parameters do not exist yet."""
    parameters = list(model.parameters())
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in parameters):
        raise ConfigError(
            f"model {type(model).__name__} has lazy layers, whose parameters cannot be counted before the first batch: "
            "state their input sizes."
        )
    if not parameters:
        raise ConfigError(f"model {type(model).__name__} has no parameters to train: give it a layer.")
    return parameters


def sent_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that are averaged with the weights: floating-point numbers that belong to the model's state."""
    state = model.state_dict(keep_vars=True)
    return {name: one for name, one in model.named_buffers() if name in state and one.is_floating_point()}


def local_update(
    model: FlatModel,
    start: Flat,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    local_updates: int,
    local_epochs: int,
    batch_size: int = 0,
    learning_rate: float,
    rng: np.random.Generator,
    transform_rng: np.random.Generator | None = None,
    make_optimizer: MakeOptimizer | None = None,
    adjustment: torch.Tensor | None = None,
) -> LocalResult:
    """τ steps in τ_e epochs. Each epoch shuffles the client's data and cuts them into equal batches, or into batches of
    `batch_size` and a smaller last one.

    Without `make_optimizer` a step is plain SGD, and the mean gradient of an epoch follows from its first and last
    weights. With another optimizer it does not, and the gradients are summed.
    """
    model.load(start)
    model.model.train()
    optimizer = None if make_optimizer is None else make_optimizer(_trained(model))
    epochs = steps_per_epoch(len(labels), local_updates=local_updates, local_epochs=local_epochs, batch_size=batch_size)
    losses: list[float] = []
    norms_sq, variances = [], []
    for steps in epochs:
        before = model.weights.clone()
        total = torch.zeros_like(model.gradients) if optimizer is not None else None
        sum_of_squares = 0.0
        for batch in batches(len(labels), steps, rng, batch_size):
            losses.append(model.gradient_at(images[batch], labels[batch], transform_rng, adjustment))
            sum_of_squares += float(model.gradients.dot(model.gradients))
            if optimizer is None or total is None:
                model.weights.add_(model.gradients, alpha=-learning_rate)
            else:
                total += model.gradients
                optimizer.step()
        mean = (before - model.weights) / (learning_rate * steps) if total is None else total / steps
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
    batch_size: int = 0,
    learning_rate: float,
    rng: np.random.Generator,
    transform_rng: np.random.Generator | None = None,
    make_optimizer: MakeOptimizer | None = None,
    adjustment: torch.Tensor | None = None,
) -> LocalResult:
    """The same statistics for a fixed model, from the gradients of one epoch, or of its first batches, without updates.

    The returned weights are those after the local updates if every gradient were the mean of these gradients. The
    model computes as in training, and what that changes in its buffers is discarded.
    """
    model.load(start)
    model.model.train()
    epochs = steps_per_epoch(len(labels), local_updates=local_updates, local_epochs=local_epochs, batch_size=batch_size)
    probed = batches(len(labels), epochs[0], rng, batch_size)[:PROBED_BATCHES]
    num_batches = len(probed)
    total = torch.zeros_like(model.gradients)
    sum_of_squares, losses = 0.0, []
    for batch in probed:
        losses.append(model.gradient_at(images[batch], labels[batch], transform_rng, adjustment))
        total += model.gradients
        sum_of_squares += float(model.gradients.dot(model.gradients))
    mean = total / num_batches
    mean_sq = float(mean.dot(mean))
    statistics = LocalStatistics(
        gradient_norm_sq=mean_sq,
        gradient_variance=spread(sum_of_squares, mean_sq, num_batches),
        weight_range=float(np.abs(start[: model.size]).max()),
        loss=losses[0],
    )
    if make_optimizer is None:
        moved = (model.weights - learning_rate * sum(epochs) * mean).cpu().numpy()
    else:
        optimizer = make_optimizer(_trained(model))
        model.gradients.copy_(mean)
        for _ in range(sum(epochs)):
            optimizer.step()
        moved = model.weights.cpu().numpy().copy()
    model.load(start)
    return LocalResult(np.concatenate([moved, start[model.size :]]), statistics)


def _trained(model: FlatModel) -> list[nn.Parameter]:
    return [parameter for parameter in model.model.parameters() if parameter.requires_grad]


def batches(num_samples: int, count: int, rng: np.random.Generator, size: int = 0) -> list[torch.Tensor]:
    """All samples, shuffled and cut into `count` batches: nearly equal ones, or of `size` with a smaller last one.

    If there are fewer samples than batches, they repeat.
    """
    order = rng.permutation(num_samples)
    if size:
        return [torch.from_numpy(order[start : start + size]) for start in range(0, num_samples, size)]
    if num_samples < count:
        order = np.resize(order, count)
    return [torch.from_numpy(part) for part in np.array_split(order, count)]


def spread(sum_of_squares: float, mean_sq: float, count: int) -> float:
    """Unbiased variance of `count` vectors from the sum of their squared norms and the squared norm of their mean."""
    return max(sum_of_squares - count * mean_sq, 0.0) / (count - 1) if count > 1 else 0.0


def score(model: FlatModel, weights: Flat, images: torch.Tensor, labels: torch.Tensor) -> tuple[int, float]:
    """The number of correctly classified samples, and the sum of the losses."""
    model.load(weights)
    model.model.eval()
    with torch.inference_mode():
        logits, answers = model.logits(images), labels.to(model.device)
        right = int((logits.argmax(1) == answers).sum())
        if model.loss is functional.cross_entropy:
            return right, float(functional.cross_entropy(logits, answers, reduction="sum"))
        return right, float(model.loss(logits, answers)) * len(answers)
