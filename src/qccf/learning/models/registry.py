"""All models by name. To add one, write a file and add a line here. Names can be listed without PyTorch."""

import copy
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from qccf.core.errors import ConfigError
from qccf.core.registry import Registry

if TYPE_CHECKING:
    from torch import nn

MODELS: Registry[Callable[..., "nn.Module"]] = Registry(
    "model",
    {
        "femnist-cnn": "qccf.learning.models.femnist_cnn:FemnistCnn",
        "cifar10-cnn": "qccf.learning.models.cifar10_cnn:Cifar10Cnn",
        "small-cnn": "qccf.learning.models.small_cnn:SmallCnn",
    },
    call="callable(**options)",
)


class Size(NamedTuple):
    """How many values a model has: parameters, and buffers that are averaged with them."""

    parameters: int
    buffers: int


def build_model(model: "str | nn.Module | Callable[..., nn.Module]", seed: int, **options: Any) -> "nn.Module":
    """A model with weights drawn from the seed. A module that exists already is copied with its own weights.

    `model` is a name, a user's own "module:attribute", or the class, function or module itself.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _built(model, options)


def count_values(model: "str | nn.Module | Callable[..., nn.Module]", **options: Any) -> Size:
    """The size of a model. It is built on the meta device, without memory for its weights."""
    import torch

    from qccf.learning.training import checked_parameters, sent_buffers

    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                made = _built(model, options)
        except (RuntimeError, NotImplementedError):  # some models compute with values while they are built
            made = _built(model, options)
        parameters = sum(one.numel() for one in checked_parameters(made))
        return Size(parameters, sum(one.numel() for one in sent_buffers(made).values()))


def model_name(model: "str | nn.Module | Callable[..., nn.Module]") -> str:
    """What a model is called in settings and results."""
    from torch import nn

    if isinstance(model, str):
        return model
    return type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__qualname__", repr(model))


def importable(model: "nn.Module | Callable[..., nn.Module]") -> tuple[Any, str]:
    """A name for a model that was given in Python, and the model, or None where the name is enough to import it."""
    name = model_name(model)
    module = getattr(model, "__module__", "")
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not model:
        return model, name
    return None, f"{module}:{name}"


def _built(model: "str | nn.Module | Callable[..., nn.Module]", options: dict[str, Any]) -> "nn.Module":
    from torch import nn

    name = model_name(model)
    entry = MODELS.find(model) if isinstance(model, str) else model
    if isinstance(entry, nn.Module):
        if options:
            raise ConfigError(f"model {name!r} exists already and takes no options, not {options}: name its class.")
        return copy.deepcopy(entry)
    made = MODELS.build(model, **options) if isinstance(model, str) else entry(**options)
    if not isinstance(made, nn.Module):
        raise ConfigError(f"model {name!r} gave {type(made).__name__}, not a torch.nn.Module: return the module.")
    return made
