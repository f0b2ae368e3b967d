"""All local optimizers by name. Clients keep no state, so each round begins with a fresh optimizer.

An optimizer is built as callable(parameters, learning_rate, momentum, weight_decay). To add one, add a line here.
"""

from collections.abc import Callable, Iterable

import torch

from qccf.core.errors import ConfigError
from qccf.core.registry import Registry

Parameters = Iterable[torch.nn.Parameter]
MakeOptimizer = Callable[[Parameters], torch.optim.Optimizer]


def sgd(parameters: Parameters, learning_rate: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, weight_decay=weight_decay)


def adamw(parameters: Parameters, learning_rate: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    if momentum:
        raise ConfigError(f'learning.momentum = {momentum:g} has no effect with "adamw": leave it at 0.')
    return torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)


OPTIMIZERS: Registry[Callable[..., torch.optim.Optimizer]] = Registry(
    "optimizer", {"sgd": sgd, "adamw": adamw}, call="callable(parameters, learning_rate, momentum, weight_decay)"
)


def optimizer_maker(name: str, *, learning_rate: float, momentum: float, weight_decay: float) -> MakeOptimizer | None:
    """A function that makes a client's optimizer; None for plain SGD, which needs no state."""
    if name == "sgd" and momentum == 0.0 and weight_decay == 0.0:
        return None
    OPTIMIZERS.find(name)

    def make(parameters: Parameters) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = OPTIMIZERS.build(name, parameters, learning_rate, momentum, weight_decay)
        return made

    return make
