"""Time of a training step of each network on one core, with PyTorch's operators and with this project's kernels.

Run: python -m benchmarks.training_step
"""

import time
from collections.abc import Callable
from types import ModuleType

import torch
from torch import nn

from qccf.jobs.memory import keep_freed_memory
from qccf.learning.fast_convolution import convolution, layers
from qccf.learning.models.cifar10_cnn import Cifar10Cnn
from qccf.learning.models.femnist_cnn import FemnistCnn
from qccf.learning.training import FlatModel

STEPS = 10
SAMPLES = 400
NETWORKS: tuple[tuple[Callable[[], nn.Module], tuple[int, ...], int], ...] = (
    (FemnistCnn, (28, 28), 62),
    (Cifar10Cnn, (32, 32, 3), 10),
)
PARTS: dict[str, tuple[tuple[ModuleType, str], ...]] = {
    "matrix products": ((torch, "mm"), (torch, "bmm"), (torch, "baddbmm")),
    "Fourier transforms, with pooling": tuple(
        (convolution, name) for name in ("transform_images", "transform_pooled", "images_of", "pooled_of")
    ),
    "copies and pooling of the layer with one channel": tuple(
        (layers, name) for name in ("_fill_patches", "pool_sums", "spread_pooled")
    ),
}


def timed(work: Callable[..., object], spent: dict[str, float], part: str) -> Callable[..., object]:
    def call(*arguments: object, **options: object) -> object:
        started = time.perf_counter()
        result = work(*arguments, **options)
        spent[part] += time.perf_counter() - started
        return result

    return call


def step_ms(model: FlatModel, shape: tuple[int, ...], classes: int) -> float:
    images = torch.randint(0, 256, (SAMPLES, *shape), dtype=torch.uint8)
    labels = torch.randint(0, classes, (SAMPLES,))
    model.gradient_at(images, labels)
    started = time.perf_counter()
    for _ in range(STEPS):
        model.gradient_at(images, labels)
    return 1e3 * (time.perf_counter() - started) / STEPS


def measure(network: Callable[[], nn.Module], shape: tuple[int, ...], classes: int) -> None:
    model = FlatModel(network(), device="cpu", precision="fp32")
    supported, layers.supported = layers.supported, lambda *_: False
    by_pytorch = step_ms(model, shape, classes)
    layers.supported = supported
    ours = step_ms(model, shape, classes)
    spent = dict.fromkeys(PARTS, 0.0)
    originals = {(module, name): getattr(module, name) for parts in PARTS.values() for module, name in parts}
    for part, functions in PARTS.items():
        for module, name in functions:
            setattr(module, name, timed(getattr(module, name), spent, part))
    measured = step_ms(model, shape, classes)
    for (module, name), original in originals.items():
        setattr(module, name, original)
    print(f"\n| {network.__name__}, a step of {SAMPLES} images, one core | ms |\n|---|---|")
    print(f"| PyTorch's operators | {by_pytorch:.0f} |\n| our kernels | {ours:.0f} ({by_pytorch / ours:.2f} x) |")
    parts = {part: 1e3 * seconds / (STEPS + 1) for part, seconds in spent.items()}
    for part, ms in {**parts, "everything else": measured - sum(parts.values())}.items():
        print(f"| of which {part} | {ms:.0f} |")


def main() -> None:
    keep_freed_memory()
    torch.set_num_threads(1)
    for network in NETWORKS:
        measure(*network)


if __name__ == "__main__":
    main()
