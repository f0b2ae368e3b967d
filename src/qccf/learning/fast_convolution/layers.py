"""PyTorch layers for fast 5×5 convolutions on CPUs, one of them with 2×2 max-pooling and ReLU in the same layer.

For float32 on a CPU the layers use the kernels of this package: one matrix product for one input channel, Fourier
transforms for more, with pooling and ReLU in the same pass over memory. In all other cases (other devices, bf16, other
shapes) they use PyTorch's operators, which compute the same function.
"""

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from qccf.learning.fast_convolution.convolution import Convolve, ConvolvePoolRelu, fits
from qccf.learning.fast_convolution.fourier import F, pool_sums, spread_pooled

_BLOCK = 10
"""Samples at a time, so that their patches and sums stay in the cache."""


@numba.njit(nogil=True, cache=True)
def _fill_patches(images: Any, patches: Any) -> None:
    """patches[5·y + x, n, i, j] = image n, with two zeros around it, at row i + y and column j + x."""
    samples, height, width = images.shape
    padded = np.zeros((height + 4, width + 4), F)
    for n in range(samples):
        padded[2:-2, 2:-2] = images[n]
        for y in range(5):
            for x in range(5):
                for i in range(height):
                    source, target = padded[i + y, x:], patches[5 * y + x, n, i]
                    for j in range(width):
                        target[j] = source[j]


class _FromOneChannel(torch.autograd.Function):
    """Convolution, pooling and ReLU of one-channel images [sample, row, column] that need no gradient.

    The 25 shifted copies of the images make the convolution one matrix product.
    """

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        samples, height, width = images.shape
        pooled = torch.empty(samples, height // 2, width // 2, len(bias))
        passed = np.empty(pooled.shape, np.uint8)
        kernel = weight.reshape(len(bias), 25).T.contiguous()
        for part, patches, sums in _patches(images, len(bias)):
            torch.mm(patches.T, kernel, out=sums.view(-1, len(bias)))
            pool_sums(sums.numpy(), bias.numpy(), pooled[part].numpy(), passed[part])
        ctx.save_for_backward(images)
        ctx.passed = passed
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
        (images,) = ctx.saved_tensors
        channels = ctx.passed.shape[3]
        received = gradients[0].contiguous()
        kernel, bias = torch.zeros(25, channels), torch.zeros(channels)
        for part, patches, sums in _patches(images, channels):
            spread_pooled(received[part].numpy(), ctx.passed[part], sums.numpy(), bias.numpy())
            kernel.addmm_(patches, sums.view(-1, channels))
        return None, kernel.T.reshape(channels, 1, 5, 5), bias


def _patches(images: torch.Tensor, channels: int) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """The blocks of samples, each with its patches [place in the kernel, value] and memory for sums or their gradients
    [sample, row, column, channel]."""
    samples, height, width = images.shape
    for start in range(0, samples, _BLOCK):
        part = slice(start, min(start + _BLOCK, samples))
        size = part.stop - start
        if start == 0 or size < _BLOCK:  # only the last block may be smaller
            patches = torch.empty(25, size, height, width)
            sums = torch.empty(size, height, width, channels)
        _fill_patches(images[part].numpy(), patches.numpy())
        yield part, patches.view(25, -1), sums


class ConvPoolRelu(nn.Conv2d):
    """5×5 convolution with padding 2 of images [sample, channel, row, column], then 2×2 max-pooling, then ReLU."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 5, padding=2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not (supported(images, self) and images.shape[2] % 2 == 0 and images.shape[3] % 2 == 0):
            return self._by_pytorch(images)
        if self.in_channels == 1 and not images.requires_grad:
            pooled = _FromOneChannel.apply(images[:, 0].contiguous(), self.weight, self.bias)  # type: ignore[no-untyped-call]
        elif fits(self, images.shape[2], images.shape[3], 2):
            last = images.permute(0, 2, 3, 1).contiguous()
            pooled = ConvolvePoolRelu.apply(last, self.weight, self.bias)  # type: ignore[no-untyped-call]
        else:
            return self._by_pytorch(images)
        return pooled.permute(0, 3, 1, 2)

    def _by_pytorch(self, images: torch.Tensor) -> torch.Tensor:
        return functional.relu(functional.max_pool2d(super().forward(images), 2))


class Conv5x5(nn.Conv2d):
    """5×5 convolution without padding. Faster than PyTorch's only with many input and output channels."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not (supported(images, self) and fits(self, images.shape[2], images.shape[3], 0)):
            return super().forward(images)
        last = images.permute(0, 2, 3, 1).contiguous()
        return Convolve.apply(last, self.weight, self.bias).permute(0, 3, 1, 2)  # type: ignore[no-untyped-call]


def supported(images: torch.Tensor, layer: nn.Conv2d) -> bool:
    """Whether the kernels of this package can be used. Otherwise PyTorch's operators are, which also refuse images with
    another number of channels."""
    is_float32 = images.dtype == layer.weight.dtype == torch.float32
    on_cpu = images.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return on_cpu and is_float32 and images.ndim == 4 and images.shape[1] == layer.in_channels
