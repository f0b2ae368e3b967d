"""A codec of one's own: one bit per parameter, whatever q the server asks for.

Each layer's update goes up as its signs and the mean of its magnitudes.
Try it: qccf compare quick --policy qccf --codec model,examples.custom_codec:Signs
"""

import numpy as np

from qccf.core.contracts import MAX_NUM_BITS
from qccf.core.errors import PayloadError
from qccf.quantization.protocol import Forecast


class Signs:
    relative = True  # it is given, and gives back, the difference to the model that the server sent
    affine = False  # its size is not a·q + b with a > 0, so the forecast lists it

    def __init__(self, num_parameters, layer_sizes):
        self.num_parameters, self.layer_sizes = num_parameters, list(layer_sizes)
        self.least_upload_bits = num_parameters + 32.0 * len(self.layer_sizes)
        self.bits_per_index, self.overhead_bits = 0.0, self.least_upload_bits

    def rounded(self, signs, scales):
        return np.where(signs, 1.0, -1.0).astype(np.float32) * np.repeat(scales, self.layer_sizes)

    def scales(self, vector):
        starts = np.cumsum([0, *self.layer_sizes[:-1]])
        return (np.add.reduceat(np.abs(vector), starts) / self.layer_sizes).astype(np.float32)

    def forecast(self, vector):
        """The error is the same for every q, and c/(2^q - 1)² must bound it for every q up to 32."""
        error = float(np.square(vector - self.rounded(vector >= 0.0, self.scales(vector)), dtype=np.float64).sum())
        sizes, errors = np.full(MAX_NUM_BITS, self.least_upload_bits), np.full(MAX_NUM_BITS, error)
        return Forecast(error * (2.0**MAX_NUM_BITS - 1.0) ** 2, sizes, errors)

    def encode(self, vector, num_bits, key):
        return self.scales(vector).astype("<f4").tobytes() + np.packbits(vector >= 0.0).tobytes()

    def size_bits(self, payload):
        return int(self.least_upload_bits)

    def decode(self, payload, num_bits):
        layers, needed = len(self.layer_sizes), 4 * len(self.layer_sizes) + -(-self.num_parameters // 8)
        if len(payload) != needed:
            raise PayloadError(f"the payload has {len(payload):,} bytes, not {needed:,}.")
        scales = np.frombuffer(payload, dtype="<f4", count=layers).astype(np.float32)
        if not (np.isfinite(scales) & (scales >= 0.0)).all():
            raise PayloadError("the payload has a scale that is negative or not a number.")
        signs = np.unpackbits(np.frombuffer(payload, dtype=np.uint8, offset=4 * layers), count=self.num_parameters)
        return self.rounded(signs, scales)

    def accumulate(self, payload, num_bits, weight, total):
        total += weight * self.decode(payload, num_bits)
