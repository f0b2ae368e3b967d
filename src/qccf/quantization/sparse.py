"""A codec that sends few values of an update: with q = 1 about one in √Z, some 0.03 bits per parameter of a CNN.

The step is the norm of the vector divided by 2^q - 1. Each value is rounded up or down to a whole number of steps with
the probability that makes it unbiased. So with one bit a value is sent with probability |v|/norm, and what is sent is
±norm. The indexes are entropy-coded as in `entropy`: positions take H(share of values that are sent) bits per value.
With 2^q - 1 levels this is QSGD's quantizer (Alistarh et al., 2017) with an entropy coder.
"""

import numpy as np
from numpy.typing import NDArray

from qccf.quantization.entropy import EntropyCodec, sent_scales
from qccf.quantization.protocol import Vector
from qccf.quantization.uniform import block_ranges


class SparseCodec(EntropyCodec):
    """A uniform quantizer whose scale is the norm of the vector, and lossless entropy coding of its indexes."""

    group = 2**32
    """All values share one random number. Few values are sent, so their number must not vary, nor the size with it."""

    def _scales(self, values: Vector) -> NDArray[np.float32]:
        from qccf.quantization import entropy_kernels as kernels

        peaks = block_ranges(values, self.bounds).astype(np.float64)
        norms = [
            np.sqrt(kernels.sum_of_squares(values[a:b])) for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True)
        ]
        return sent_scales(np.array(norms), peaks)
