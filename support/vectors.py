"""Vectors that resemble model weights and updates, for tests and benchmarks of codecs."""

from collections.abc import Sequence

import numpy as np

from qccf.quantization.protocol import Vector


def layered_vector(layer_sizes: Sequence[int], seed: int = 0) -> Vector:
    """Each layer is Laplace-distributed with its own width; about 2 % of the values are exactly zero."""
    rng = np.random.default_rng(seed)
    widths = 0.001 * 2.0 ** np.arange(len(layer_sizes))
    layers = [rng.laplace(scale=width, size=size) for width, size in zip(widths, layer_sizes, strict=True)]
    vector = np.concatenate(layers).astype(np.float32)
    vector[rng.random(len(vector)) < 0.02] = 0.0
    return vector
