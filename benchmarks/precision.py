"""Test accuracy after some rounds of the same federation, with three kinds of arithmetic.

Run: python -m benchmarks.precision [--preset lean] [--rounds 10] [--seeds 3] [--dataset emnist] [--data-dir DIR]
`lean` has batches of 20. Differences are paired by seed.

They are PyTorch's operators in float32, this project's kernels in float32, and PyTorch's operators with every
activation, weight and gradient of a layer rounded to bf16. The last one emulates `--precision bf16` on processors that
multiply bf16 natively and add in float32.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from qccf.core.intervals import estimate
from qccf.learning.datasets import data_folder, load_dataset
from qccf.learning.fast_convolution import layers
from qccf.learning.models.femnist_cnn import FemnistCnn
from qccf.runtimes.simulator import simulate
from qccf.settings.loading import load_scenario


class Rounded(torch.autograd.Function):
    """Round to bf16, forward and backward."""

    @staticmethod
    def forward(_: Any, values: torch.Tensor) -> torch.Tensor:
        return values.bfloat16().float()

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].bfloat16().float()


def rounded_forward(self: FemnistCnn, images: torch.Tensor) -> torch.Tensor:
    hidden = Rounded.apply(images)
    for layer in (self.first, self.second):
        weight, bias = Rounded.apply(layer.weight), Rounded.apply(layer.bias)
        hidden = Rounded.apply(functional.conv2d(hidden, weight, bias, padding=2))
        hidden = functional.relu(functional.max_pool2d(hidden, 2))
    weight, bias = Rounded.apply(self.head.weight), Rounded.apply(self.head.bias)
    return Rounded.apply(functional.linear(hidden.flatten(1), weight, bias))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=("femnist", "lean"), default="femnist")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--dataset", default="handwriting")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    settings = [f"federation.rounds={options.rounds}", f"data.dataset={options.dataset}"]
    settings += ["codec.name=model"] if options.preset == "femnist" else []
    scenario = load_scenario(options.preset, [*settings, "execution.precision=fp32"])
    dataset = load_dataset(options.dataset, data_folder(options.data_dir), seed=0)
    supported, forward = layers.supported, FemnistCnn.forward
    print(f"| {dataset.name}, {options.preset}, {options.rounds} rounds | test accuracy (%) | against the first |")
    print("|---|---|---|", flush=True)
    first: list[float] = []
    for name in ("PyTorch's operators, float32", "this project's kernels, float32", "every tensor rounded to bf16"):
        layers.supported = (lambda *_: False) if "operators" in name else supported
        FemnistCnn.forward = rounded_forward if "bf16" in name else forward
        runs = [
            simulate(scenario.replaced(federation={"seed": seed}), "qccf", dataset=dataset)
            for seed in range(options.seeds)
        ]
        accuracies = [100.0 * run.summary["test_accuracy"] for run in runs]
        first = first or accuracies
        differences = [mine - theirs for mine, theirs in zip(accuracies, first, strict=True)]
        print(f"| {name} | {estimate(accuracies).shown()} | {estimate(differences).shown('+.2f')} |", flush=True)


if __name__ == "__main__":
    main()
