"""Vectors like those of trained models and their updates, for tests and benchmarks of codecs."""

from collections.abc import Sequence

import numpy as np

from qccf.quantization.protocol import Vector


def layered_vector(layer_sizes: Sequence[int], seed: int = 0) -> Vector:
    """Each layer Laplace-distributed with a width of its own, a few exact zeros among it."""
    rng = np.random.default_rng(seed)
    widths = 0.001 * 2.0 ** np.arange(len(layer_sizes))
    layers = [rng.laplace(scale=width, size=size) for width, size in zip(widths, layer_sizes, strict=True)]
    vector = np.concatenate(layers).astype(np.float32)
    vector[rng.random(len(vector)) < 0.02] = 0.0
    return vector
