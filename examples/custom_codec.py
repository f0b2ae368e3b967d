"""A codec of one's own: the update as 16-bit floats, whatever q the server asks for.
Try it: qccf compare quick --policies qccf --codecs model,examples.custom_codec:HalfFloats
"""

import numpy as np

from qccf.core.contracts import MAX_NUM_BITS
from qccf.core.errors import QccfError
from qccf.quantization.protocol import Forecast


class HalfFloats:
    relative = True  # it is given, and gives back, the difference to the model that the server sent
    affine = False  # its size is not a·q + b with a > 0, so the forecast lists it

    def __init__(self, num_parameters, layer_sizes):
        self.num_parameters = num_parameters
        self.bits_per_index, self.overhead_bits = 0.0, 16.0 * num_parameters

    def forecast(self, vector):
        """The error is the same for every q, and c/(2^q - 1)² must bound it for every q up to 32."""
        error = float(np.square(vector - vector.astype(np.float16), dtype=np.float64).sum())
        sizes, errors = np.full(MAX_NUM_BITS, 16.0 * self.num_parameters), np.full(MAX_NUM_BITS, error)
        return Forecast(error * (2.0**MAX_NUM_BITS - 1.0) ** 2, sizes, errors)

    def encode(self, vector, num_bits, key):
        return vector.astype("<f2").tobytes()

    def size_bits(self, payload):
        return 8 * len(payload)

    def decode(self, payload, num_bits):
        if len(payload) != 2 * self.num_parameters:
            raise QccfError(f"the payload has {len(payload):,} bytes, not {2 * self.num_parameters:,}.")
        values = np.frombuffer(payload, dtype="<f2").astype(np.float32)
        if not np.isfinite(values).all():
            raise QccfError("the payload has values that are not numbers.")
        return values

    def accumulate(self, payload, num_bits, weight, total):
        total += weight * self.decode(payload, num_bits)
