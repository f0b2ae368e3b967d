"""Floating-point operations of training on one sample: stored for the models of this package, counted for others."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from qccf.core.errors import ConfigError


class Work(NamedTuple):
    """What training on one sample takes in floating-point operations, and the number of parameters."""

    flops: float
    num_parameters: int


STORED = {
    "femnist-cnn": Work(63_886_592.0, 246_590),
    "cifar10-cnn": Work(79_305_984.0, 576_778),
    "small-cnn": Work(1_151_168.0, 12_414),
}
"""As PyTorch counts them, so that a plan needs no PyTorch; a test compares."""

IMAGES = {
    **dict.fromkeys(("handwriting", "emnist", "femnist", "mnist", "fashion-mnist"), (1, 28, 28)),
    "cifar10": (3, 32, 32),
}
"""Shapes of the samples of our datasets, with which another model is counted."""


def flops_per_sample(model: str, options: Mapping[str, Any], dataset: str, num_parameters: int = 0) -> float:
    """Operations of a forward and a backward pass with one sample; a multiplication and an addition are two.

    `num_parameters` is the size of the model that is trained, 0 where it is not known. Another size than that of
    `model` is another model, as in a Flower app of one's own, whose operations nobody knows here.
    """
    work = _known_work(model, options, dataset)
    if num_parameters not in (0, work.num_parameters):
        raise ConfigError(
            f'cycles_per_sample = "auto" needs the operations of the model that is trained, which has '
            f"{num_parameters:,} parameters and is not learning.model = {model!r} with {work.num_parameters:,}: set "
            "learning.flops_per_sample."
        )
    return work.flops


def _known_work(model: str, options: Mapping[str, Any], dataset: str) -> Work:
    if model in STORED and not options:
        return STORED[model]
    if dataset not in IMAGES:
        raise ConfigError(
            f'cycles_per_sample = "auto" needs the operations of learning.model = {model!r}, which cannot be counted '
            f"with data.dataset = {dataset!r}: set learning.flops_per_sample."
        )
    try:
        from qccf.learning.models.registry import count_values

        return Work(counted_flops(model, options, IMAGES[dataset]), count_values(model, **options).parameters)
    except ImportError:
        raise ConfigError(
            f"the operations of learning.model = {model!r} are counted with torch, which is not installed: set "
            "learning.flops_per_sample, or pip install 'qccf[sim]'."
        ) from None


def counted_flops(model: str, options: Mapping[str, Any], shape: tuple[int, ...]) -> float:
    """What PyTorch's counter finds for convolutions and matrix products, on the meta device, which computes nothing."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from qccf.learning.models.registry import MODELS

    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            made = MODELS.build(model, **options)
            sample, label = torch.zeros(1, *shape), torch.zeros(1, dtype=torch.long)
            with FlopCounterMode(display=False) as counter:
                torch.nn.functional.cross_entropy(made(sample), label).backward()  # type: ignore[no-untyped-call]
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ConfigError(
            f"the operations of learning.model = {model!r} cannot be counted for samples of the shape {shape} "
            f"({reason}): set learning.flops_per_sample."
        ) from None
    total = float(counter.get_total_flops())
    if total <= 0.0:
        raise ConfigError(
            f"learning.model = {model!r} has no operation that is counted: set learning.flops_per_sample."
        )
    return total
