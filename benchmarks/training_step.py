"""Where a training step goes: one step of 400 images on one core, by PyTorch's operators and by our kernels.

Run: python -m benchmarks.training_step
"""

import time
from collections.abc import Callable
from types import ModuleType

import torch

from qccf.learning import convolution, winograd
from qccf.learning.models import FemnistCnn
from qccf.learning.training import FlatModel
from qccf.simulation.clients import keep_freed_memory

STEPS = 10
PARTS: dict[str, tuple[tuple[ModuleType, str], ...]] = {
    "matrix products": ((torch, "bmm"), (torch, "baddbmm")),
    "Winograd's transforms, with pooling": tuple(
        (winograd, name)
        for name in ("transform_images", "transform_images_adjoint", "pool_products", "pool_products_adjoint")
    ),
    "the first layer": ((convolution, "_forward"), (convolution, "_backward")),
}


def timed(work: Callable[..., object], spent: dict[str, float], part: str) -> Callable[..., object]:
    def call(*arguments: object, **options: object) -> object:
        started = time.perf_counter()
        result = work(*arguments, **options)
        spent[part] += time.perf_counter() - started
        return result

    return call


def step_ms(model: FlatModel) -> float:
    images = torch.randint(0, 256, (400, 28, 28), dtype=torch.uint8)
    labels = torch.randint(0, 62, (400,))
    model.gradient_at(images, labels)
    started = time.perf_counter()
    for _ in range(STEPS):
        model.gradient_at(images, labels)
    return 1e3 * (time.perf_counter() - started) / STEPS


def main() -> None:
    keep_freed_memory()
    torch.set_num_threads(1)
    model = FlatModel(FemnistCnn(), device="cpu", precision="fp32")
    fits = convolution._fits
    convolution._fits = lambda _: False
    plain = step_ms(model)
    convolution._fits = fits
    ours = step_ms(model)
    spent = dict.fromkeys(PARTS, 0.0)
    for part, functions in PARTS.items():
        for module, name in functions:
            setattr(module, name, timed(getattr(module, name), spent, part))
    watched = step_ms(model)
    print("| a step of 400 images, one core | ms |\n|---|---|")
    print(f"| PyTorch's operators | {plain:.0f} |\n| our kernels | {ours:.0f} |")
    parts = {part: 1e3 * seconds / (STEPS + 1) for part, seconds in spent.items()}
    for part, ms in {**parts, "everything else": watched - sum(parts.values())}.items():
        print(f"| of which {part} | {ms:.0f} |")


if __name__ == "__main__":
    main()
