"""Winograd's algorithm: a 5×5 convolution as 64 small matrix products, optionally with max-pooling and ReLU.

A tile of 4×4 outputs needs 8×8 inputs. Inputs and kernel are polynomials, evaluated at eight points (0, ±1, ±2, ±½ and
infinity) in each direction. At these points the convolution is a product: 64 multiplications instead of 400. In
float32 the result differs from the direct sum by about 1e-5. Images are [sample, row, column, channel]. Transformed
tiles are [point, tile, channel], so all points are one batched matrix product. Every inner loop runs over channels, so
that the compiler vectorises it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import torch

from qccf.core.contracts import FloatArray

F = np.float32

NONE_PASSED = 4
"""`passed` is the index 0 to 3 of a pooling window's largest value, or this if that value is not positive."""

_BLOCK = 8
"""Samples per pass: few enough for the cache, many enough for efficient matrix products."""

_compiled = numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
_inlined = numba.njit(inline="always")


@_inlined
def _at_points(d0: Any, d1: Any, d2: Any, d3: Any, d4: Any, d5: Any, d6: Any, d7: Any) -> Any:
    """The polynomial of eight inputs, evaluated at the eight points."""
    even1, odd1 = d2 + d6 - F(4.25) * d4, d1 + d5 - F(4.25) * d3
    even2, odd2 = d6 + F(0.25) * d2 - F(1.25) * d4, F(0.5) * d1 - F(2.5) * d3 + F(2.0) * d5
    even3, odd3 = d6 + F(4.0) * d2 - F(5.0) * d4, F(2.0) * d1 - F(2.5) * d3 + F(0.5) * d5
    first, last = d0 - d6 + F(5.25) * (d4 - d2), d7 - d1 + F(5.25) * (d3 - d5)
    return first, even1 + odd1, even1 - odd1, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3, last


@_inlined
def _at_points_adjoint(r0: Any, r1: Any, r2: Any, r3: Any, r4: Any, r5: Any, r6: Any, r7: Any) -> Any:
    even1, odd1 = r1 + r2, r1 - r2
    even2, odd2 = r3 + r4, r3 - r4
    even3, odd3 = r5 + r6, r5 - r6
    return (
        r0,
        odd1 + F(0.5) * odd2 + F(2.0) * odd3 - r7,
        even1 + F(0.25) * even2 + F(4.0) * even3 - F(5.25) * r0,
        F(5.25) * r7 - F(4.25) * odd1 - F(2.5) * (odd2 + odd3),
        F(5.25) * r0 - F(4.25) * even1 - F(1.25) * even2 - F(5.0) * even3,
        odd1 + F(2.0) * odd2 + F(0.5) * odd3 - F(5.25) * r7,
        even1 + even2 + even3 - r0,
        r7,
    )


@_inlined
def _from_points(m0: Any, m1: Any, m2: Any, m3: Any, m4: Any, m5: Any, m6: Any, m7: Any) -> Any:
    """Four outputs from the products at the eight points."""
    even1, odd1 = m1 + m2, m1 - m2
    even2, odd2 = m3 + m4, m3 - m4
    even3, odd3 = m5 + m6, m5 - m6
    return (
        m0 + even1 + even2 + even3,
        odd1 + F(2.0) * odd2 + F(0.5) * odd3,
        even1 + F(4.0) * even2 + F(0.25) * even3,
        odd1 + F(8.0) * odd2 + F(0.125) * odd3 + m7,
    )


@_inlined
def _from_points_adjoint(y0: Any, y1: Any, y2: Any, y3: Any) -> Any:
    even1, odd1 = y0 + y2, y1 + y3
    even2, odd2 = y0 + F(4.0) * y2, F(2.0) * y1 + F(8.0) * y3
    even3, odd3 = y0 + F(0.25) * y2, F(0.5) * y1 + F(0.125) * y3
    return y0, even1 + odd1, even1 - odd1, even2 + odd2, even2 - odd2, even3 + odd3, even3 - odd3, y3


@_compiled
def transform_images(images: Any, border: int, out: Any) -> None:
    """Fill `out` with the tiles of the images, zero-padded by `border`, evaluated at the 64 points."""
    samples, height, width, channels = images.shape
    down, across = (height + 2 * border - 1) // 4, (width + 2 * border - 1) // 4
    padded = np.zeros((4 * down + 4, 4 * across + 4, channels), F)
    rows = np.empty((8, 8, channels), F)
    t = 0
    for n in range(samples):
        for i in range(height):
            padded[border + i, border : border + width] = images[n, i]
        for tile in range(down * across):
            top, left = 4 * (tile // across), 4 * (tile % across)
            for i in range(8):
                d, r = padded[top + i, left : left + 8], rows[i]
                for c in range(channels):
                    r[0, c], r[1, c], r[2, c], r[3, c], r[4, c], r[5, c], r[6, c], r[7, c] = _at_points(
                        d[0, c], d[1, c], d[2, c], d[3, c], d[4, c], d[5, c], d[6, c], d[7, c]
                    )
            for j in range(8):
                for c in range(channels):
                    (
                        out[j, t, c], out[8 + j, t, c], out[16 + j, t, c], out[24 + j, t, c],
                        out[32 + j, t, c], out[40 + j, t, c], out[48 + j, t, c], out[56 + j, t, c]
                    ) = _at_points(
                        rows[0, j, c], rows[1, j, c], rows[2, j, c], rows[3, j, c],
                        rows[4, j, c], rows[5, j, c], rows[6, j, c], rows[7, j, c]
                    )  # fmt: skip
            t += 1


@_compiled
def transform_images_adjoint(tiles: Any, border: int, images: Any) -> None:
    """Fill `images` with their gradient, from the gradient of the transformed tiles."""
    samples, height, width, channels = images.shape
    down, across = (height + 2 * border - 1) // 4, (width + 2 * border - 1) // 4
    padded = np.empty((4 * down + 4, 4 * across + 4, channels), F)
    rows = np.empty((8, 8, channels), F)
    t = 0
    for n in range(samples):
        padded[:] = F(0.0)
        for tile in range(down * across):
            top, left = 4 * (tile // across), 4 * (tile % across)
            for j in range(8):
                for c in range(channels):
                    (
                        rows[0, j, c], rows[1, j, c], rows[2, j, c], rows[3, j, c],
                        rows[4, j, c], rows[5, j, c], rows[6, j, c], rows[7, j, c]
                    ) = _at_points_adjoint(
                        tiles[j, t, c], tiles[8 + j, t, c], tiles[16 + j, t, c], tiles[24 + j, t, c],
                        tiles[32 + j, t, c], tiles[40 + j, t, c], tiles[48 + j, t, c], tiles[56 + j, t, c]
                    )  # fmt: skip
            for i in range(8):
                d, r = padded[top + i, left : left + 8], rows[i]
                for c in range(channels):
                    d0, d1, d2, d3, d4, d5, d6, d7 = _at_points_adjoint(
                        r[0, c], r[1, c], r[2, c], r[3, c], r[4, c], r[5, c], r[6, c], r[7, c]
                    )
                    d[0, c] += d0
                    d[1, c] += d1
                    d[2, c] += d2
                    d[3, c] += d3
                    d[4, c] += d4
                    d[5, c] += d5
                    d[6, c] += d6
                    d[7, c] += d7
            t += 1
        for i in range(height):
            images[n, i] = padded[border + i, border : border + width]


@_compiled
def _tile_of_outputs(products: Any, t: int, columns: Any, y: Any) -> None:
    """Fill `y` with the 4×4 outputs of tile `t`; `columns` is a work array."""
    channels = y.shape[2]
    for j in range(8):
        for c in range(channels):
            columns[0, j, c], columns[1, j, c], columns[2, j, c], columns[3, j, c] = _from_points(
                products[j, t, c],
                products[8 + j, t, c],
                products[16 + j, t, c],
                products[24 + j, t, c],
                products[32 + j, t, c],
                products[40 + j, t, c],
                products[48 + j, t, c],
                products[56 + j, t, c],
            )
    for i in range(4):
        m = columns[i]
        for c in range(channels):
            y[i, 0, c], y[i, 1, c], y[i, 2, c], y[i, 3, c] = _from_points(
                m[0, c], m[1, c], m[2, c], m[3, c], m[4, c], m[5, c], m[6, c], m[7, c]
            )


@_compiled
def _tile_of_outputs_adjoint(y: Any, columns: Any, products: Any, t: int) -> None:
    channels = y.shape[2]
    for j in range(4):
        for c in range(channels):
            (
                columns[0, j, c], columns[1, j, c], columns[2, j, c], columns[3, j, c],
                columns[4, j, c], columns[5, j, c], columns[6, j, c], columns[7, j, c]
            ) = _from_points_adjoint(y[0, j, c], y[1, j, c], y[2, j, c], y[3, j, c])  # fmt: skip
    for i in range(8):
        m, p = columns[i], 8 * i
        for c in range(channels):
            (
                products[p, t, c], products[p + 1, t, c], products[p + 2, t, c], products[p + 3, t, c],
                products[p + 4, t, c], products[p + 5, t, c], products[p + 6, t, c], products[p + 7, t, c]
            ) = _from_points_adjoint(m[0, c], m[1, c], m[2, c], m[3, c])  # fmt: skip


@_compiled
def sum_products(products: Any, bias: Any, outputs: Any) -> None:
    """Fill `outputs` with the convolution, from the products."""
    samples, height, width, channels = outputs.shape
    down, across = (height + 3) // 4, (width + 3) // 4
    columns, y = np.empty((4, 8, channels), F), np.empty((4, 4, channels), F)
    t = 0
    for n in range(samples):
        for tile in range(down * across):
            top, left = 4 * (tile // across), 4 * (tile % across)
            _tile_of_outputs(products, t, columns, y)
            for i in range(min(4, height - top)):
                for j in range(min(4, width - left)):
                    for c in range(channels):
                        outputs[n, top + i, left + j, c] = y[i, j, c] + bias[c]
            t += 1


@_compiled
def sum_products_adjoint(gradients: Any, products: Any, bias_gradient: Any) -> None:
    """The gradient of the products, and of the bias, from that of the outputs."""
    samples, height, width, channels = gradients.shape
    down, across = (height + 3) // 4, (width + 3) // 4
    columns, y = np.empty((8, 4, channels), F), np.empty((4, 4, channels), F)
    t = 0
    for n in range(samples):
        for tile in range(down * across):
            top, left = 4 * (tile // across), 4 * (tile % across)
            y[:] = F(0.0)
            for i in range(min(4, height - top)):
                for j in range(min(4, width - left)):
                    for c in range(channels):
                        y[i, j, c] = gradients[n, top + i, left + j, c]
                        bias_gradient[c] += y[i, j, c]
            _tile_of_outputs_adjoint(y, columns, products, t)
            t += 1


@_compiled
def pool_products(products: Any, bias: Any, pooled: Any, passed: Any) -> None:
    """Fill `pooled` with the result of bias, 2×2 max-pooling and ReLU, and `passed` with the index of each maximum."""
    samples, height, width, channels = pooled.shape
    down, across = (height + 1) // 2, (width + 1) // 2
    columns = np.empty((4, 8, channels), F)
    y = np.empty((4, 4, channels), F)
    t = 0
    for n in range(samples):
        for tile in range(down * across):
            top, left = 2 * (tile // across), 2 * (tile % across)
            _tile_of_outputs(products, t, columns, y)
            for i in range(min(2, height - top)):
                for j in range(min(2, width - left)):
                    for c in range(channels):
                        best, which = y[2 * i, 2 * j, c], 0
                        value = y[2 * i, 2 * j + 1, c]
                        if value > best:
                            best, which = value, 1
                        value = y[2 * i + 1, 2 * j, c]
                        if value > best:
                            best, which = value, 2
                        value = y[2 * i + 1, 2 * j + 1, c]
                        if value > best:
                            best, which = value, 3
                        best += bias[c]
                        if best <= F(0.0):
                            best, which = F(0.0), NONE_PASSED
                        pooled[n, top + i, left + j, c] = best
                        passed[n, top + i, left + j, c] = which
            t += 1


@_compiled
def pool_products_adjoint(gradients: Any, passed: Any, products: Any, bias_gradient: Any) -> None:
    """The gradient of the products, and of the bias, from that of the pooled values."""
    samples, height, width, channels = gradients.shape
    down, across = (height + 1) // 2, (width + 1) // 2
    columns = np.empty((8, 4, channels), F)
    y = np.empty((4, 4, channels), F)
    zero = F(0.0)
    t = 0
    for n in range(samples):
        for tile in range(down * across):
            top, left = 2 * (tile // across), 2 * (tile % across)
            y[:] = zero
            for i in range(min(2, height - top)):
                for j in range(min(2, width - left)):
                    for c in range(channels):
                        value, which = gradients[n, top + i, left + j, c], passed[n, top + i, left + j, c]
                        y[2 * i, 2 * j, c] = value if which == 0 else zero
                        y[2 * i, 2 * j + 1, c] = value if which == 1 else zero
                        y[2 * i + 1, 2 * j, c] = value if which == 2 else zero
                        y[2 * i + 1, 2 * j + 1, c] = value if which == 3 else zero
                        bias_gradient[c] += value if which != NONE_PASSED else zero
            _tile_of_outputs_adjoint(y, columns, products, t)
            t += 1


def kernel_matrix() -> FloatArray:
    """[64, 25]: evaluates a 5×5 kernel at the 64 points, scaled so that the three transforms give the convolution."""
    points = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5])
    scales = np.array([1.0, -2 / 9, -2 / 9, 1 / 90, 1 / 90, 32 / 45, 32 / 45])
    line = np.vstack([scales[:, None] * points[:, None] ** np.arange(5), np.eye(5)[4]])
    return np.kron(line, line)


_KERNEL = torch.from_numpy(kernel_matrix().astype(F))


class ConvolvePoolRelu(torch.autograd.Function):
    """5×5 convolution with padding 2, then 2×2 max-pooling, then ReLU.

    Input and output are float32 [sample, row, column, channel] on the CPU; height and width of the input are even.
    """

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        samples, height, width, _ = images.shape
        pooled = torch.empty(samples, height // 2, width // 2, len(bias))
        ctx.passed = np.empty(pooled.shape, np.uint8)
        points = _kernel_at_points(weight)
        for part, products in _products(images, points, 2):
            pool_products(products, bias.numpy(), pooled[part].numpy(), ctx.passed[part])
        ctx.save_for_backward(images, points)
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        images, points = ctx.saved_tensors
        received = gradients[0].contiguous()
        bias_gradient = torch.zeros(points.shape[2])

        def to_products(part: slice, products: FloatArray) -> None:
            pool_products_adjoint(received[part].numpy(), ctx.passed[part], products, bias_gradient.numpy())

        return *_products_adjoint(images, points, 2, to_products), bias_gradient


class Convolve(torch.autograd.Function):
    """5×5 convolution without padding of float32 images [sample, row, column, channel] on the CPU."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        samples, height, width, _ = images.shape
        outputs = torch.empty(samples, height - 4, width - 4, len(bias))
        points = _kernel_at_points(weight)
        for part, products in _products(images, points, 0):
            sum_products(products, bias.numpy(), outputs[part].numpy())
        ctx.save_for_backward(images, points)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        images, points = ctx.saved_tensors
        received = gradients[0].contiguous()
        bias_gradient = torch.zeros(points.shape[2])

        def to_products(part: slice, products: FloatArray) -> None:
            sum_products_adjoint(received[part].numpy(), products, bias_gradient.numpy())

        return *_products_adjoint(images, points, 0, to_products), bias_gradient


def _kernel_at_points(weight: torch.Tensor) -> torch.Tensor:
    outputs, inputs = weight.shape[:2]
    return (_KERNEL @ weight.permute(2, 3, 1, 0).reshape(25, -1)).view(64, inputs, outputs)


def _products(images: torch.Tensor, points: torch.Tensor, border: int) -> Iterator[tuple[slice, FloatArray]]:
    """The products of each block of samples."""
    for part in _blocks(len(images)):
        tiles, products = _work(images[part], points, border)
        transform_images(images[part].numpy(), border, tiles.numpy())
        torch.bmm(tiles, points, out=products)
        yield part, products.numpy()


def _products_adjoint(
    images: torch.Tensor, points: torch.Tensor, border: int, to_products: Callable[[slice, FloatArray], None]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of images and kernel. `to_products` fills in the gradient of the products for each block."""
    _, inputs, outputs = points.shape
    images_gradient, points_gradient = torch.empty_like(images), torch.zeros_like(points)
    for part in _blocks(len(images)):
        tiles, products = _work(images[part], points, border)
        transform_images(images[part].numpy(), border, tiles.numpy())
        to_products(part, products.numpy())
        torch.baddbmm(points_gradient, tiles.transpose(1, 2), products, out=points_gradient)
        torch.bmm(products, points.transpose(1, 2), out=tiles)
        transform_images_adjoint(tiles.numpy(), border, images_gradient[part].numpy())
    weight_gradient = (_KERNEL.T @ points_gradient.view(64, -1)).view(5, 5, inputs, outputs).permute(3, 2, 0, 1)
    return images_gradient, weight_gradient


def _blocks(samples: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, samples, _BLOCK)]


def _work(block: torch.Tensor, points: torch.Tensor, border: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Empty tensors for the tiles of a block and for their products."""
    samples, height, width, _ = block.shape
    count = samples * ((height + 2 * border - 1) // 4) * ((width + 2 * border - 1) // 4)
    return torch.empty(64, count, points.shape[1]), torch.empty(64, count, points.shape[2])
