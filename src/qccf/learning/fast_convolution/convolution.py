"""A 5×5 convolution as one complex matrix product per frequency, optionally with max-pooling and ReLU.

By the convolution theorem the Fourier transform of a convolution is a product, frequency by frequency. Images of up to
16×16 values are transformed whole, as if they were repeated without end; zeros at their edges keep neighbours apart.
25 multiplications per output become about three. In float32 the result differs from the direct sum by about 1e-6.
Frequencies come first in transformed images, so all of them are one batched matrix product.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from qccf.core.contracts import FloatArray
from qccf.learning.fast_convolution.fourier import (
    CHANNELS,
    FREQUENCIES,
    SIZE,
    F,
    images_of,
    pooled_of,
    transform_images,
    transform_pooled,
)

_BLOCK = 64
"""Samples per pass: few enough for the cache, many enough for efficient matrix products."""


def fits(layer: nn.Conv2d, height: int, width: int, border: int) -> bool:
    """Whether the transforms of this package can be used.

    Channels must be multiples of 16, and an image must be transformed whole without meeting its own other edge.
    """
    multiples = layer.in_channels % CHANNELS == layer.out_channels % CHANNELS == 0
    return multiples and min(height, width) + 2 * border >= 5 and max(height, width) + border <= SIZE


class ConvolvePoolRelu(torch.autograd.Function):
    """5×5 convolution with padding 2, then 2×2 max-pooling, then ReLU.

    Input and output are float32 [sample, row, column, channel] on the CPU; height and width of the input are even.
    """

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        samples, height, width, _ = images.shape
        pooled = torch.empty(samples, height // 2, width // 2, len(bias))
        ctx.passed = np.empty(pooled.shape, np.uint8)
        kernel = _kernel_points(weight, 2)
        for part, products in _products(images, kernel):
            pooled_of(products, bias.numpy(), pooled[part].numpy(), ctx.passed[part])
        ctx.save_for_backward(images, kernel)
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        images, kernel = ctx.saved_tensors
        received = gradients[0].contiguous()

        def transform(part: slice, points: FloatArray) -> None:
            transform_pooled(received[part].numpy(), ctx.passed[part], F(-1.0), points)

        return _gradients(images, kernel, 2, transform)


class Convolve(torch.autograd.Function):
    """5×5 convolution without padding of float32 images [sample, row, column, channel] on the CPU."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        samples, height, width, _ = images.shape
        outputs = torch.empty(samples, height - 4, width - 4, len(bias))
        kernel = _kernel_points(weight, 0)
        for part, products in _products(images, kernel):
            images_of(products, F(1.0), outputs[part].numpy())
        ctx.save_for_backward(images, kernel)
        return outputs.add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        images, kernel = ctx.saved_tensors
        received = gradients[0].contiguous()

        def transform(part: slice, points: FloatArray) -> None:
            transform_images(received[part].numpy(), F(-1.0), points)

        return _gradients(images, kernel, 0, transform)


def _waves(border: int) -> torch.Tensor:
    """[frequency, place in the kernel]: conjugate waves of a kernel whose values begin `border` before its output."""
    places = np.arange(5) - border
    down, across = np.exp(2j * np.pi / SIZE * np.array(FREQUENCIES).T[:, :, None] * places)
    return torch.from_numpy((down[:, :, None] * across[:, None, :]).reshape(-1, 25).astype(np.complex64) / SIZE**2)


_WAVES = {border: _waves(border) for border in (0, 2)}


def _kernel_points(weight: torch.Tensor, border: int) -> torch.Tensor:
    """[frequency, input, output]: the conjugate transform of a kernel, with the factor 1/256 of inverse transforms.

    A kernel has only 25 values. One matrix product is faster for it than the transforms of images.
    """
    outputs, inputs = weight.shape[:2]
    values = weight.permute(2, 3, 1, 0).reshape(25, -1)
    return (_WAVES[border] @ values.to(torch.complex64)).view(-1, inputs, outputs)


def _kernel_gradient(points: torch.Tensor, border: int) -> torch.Tensor:
    """The gradient of the weight, from that of its transform."""
    _, inputs, outputs = points.shape
    values = (_WAVES[border].T * _COUNTED) @ points.view(len(points), -1)
    return values.real.reshape(5, 5, inputs, outputs).permute(3, 2, 0, 1)


_COUNTED = torch.from_numpy(np.array([1.0 if down % 8 == across % 8 == 0 else 2.0 for down, across in FREQUENCIES], F))
"""How many of the 256 frequencies each one stands for: itself, and its conjugate if that is another one."""


def _products(images: torch.Tensor, kernel: torch.Tensor) -> Iterator[tuple[slice, FloatArray]]:
    """The transforms of the outputs, for each block of samples."""
    for part, points, products in _blocks(len(images), kernel):
        transform_images(images[part].numpy(), F(1.0), _real(points))
        torch.bmm(points, kernel, out=products)
        yield part, _real(products)


def _gradients(
    images: torch.Tensor, kernel: torch.Tensor, border: int, transform: Callable[[slice, FloatArray], None]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of images, kernel and bias.

    `transform` fills in the conjugate transform of the outputs' gradient for a block. Conjugates make both gradients
    plain products: those of the images then are the conjugate transform of what is wanted. Frequency 0 is the sum over
    an image, which is the gradient of the bias.
    """
    images_gradient, kernel_gradient = torch.empty_like(images), torch.empty_like(kernel)
    bias_gradient = torch.zeros(kernel.shape[2])
    if not len(images):
        kernel_gradient.zero_()
    for part, points, products in _blocks(len(images), kernel):
        transform_images(images[part].numpy(), F(1.0), _real(points))
        transform(part, _real(products))
        bias_gradient += products[0].real.sum(0)
        kept = float(part.start > 0)
        torch.baddbmm(kernel_gradient, points.transpose(1, 2), products, beta=kept, out=kernel_gradient)
        torch.bmm(products, kernel.transpose(1, 2), out=points)
        images_of(_real(points), F(-1.0), images_gradient[part].numpy())
    return images_gradient, _kernel_gradient(kernel_gradient, border), bias_gradient


def _blocks(samples: int, kernel: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """The blocks of samples, each with tensors for the transforms of its images and outputs, in the same memory.

    The memory is a NumPy array because NumPy asks the system for large pages. Transforms write to 130 places far apart,
    which is slower with many small pages.
    """
    count, inputs, outputs = kernel.shape
    memory = torch.from_numpy(np.empty(count * min(samples, _BLOCK) * (inputs + outputs), np.complex64))
    for start in range(0, samples, _BLOCK):
        size = min(_BLOCK, samples - start)
        middle, end = count * size * inputs, count * size * (inputs + outputs)
        points, products = memory[:middle], memory[middle:end]
        yield slice(start, start + size), points.view(count, size, inputs), products.view(count, size, outputs)


def _real(points: torch.Tensor) -> FloatArray:
    """The same memory as [frequency, sample, channel, real and imaginary part]."""
    return np.asarray(torch.view_as_real(points).numpy())
