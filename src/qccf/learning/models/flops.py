"""Floating-point operations of a training step, counted by PyTorch."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from qccf.core.errors import ConfigError
from qccf.learning.models.registry import build_model
from qccf.learning.training import model_inputs

COUNTED_SAMPLES = 4


def flops_per_sample(model: str, samples: torch.Tensor, **options: object) -> float:
    """Operations of the forward and the backward pass per sample; `samples` is some samples as a dataset holds them.

    The model is built without memory for its weights, so that layers with kernels of their own count as PyTorch's.
    Multiplications of matrices and convolutions are counted, each multiplication and each addition as one.
    """
    some = samples[:COUNTED_SAMPLES]
    inputs = model_inputs(some).to("meta")
    with torch.device("meta"):
        built = build_model(model, 0, **options).to("meta")
    counter = FlopCounterMode(display=False)
    with counter:
        built(inputs).sum().backward()
    total = float(counter.get_total_flops())
    if total <= 0.0:
        raise ConfigError(f"model {model!r} has no operations that can be counted: state device.cycles_per_sample.")
    return total / len(some)
