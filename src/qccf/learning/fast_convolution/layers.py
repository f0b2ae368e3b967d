"""PyTorch layers for fast 5×5 convolutions on CPUs, one of them with 2×2 max-pooling and ReLU in the same layer.

For float32 on a CPU the layers use the kernels of this package: a direct sum for one input channel, Fourier transforms
for more, with pooling and ReLU in the same pass over memory. In all other cases (other devices, bf16, other shapes)
they use PyTorch's operators, which compute the same function.
"""

from typing import Any

import numba
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from qccf.learning.fast_convolution.convolution import Convolve, ConvolvePoolRelu, fits
from qccf.learning.fast_convolution.fourier import NONE_PASSED, F, largest

_compiled = numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")


_CHANNELS = 32
"""Output channels at a time. Kernel and sums are in one array, so that the compiler needs no checks for overlap."""


@_compiled
def _forward(images: Any, kernel: Any, bias: Any, pooled: Any, passed: Any) -> None:
    """Compute the four sums of each pooling window together."""
    samples, height, width = images.shape
    padded = np.zeros((height + 4, width + 4), F)
    work = np.zeros(29 * _CHANNELS, F)
    sums = work[25 * _CHANNELS :]
    for first in range(0, len(bias), _CHANNELS):
        last = first + _CHANNELS
        added = bias[first:last]
        for y in range(5):
            for x in range(5):
                values = kernel[y, x, first:last]
                work[(5 * y + x) * _CHANNELS :][: len(values)] = values
        for n in range(samples):
            padded[2:-2, 2:-2] = images[n]
            for i in range(height // 2):
                for j in range(width // 2):
                    sums[:] = F(0.0)
                    for y in range(5):
                        u, v = padded[2 * i + y, 2 * j : 2 * j + 6], padded[2 * i + y + 1, 2 * j : 2 * j + 6]
                        u0, u1, u2, u3, u4, u5 = u[0], u[1], u[2], u[3], u[4], u[5]
                        v0, v1, v2, v3, v4, v5 = v[0], v[1], v[2], v[3], v[4], v[5]
                        k, s = work[5 * y * _CHANNELS :], work[25 * _CHANNELS :]
                        for c in range(_CHANNELS):
                            k0, k1, k2 = k[c], k[c + _CHANNELS], k[c + 2 * _CHANNELS]
                            k3, k4 = k[c + 3 * _CHANNELS], k[c + 4 * _CHANNELS]
                            s[c] += u0 * k0 + u1 * k1 + u2 * k2 + u3 * k3 + u4 * k4
                            s[c + _CHANNELS] += u1 * k0 + u2 * k1 + u3 * k2 + u4 * k3 + u5 * k4
                            s[c + 2 * _CHANNELS] += v0 * k0 + v1 * k1 + v2 * k2 + v3 * k3 + v4 * k4
                            s[c + 3 * _CHANNELS] += v1 * k0 + v2 * k1 + v3 * k2 + v4 * k3 + v5 * k4
                    largest(
                        sums, _CHANNELS, 2 * _CHANNELS, added, pooled[n, i, j, first:last], passed[n, i, j, first:last]
                    )


@_compiled
def _backward(images: Any, gradients: Any, passed: Any, kernel_gradient: Any, bias_gradient: Any) -> None:
    samples, height, width = images.shape
    channels = gradients.shape[3]
    padded = np.zeros((height + 4, width + 4), F)
    g = np.empty((4, channels), F)
    zero = F(0.0)
    for n in range(samples):
        padded[2:-2, 2:-2] = images[n]
        for i in range(height // 2):
            for j in range(width // 2):
                for c in range(channels):
                    value, which = gradients[n, i, j, c], passed[n, i, j, c]
                    g[0, c] = value if which == 0 else zero
                    g[1, c] = value if which == 1 else zero
                    g[2, c] = value if which == 2 else zero
                    g[3, c] = value if which == 3 else zero
                    bias_gradient[c] += value if which != NONE_PASSED else zero
                for y in range(5):
                    for x in range(5):
                        u, v = padded[2 * i + y, 2 * j + x], padded[2 * i + y, 2 * j + x + 1]
                        w, z = padded[2 * i + y + 1, 2 * j + x], padded[2 * i + y + 1, 2 * j + x + 1]
                        for c in range(channels):
                            kernel_gradient[y, x, c] += u * g[0, c] + v * g[1, c] + w * g[2, c] + z * g[3, c]


class _FromOneChannel(torch.autograd.Function):
    """Convolution, pooling and ReLU of one-channel images [sample, row, column] that need no gradient."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        samples, height, width = images.shape
        pooled = torch.empty(samples, height // 2, width // 2, len(bias))
        passed = np.empty(pooled.shape, np.uint8)
        kernel = weight[:, 0].permute(1, 2, 0).contiguous()
        _forward(images.numpy(), kernel.numpy(), bias.numpy(), pooled.numpy(), passed)
        ctx.save_for_backward(images)
        ctx.passed = passed
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
        (images,) = ctx.saved_tensors
        channels = ctx.passed.shape[3]
        kernel, bias = torch.zeros(5, 5, channels), torch.zeros(channels)
        _backward(images.numpy(), gradients[0].contiguous().numpy(), ctx.passed, kernel.numpy(), bias.numpy())
        return None, kernel.permute(2, 0, 1).unsqueeze(1), bias


class ConvPoolRelu(nn.Conv2d):
    """5×5 convolution with padding 2 of images [sample, channel, row, column], then 2×2 max-pooling, then ReLU."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 5, padding=2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not (supported(images) and images.shape[2] % 2 == 0 and images.shape[3] % 2 == 0):
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
        if not (supported(images) and fits(self, images.shape[2], images.shape[3], 0)):
            return super().forward(images)
        last = images.permute(0, 2, 3, 1).contiguous()
        return Convolve.apply(last, self.weight, self.bias).permute(0, 3, 1, 2)  # type: ignore[no-untyped-call]


def supported(images: torch.Tensor) -> bool:
    """Whether the kernels of this package can be used; PyTorch's operators are used otherwise."""
    return images.device.type == "cpu" and images.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
