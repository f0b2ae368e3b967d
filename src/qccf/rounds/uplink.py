"""From a trained model to bytes and back: a client's upload, and the server's statistics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qccf.core.contracts import MAX_NUM_BITS, Decision, FloatArray, Statistics
from qccf.core.streams import key
from qccf.learning.results import Flat, LocalResult, LocalStatistics
from qccf.quantization.costs import error_bound_table, raw_payload_bits
from qccf.quantization.protocol import Codec, Forecast
from qccf.rounds.claims import Evidence

RAW = 0
"""Instead of a number of bits: 32-bit floats with no quantizer."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What a client sends: a payload, its statistics, and the forecast for its next upload.

    `payload` is the model itself where nothing is quantized, and None where nothing was trained (planning). A server
    that has decoded a payload to check it may hold the decoded vector instead.
    `size_bits` is the size on the air, NaN to charge the size that was forecast. `measured_s` and `measured_j` are what
    a client says that its training took, NaN where it says nothing; they are recorded and used for nothing else.
    """

    payload: bytes | Flat | None
    size_bits: float
    statistics: LocalStatistics
    forecast: Forecast | None
    measured_s: float = math.nan
    measured_j: float = math.nan


def encode(
    codec: Codec, result: LocalResult, received: Flat, num_bits: int, *, client: int, round_index: int, seed: int
) -> Upload:
    """A client's upload. `received` is the global model that its training started from."""
    if num_bits == RAW:
        return Upload(result.weights, raw_payload_bits(len(received)), result.statistics, None)
    vector = coded_vector(codec, result.weights, received)
    payload = codec.encode(vector, num_bits, key(seed, "quantization", client, round_index))
    return Upload(payload, float(codec.size_bits(payload)), result.statistics, codec.forecast(vector))


def instructed_bits(decision: Decision, client: int) -> int:
    """The bits that the client must use; RAW where nothing is quantized."""
    return RAW if decision.raw else int(decision.num_bits[client])


def warm_up(codec: Codec, num_values: int) -> None:
    """Use every part of the codec once, so that nothing is compiled or imported during a round."""
    zeros = np.zeros(num_values, dtype=np.float32)
    codec.forecast(zeros)
    codec.accumulate(codec.encode(zeros, 1, 0), 1, 0.0, np.zeros(num_values))


def coded_vector(codec: Codec, weights: Flat, received: Flat) -> Flat:
    """The vector that the codec codes: the model, or its difference to the received one."""
    return weights - received if codec.relative else weights


def sizes_bits(uploads: Mapping[int, Upload], num_clients: int) -> FloatArray:
    """The size of each upload on the air; NaN where it is not known."""
    sizes = np.full(num_clients, np.nan)
    for client, upload in uploads.items():
        sizes[client] = upload.size_bits
    return sizes


def blank_statistics(dataset_sizes: FloatArray, codec: Codec) -> Statistics:
    """Statistics of clients that have not reported yet, to be filled by `updated_statistics`."""
    count = len(dataset_sizes)
    norms_sq, variances, ranges, scales = (np.zeros(count) for _ in range(4))
    sizes = None if codec.affine else np.zeros((count, MAX_NUM_BITS))
    return Statistics(dataset_sizes, norms_sq, variances, ranges, scales, sizes, np.zeros((count, MAX_NUM_BITS)))


def updated_statistics(
    known: Statistics,
    reports: Mapping[int, tuple[LocalStatistics | None, Forecast | None]],
    *,
    safety_margin: float,
) -> Statistics:
    """The statistics with the clients' reports; a client without one keeps its last values.

    A forecast may come alone: it is sent ahead of its payload, so that a client whose upload was too large is not given
    the same bits again. Forecast sizes get the margin, and never fall as bits are added. Forecast errors never rise; a
    codec that does not know them gives the bound.
    """
    norms_sq, variances = known.gradient_norms_sq.copy(), known.gradient_variances.copy()
    ranges = known.weight_ranges.copy()
    scales = None if known.error_scales is None else known.error_scales.copy()
    sizes = None if known.upload_bits is None else known.upload_bits.copy()
    errors = None if known.upload_errors is None else known.upload_errors.copy()
    for client, (statistics, forecast) in reports.items():
        if statistics is not None:
            norms_sq[client] = statistics.gradient_norm_sq
            variances[client] = statistics.gradient_variance
            ranges[client] = statistics.weight_range
        if forecast is not None and scales is not None:
            scales[client] = forecast.error_scale
        if forecast is not None and forecast.bits is not None and sizes is not None:
            sizes[client] = np.maximum.accumulate(forecast.bits) * (1.0 + safety_margin)
        if forecast is not None and errors is not None:
            own = error_bound_table(forecast.error_scale) if forecast.errors is None else forecast.errors
            errors[client] = np.minimum.accumulate(own)
    return Statistics(known.dataset_sizes, norms_sq, variances, ranges, scales, sizes, errors)


def examined(codec: Codec, upload: Upload, num_bits: int, received: Flat | None, num_parameters: int) -> Evidence:
    """What the server measures itself on an upload. `received` is the global model that its training started from.

    A decoded vector has the range of the coded one. Its error is a limit and not an estimate, because rounding adds to
    the norm of a vector.
    """
    size_bits = upload.size_bits if np.isfinite(upload.size_bits) and num_bits != RAW else None
    payload = upload.payload
    if payload is None or received is None:
        return Evidence(num_bits=num_bits, size_bits=size_bits)
    vector = codec.decode(payload, num_bits) if isinstance(payload, bytes) else payload
    relative = codec.relative and num_bits != RAW
    model = (vector + received if relative else vector)[:num_parameters]
    error_scale = None if num_bits == RAW else codec.forecast(vector).error_scale
    return Evidence(float(np.abs(model).max()), error_scale, num_bits, size_bits)
