"""Uploads that are whole vectors, for tests of aggregation."""

import numpy as np

from qccf.core.contracts import Decision
from qccf.learning.results import LocalStatistics
from qccf.quantization.registry import build_codec
from qccf.rounds.aggregation import Arrivals
from qccf.rounds.uplink import Upload


def made_arrivals(
    changes, *, clients=None, sizes=None, buffers: int = 0, errors=None, bits=None, previous=None, expected=np.inf
):
    """Arrivals with these changes [client, value] of a model; the last `buffers` values are buffers."""
    changes = np.asarray(changes, dtype=float)
    num_values = changes.shape[1]
    clients = list(range(len(changes))) if clients is None else clients
    count = max([*clients, 0]) + 1
    previous = np.zeros(num_values, dtype=np.float32) if previous is None else np.asarray(previous, dtype=np.float32)
    statistics = LocalStatistics(1.0, 1.0, 1.0, 1.0)
    uploads = {
        client: Upload((previous + change).astype(np.float32), 1.0, statistics, None)
        for client, change in zip(clients, changes, strict=True)
    }
    num_bits = np.full(count, 4) if bits is None else np.asarray(bits)
    decision = Decision(np.arange(count), num_bits, np.full(count, 1e9))
    return Arrivals(
        uploads,
        np.ones(count) if sizes is None else np.asarray(sizes, dtype=float),
        decision,
        build_codec("model", num_values - buffers, [num_values - buffers]),
        previous,
        num_values - buffers,
        None if errors is None else np.asarray(errors, dtype=float),
        expected,
    )
