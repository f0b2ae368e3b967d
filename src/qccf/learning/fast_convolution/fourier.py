"""Fourier transforms of images of up to 16×16 real values, and 2×2 max-pooling.

256 real values have 130 frequencies; the others are their complex conjugates. Images are [sample, row, column,
channel], transformed images [frequency, sample, channel, real and imaginary part].

Transforms work in place, in a buffer of [row, column, channel] for 16 channels at a time, which fits into the fastest
cache. All its offsets are constants, so that the compiler vectorises every loop over channels.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

F = np.float32

NONE_PASSED = 4
"""`passed` is the index 0 to 3 of a pooling window's largest value, or this if that value is not positive."""

SIZE = 16
"""Rows and columns of a transform."""

CHANNELS = 16
_ROW = SIZE * CHANNELS


_C1, _S1 = F(np.cos(np.pi / 8.0)), F(np.sin(np.pi / 8.0))
_H = F(np.sqrt(0.5))
_TWO = F(2.0)

_compiled = numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")


def _real_transform(step: int) -> Callable[..., None]:
    """The transform of 16 real values, `step` apart, to X₀, X₈, and real and imaginary part of X₁ to X₇."""

    @_compiled
    def transform(b: Any) -> None:
        for c in range(CHANNELS):
            s0, d0 = b[c] + b[c + 8 * step], b[c] - b[c + 8 * step]
            s1, d1 = b[c + step] + b[c + 9 * step], b[c + step] - b[c + 9 * step]
            s2, d2 = b[c + 2 * step] + b[c + 10 * step], b[c + 2 * step] - b[c + 10 * step]
            s3, d3 = b[c + 3 * step] + b[c + 11 * step], b[c + 3 * step] - b[c + 11 * step]
            s4, d4 = b[c + 4 * step] + b[c + 12 * step], b[c + 4 * step] - b[c + 12 * step]
            s5, d5 = b[c + 5 * step] + b[c + 13 * step], b[c + 5 * step] - b[c + 13 * step]
            s6, d6 = b[c + 6 * step] + b[c + 14 * step], b[c + 6 * step] - b[c + 14 * step]
            s7, d7 = b[c + 7 * step] + b[c + 15 * step], b[c + 7 * step] - b[c + 15 * step]
            # X0, X4, X8: four real values; X2, X6: two complex ones
            t0, e0, t1, e1 = s0 + s4, s0 - s4, s1 + s5, s1 - s5
            t2, e2, t3, e3 = s2 + s6, s2 - s6, s3 + s7, s3 - s7
            p, q = (e1 - e3) * _H, (e1 + e3) * _H
            b[c], b[c + step] = (t0 + t2) + (t1 + t3), (t0 + t2) - (t1 + t3)
            b[c + 8 * step], b[c + 9 * step] = t0 - t2, t3 - t1
            b[c + 4 * step], b[c + 5 * step] = e0 + p, -e2 - q
            b[c + 12 * step], b[c + 13 * step] = e0 - p, e2 - q
            # X1, X5, conj(X7), conj(X3): four complex values, turned by 0, 1, 2 and 3 sixteenths
            u1, v1 = d1 * _C1 - d5 * _S1, -d5 * _C1 - d1 * _S1
            u2, v2 = (d2 - d6) * _H, (-d6 - d2) * _H
            u3, v3 = d3 * _S1 - d7 * _C1, -d7 * _S1 - d3 * _C1
            g0, h0, g1, h1 = d0 + u2, v2 - d4, d0 - u2, -d4 - v2
            g2, h2, g3, h3 = u1 + u3, v1 + v3, u1 - u3, v1 - v3
            b[c + 2 * step], b[c + 3 * step] = g0 + g2, h0 + h2
            b[c + 14 * step], b[c + 15 * step] = g0 - g2, h2 - h0
            b[c + 10 * step], b[c + 11 * step] = g1 + h3, h1 - g3
            b[c + 6 * step], b[c + 7 * step] = g1 - h3, -h1 - g3

    return transform


def _real_inverse(step: int) -> Callable[..., None]:
    """The inverse of `_real_transform`, times 16."""

    @_compiled
    def inverse(b: Any) -> None:
        for c in range(CHANNELS):
            x0, x8 = b[c], b[c + step]
            x4, y4 = _TWO * b[c + 8 * step], _TWO * b[c + 9 * step]
            t0, t2 = x0 + x8 + x4, x0 + x8 - x4
            t1, t3 = x0 - x8 - y4, x0 - x8 + y4
            x2, y2, x6, y6 = b[c + 4 * step], b[c + 5 * step], b[c + 12 * step], b[c + 13 * step]
            p, q = (x2 - x6) * _H, (y2 + y6) * _H
            e0, e2 = _TWO * (x2 + x6), _TWO * (y6 - y2)
            e1, e3 = _TWO * (p - q), -_TWO * (p + q)
            s0, s4, s1, s5 = t0 + e0, t0 - e0, t1 + e1, t1 - e1
            s2, s6, s3, s7 = t2 + e2, t2 - e2, t3 + e3, t3 - e3
            x1, y1, x7, y7 = b[c + 2 * step], b[c + 3 * step], b[c + 14 * step], b[c + 15 * step]
            x5, y5, x3, y3 = b[c + 10 * step], b[c + 11 * step], b[c + 6 * step], b[c + 7 * step]
            g0, h0, g2, h2 = x1 + x7, y1 - y7, x1 - x7, y1 + y7
            g1, h1, g3, h3 = x5 + x3, y5 - y3, x5 - x3, y5 + y3
            d0, d4 = _TWO * (g0 + g1), -_TWO * (h0 + h1)
            u2, v2 = _TWO * _H * (g0 - g1), _TWO * _H * (h0 - h1)
            d2, d6 = u2 - v2, -u2 - v2
            u1, v1 = _TWO * (g2 - h3), _TWO * (h2 + g3)
            u3, v3 = _TWO * (g2 + h3), _TWO * (h2 - g3)
            d1, d5 = u1 * _C1 - v1 * _S1, -v1 * _C1 - u1 * _S1
            d3, d7 = u3 * _S1 - v3 * _C1, -v3 * _S1 - u3 * _C1
            b[c], b[c + 8 * step] = s0 + d0, s0 - d0
            b[c + step], b[c + 9 * step] = s1 + d1, s1 - d1
            b[c + 2 * step], b[c + 10 * step] = s2 + d2, s2 - d2
            b[c + 3 * step], b[c + 11 * step] = s3 + d3, s3 - d3
            b[c + 4 * step], b[c + 12 * step] = s4 + d4, s4 - d4
            b[c + 5 * step], b[c + 13 * step] = s5 + d5, s5 - d5
            b[c + 6 * step], b[c + 14 * step] = s6 + d6, s6 - d6
            b[c + 7 * step], b[c + 15 * step] = s7 + d7, s7 - d7

    return inverse


_real_row, _real_column = _real_transform(CHANNELS), _real_transform(_ROW)
_real_row_inverse, _real_column_inverse = _real_inverse(CHANNELS), _real_inverse(_ROW)

_TURNS = -2j * np.pi / SIZE * np.outer(np.arange(4), np.arange(4))
_COS, _SIN = np.exp(_TURNS).real.astype(F), np.exp(_TURNS).imag.astype(F)


@_compiled
def _complex_column(column: Any) -> None:
    """The transform of a column of 16 complex values in two steps of four; frequency r + 4·m goes to row 4·r + m."""
    for j in range(4):
        w1, z1, w2, z2, w3, z3 = _COS[j, 1], _SIN[j, 1], _COS[j, 2], _SIN[j, 2], _COS[j, 3], _SIN[j, 3]
        b = column[j * _ROW :]
        for c in range(CHANNELS):
            x0, y0 = b[c], b[c + CHANNELS]
            x1, y1 = b[c + 4 * _ROW], b[c + 4 * _ROW + CHANNELS]
            x2, y2 = b[c + 8 * _ROW], b[c + 8 * _ROW + CHANNELS]
            x3, y3 = b[c + 12 * _ROW], b[c + 12 * _ROW + CHANNELS]
            p0, q0, p1, q1 = x0 + x2, y0 + y2, x0 - x2, y0 - y2
            p2, q2, p3, q3 = x1 + x3, y1 + y3, x1 - x3, y1 - y3
            b[c], b[c + CHANNELS] = p0 + p2, q0 + q2
            x, y = p1 + q3, q1 - p3
            b[c + 4 * _ROW], b[c + 4 * _ROW + CHANNELS] = x * w1 - y * z1, x * z1 + y * w1
            x, y = p0 - p2, q0 - q2
            b[c + 8 * _ROW], b[c + 8 * _ROW + CHANNELS] = x * w2 - y * z2, x * z2 + y * w2
            x, y = p1 - q3, q1 + p3
            b[c + 12 * _ROW], b[c + 12 * _ROW + CHANNELS] = x * w3 - y * z3, x * z3 + y * w3
    for r in range(4):
        b = column[4 * r * _ROW :]
        for c in range(CHANNELS):
            x0, y0 = b[c], b[c + CHANNELS]
            x1, y1 = b[c + _ROW], b[c + _ROW + CHANNELS]
            x2, y2 = b[c + 2 * _ROW], b[c + 2 * _ROW + CHANNELS]
            x3, y3 = b[c + 3 * _ROW], b[c + 3 * _ROW + CHANNELS]
            p0, q0, p1, q1 = x0 + x2, y0 + y2, x0 - x2, y0 - y2
            p2, q2, p3, q3 = x1 + x3, y1 + y3, x1 - x3, y1 - y3
            b[c], b[c + CHANNELS] = p0 + p2, q0 + q2
            b[c + _ROW], b[c + _ROW + CHANNELS] = p1 + q3, q1 - p3
            b[c + 2 * _ROW], b[c + 2 * _ROW + CHANNELS] = p0 - p2, q0 - q2
            b[c + 3 * _ROW], b[c + 3 * _ROW + CHANNELS] = p1 - q3, q1 + p3


@_compiled
def _complex_column_inverse(column: Any) -> None:
    """The inverse of `_complex_column`, times 16."""
    for r in range(4):
        b = column[4 * r * _ROW :]
        for c in range(CHANNELS):
            x0, y0 = b[c], b[c + CHANNELS]
            x1, y1 = b[c + _ROW], b[c + _ROW + CHANNELS]
            x2, y2 = b[c + 2 * _ROW], b[c + 2 * _ROW + CHANNELS]
            x3, y3 = b[c + 3 * _ROW], b[c + 3 * _ROW + CHANNELS]
            p0, q0, p1, q1 = x0 + x2, y0 + y2, x0 - x2, y0 - y2
            p2, q2, p3, q3 = x1 + x3, y1 + y3, x1 - x3, y1 - y3
            b[c], b[c + CHANNELS] = p0 + p2, q0 + q2
            b[c + _ROW], b[c + _ROW + CHANNELS] = p1 - q3, q1 + p3
            b[c + 2 * _ROW], b[c + 2 * _ROW + CHANNELS] = p0 - p2, q0 - q2
            b[c + 3 * _ROW], b[c + 3 * _ROW + CHANNELS] = p1 + q3, q1 - p3
    for j in range(4):
        w1, z1, w2, z2, w3, z3 = _COS[j, 1], _SIN[j, 1], _COS[j, 2], _SIN[j, 2], _COS[j, 3], _SIN[j, 3]
        b = column[j * _ROW :]
        for c in range(CHANNELS):
            x0, y0 = b[c], b[c + CHANNELS]
            x, y = b[c + 4 * _ROW], b[c + 4 * _ROW + CHANNELS]
            x1, y1 = x * w1 + y * z1, y * w1 - x * z1
            x, y = b[c + 8 * _ROW], b[c + 8 * _ROW + CHANNELS]
            x2, y2 = x * w2 + y * z2, y * w2 - x * z2
            x, y = b[c + 12 * _ROW], b[c + 12 * _ROW + CHANNELS]
            x3, y3 = x * w3 + y * z3, y * w3 - x * z3
            p0, q0, p1, q1 = x0 + x2, y0 + y2, x0 - x2, y0 - y2
            p2, q2, p3, q3 = x1 + x3, y1 + y3, x1 - x3, y1 - y3
            b[c], b[c + CHANNELS] = p0 + p2, q0 + q2
            b[c + 4 * _ROW], b[c + 4 * _ROW + CHANNELS] = p1 - q3, q1 + p3
            b[c + 8 * _ROW], b[c + 8 * _ROW + CHANNELS] = p0 - p2, q0 - q2
            b[c + 12 * _ROW], b[c + 12 * _ROW + CHANNELS] = p1 + q3, q1 - p3


FREQUENCIES = [
    *((down, across) for across in (0, 8) for down in (0, 8, 1, 2, 3, 4, 5, 6, 7)),
    *((row // 4 + 4 * (row % 4), across) for across in range(1, 8) for row in range(SIZE)),
]
"""The frequencies of a transformed image in their order: two columns of real values, and seven of complex ones."""

_ZERO = F(0.0)

_SAMPLES = 8
"""Samples that are transformed together. Their values of one frequency are copied to one place in memory."""


def _places() -> tuple[Any, Any]:
    """Where the real and the imaginary part of each frequency stand in a buffer.

    The last place of the buffer stands for an imaginary part that is always 0.
    """
    found = []
    for column in (0, 1):  # two columns of real values; the others are complex
        found += [(column, SIZE * SIZE), (SIZE + column, SIZE * SIZE)]
        found += [(SIZE * 2 * k + column, SIZE * (2 * k + 1) + column) for k in range(1, SIZE // 2)]
    for across in range(1, SIZE // 2):
        found += [(SIZE * row + 2 * across, SIZE * row + 2 * across + 1) for row in range(SIZE)]
    real, imaginary = (np.array(found) * CHANNELS).T.copy()
    return real, imaginary


_REAL, _IMAGINARY = _places()


@_compiled
def _to_points(buffers: Any, sign: Any, points: Any, start: int) -> None:
    """Transform the columns of buffers [sample, channels / 16, place] and copy all to samples from `start` on,
    imaginary parts times `sign`."""
    samples, parts, _ = buffers.shape
    for n in range(samples):
        for k in range(parts):
            b = buffers[n, k]
            b[SIZE * _ROW :] = _ZERO
            _real_column(b)
            _real_column(b[CHANNELS:])
            for across in range(1, SIZE // 2):
                _complex_column(b[2 * across * CHANNELS :])
    for p in range(len(_REAL)):
        real, imaginary = _REAL[p], _IMAGINARY[p]
        for n in range(samples):
            for k in range(parts):
                x, y, point = buffers[n, k, real:], buffers[n, k, imaginary:], points[p, start + n, k * CHANNELS :]
                for c in range(CHANNELS):
                    point[c, 0] = x[c]
                    point[c, 1] = sign * y[c]


@_compiled
def _from_points(points: Any, start: int, sign: Any, buffers: Any) -> None:
    """The inverse of `_to_points`, times 16."""
    samples, parts, _ = buffers.shape
    for p in range(len(_REAL)):
        real, imaginary = _REAL[p], _IMAGINARY[p]
        for n in range(samples):
            for k in range(parts):
                x, y, point = buffers[n, k, real:], buffers[n, k, imaginary:], points[p, start + n, k * CHANNELS :]
                for c in range(CHANNELS):
                    x[c] = point[c, 0]
                    y[c] = sign * point[c, 1]
    for n in range(samples):
        for k in range(parts):
            b = buffers[n, k]
            _real_column_inverse(b)
            _real_column_inverse(b[CHANNELS:])
            for across in range(1, SIZE // 2):
                _complex_column_inverse(b[2 * across * CHANNELS :])


@_compiled
def _buffers(channels: int) -> Any:
    """[sample, channels / 16, …] for as many samples as are transformed at a time."""
    return np.empty((_SAMPLES, channels // CHANNELS, (SIZE * SIZE + 1) * CHANNELS), F)


@_compiled
def transform_images(images: Any, sign: Any, points: Any) -> None:
    """Fill `points` [frequency, sample, channel, 2] with the transforms of images, imaginary parts times `sign`."""
    samples, height, width, channels = images.shape
    buffers = _buffers(channels)
    for one in range(0, samples, _SAMPLES):
        count = min(_SAMPLES, samples - one)
        for n in range(count):
            for k in range(channels // CHANNELS):
                b = buffers[n, k]
                b[:] = _ZERO
                for i in range(height):
                    row = b[i * _ROW :]
                    for j in range(width):
                        source, target = images[one + n, i, j, k * CHANNELS :], row[j * CHANNELS :]
                        for c in range(CHANNELS):
                            target[c] = source[c]
                    _real_row(row)
        _to_points(buffers[:count], sign, points, one)


@_compiled
def images_of(points: Any, sign: Any, images: Any) -> None:
    """The inverse of `transform_images`, times 256."""
    samples, height, width, channels = images.shape
    buffers = _buffers(channels)
    for one in range(0, samples, _SAMPLES):
        count = min(_SAMPLES, samples - one)
        _from_points(points, one, sign, buffers[:count])
        for n in range(count):
            for k in range(channels // CHANNELS):
                b = buffers[n, k]
                for i in range(height):
                    row = b[i * _ROW :]
                    _real_row_inverse(row)
                    for j in range(width):
                        source, target = row[j * CHANNELS :], images[one + n, i, j, k * CHANNELS :]
                        for c in range(CHANNELS):
                            target[c] = source[c]


_INDEX = tuple(np.uint8(which) for which in range(NONE_PASSED + 1))


@_compiled
def largest(s0: Any, s1: Any, s2: Any, s3: Any, bias: Any) -> Any:
    """The largest of four values plus bias, then ReLU; and its index. NaN if one of the values is."""
    best, which = s0, _INDEX[0]
    if (s1 > best) | (s1 != s1):
        best, which = s1, _INDEX[1]
    if (s2 > best) | (s2 != s2):
        best, which = s2, _INDEX[2]
    if (s3 > best) | (s3 != s3):
        best, which = s3, _INDEX[3]
    best += bias
    if best <= F(0.0):
        best, which = F(0.0), _INDEX[NONE_PASSED]
    return best, which


@_compiled
def pool_sums(sums: Any, bias: Any, pooled: Any, passed: Any) -> None:
    """Fill `pooled` with the result of bias, 2×2 max-pooling and ReLU, and `passed` with the index of each maximum."""
    samples, height, width, channels = pooled.shape
    for n in range(samples):
        for i in range(height):
            for j in range(width):
                s0, s1 = sums[n, 2 * i, 2 * j], sums[n, 2 * i, 2 * j + 1]
                s2, s3 = sums[n, 2 * i + 1, 2 * j], sums[n, 2 * i + 1, 2 * j + 1]
                values, indexes = pooled[n, i, j], passed[n, i, j]
                for c in range(channels):
                    values[c], indexes[c] = largest(s0[c], s1[c], s2[c], s3[c], bias[c])


@_compiled
def spread_pooled(gradients: Any, passed: Any, sums: Any, bias_gradient: Any) -> None:
    """Gradients of the sums, from those of the pooled values: all but the largest of a window get 0."""
    samples, height, width, channels = gradients.shape
    zero = F(0.0)
    for n in range(samples):
        for i in range(height):
            for j in range(width):
                for which in range(NONE_PASSED):
                    target, index = sums[n, 2 * i + which // 2, 2 * j + which % 2], np.uint8(which)
                    for c in range(channels):
                        target[c] = gradients[n, i, j, c] if passed[n, i, j, c] == index else zero
                for c in range(channels):
                    bias_gradient[c] += gradients[n, i, j, c] if passed[n, i, j, c] != NONE_PASSED else zero


@_compiled
def pooled_of(points: Any, bias: Any, pooled: Any, passed: Any) -> None:
    """Fill `pooled` with the result of bias, 2×2 max-pooling and ReLU, and `passed` with the index of each maximum."""
    samples, height, width, channels = pooled.shape
    buffers = _buffers(channels)
    for one in range(0, samples, _SAMPLES):
        count = min(_SAMPLES, samples - one)
        _from_points(points, one, F(1.0), buffers[:count])
        for n in range(count):
            for k in range(channels // CHANNELS):
                b, first = buffers[n, k], k * CHANNELS
                added = bias[first:]
                for i in range(height):
                    _real_row_inverse(b[2 * i * _ROW :])
                    _real_row_inverse(b[(2 * i + 1) * _ROW :])
                    for j in range(width):
                        window = b[2 * i * _ROW + 2 * j * CHANNELS :]
                        values, indexes = pooled[one + n, i, j, first:], passed[one + n, i, j, first:]
                        for c in range(CHANNELS):
                            values[c], indexes[c] = largest(
                                window[c], window[c + CHANNELS], window[c + _ROW], window[c + _ROW + CHANNELS], added[c]
                            )


@_compiled
def transform_pooled(gradients: Any, passed: Any, sign: Any, points: Any) -> None:
    """Like `transform_images`, for gradients of outputs that are given by those of the pooled values."""
    samples, height, width, channels = gradients.shape
    buffers = _buffers(channels)
    for one in range(0, samples, _SAMPLES):
        count = min(_SAMPLES, samples - one)
        for n in range(count):
            for k in range(channels // CHANNELS):
                b, first = buffers[n, k], k * CHANNELS
                b[:] = _ZERO
                for i in range(height):
                    for j in range(width):
                        window = b[2 * i * _ROW + 2 * j * CHANNELS :]
                        value, index = gradients[one + n, i, j, first:], passed[one + n, i, j, first:]
                        for c in range(CHANNELS):
                            window[c] = value[c] if index[c] == _INDEX[0] else _ZERO
                            window[c + CHANNELS] = value[c] if index[c] == _INDEX[1] else _ZERO
                            window[c + _ROW] = value[c] if index[c] == _INDEX[2] else _ZERO
                            window[c + _ROW + CHANNELS] = value[c] if index[c] == _INDEX[3] else _ZERO
                    _real_row(b[2 * i * _ROW :])
                    _real_row(b[(2 * i + 1) * _ROW :])
        _to_points(buffers[:count], sign, points, one)
