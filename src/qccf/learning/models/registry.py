"""All models by name. To add one, write a file and add a line here. Names can be listed without PyTorch."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qccf.core.registry import Registry

if TYPE_CHECKING:
    from torch import nn

MODELS: Registry[Callable[..., "nn.Module"]] = Registry(
    "model",
    {
        "femnist-cnn": "qccf.learning.models.femnist_cnn:FemnistCnn",
        "cifar10-cnn": "qccf.learning.models.cifar10_cnn:Cifar10Cnn",
    },
    call="callable(**options)",
)


def build_model(name: str, seed: int, **options: Any) -> "nn.Module":
    """The model `name`, or a user's own `module:callable`, with weights drawn from the seed."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = MODELS.build(name, **options)
        return model


def count_parameters(name: str, **options: Any) -> int:
    """The number of parameters of a model. It is built on the meta device, without memory for its weights."""
    import torch

    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                model: nn.Module = MODELS.build(name, **options)
        except (RuntimeError, NotImplementedError):  # some models compute with values while they are built
            model = MODELS.build(name, **options)
        return sum(parameter.numel() for parameter in model.parameters())
