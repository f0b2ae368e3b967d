"""All losses by name. A loss is called with scores [sample, class], labels [sample] and its options; it returns the
mean over the samples. To add one, write a function and add a line here."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from qccf.core.errors import ConfigError
from qccf.core.registry import Registry

LOSSES: Registry[Callable[..., torch.Tensor]] = Registry(
    "loss", {"cross-entropy": functional.cross_entropy}, call="callable(scores, labels, **options)"
)


def build_loss(name: str, options: dict[str, Any]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The loss `name`, or a user's own "module:callable", with its options."""
    found = LOSSES.find(name)
    if found is functional.cross_entropy:
        unknown = sorted(set(options) - {"label_smoothing"})
        if unknown:
            raise ConfigError(f"learning.loss_options: {unknown[0]!r} is not one of label_smoothing.")
        return partial(found, **options) if options else found
    return partial(_scalar, name, partial(found, **options))


def _scalar(
    name: str,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    scores: torch.Tensor,
    labels: torch.Tensor,
) -> torch.Tensor:
    value = loss(scores, labels)
    if not isinstance(value, torch.Tensor) or value.ndim:
        shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise ConfigError(f"loss {name!r} gave {shape}, but one number is needed: return the mean over the samples.")
    return value
