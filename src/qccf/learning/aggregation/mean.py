"""The weighted mean, in which no change may be much longer than the usual one."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray
from qccf.core.options import option
from qccf.learning.aggregation.protocol import AggregationState, Combined, Updates

LEAST_KNOWN = 3
"""Nothing is clipped before the lengths of this many clients are known: of two, either may be the wrong one."""

LEAST_SIGNAL = 0.1
"""The share of a squared length that counts as signal where noise may be all of it.

The usual noise is not the client's own, so their difference may be far below the signal, or below 0.
"""

LASTING, LASTING_SHARE = 3, 0.5
"""So many changes in a row that are longer than this share of the limit are too long."""


@dataclass(frozen=True)
class MeanOptions:
    """The weighted mean."""

    most_norm: float = option(
        6.0,
        "a change longer than this many times the usual length, or the third in a row longer than half of that, is "
        "clipped to the usual length; 0 clips nothing",
        ge=0,
        le=1e6,
    )


class Mean:
    """Σ w_i·f_i·Δ_i with w_i the client's share of the data; f_i = ℓ_i/‖Δ_i‖ where a change is too long, else 1.

    A change is too long above c·ℓ_i, and above c·ℓ_i/2 if the client's last two were that long, too: the first rounds
    of an honest client may be long, but not one after the other. It is clipped to the usual length ℓ_i and not to the
    limit: one attacker among ten that counts as much as four honest clients can turn the sum around.

    ℓ_i² = S² + E(q_i). E(q) is the median over clients of the squared error that they forecast for q bits: coarse
    uploads are longer because of their noise. S² is the median over clients of ‖Δ_j‖² − E(q_j), at least 0.1·‖Δ_j‖², at
    each client's last arrival, so that each has one vote, also in rounds in which few arrive. Where no change is too
    long the result is the plain mean to the bit. Buffers have lengths and limits of their own, without E.

    State: the last vote of each client for S², and the squared length of its buffers, NaN before its first arrival; and
    how many of its last changes in a row were longer than half of the limit.
    """

    Options = MeanOptions
    section = "mean"

    def __init__(self, **options: Any) -> None:
        self.options = MeanOptions(**options)

    def init(self, num_clients: int) -> AggregationState:
        if self.options.most_norm == 0.0:
            return {}
        unknown = np.full(num_clients, np.nan)
        return {"parameters_sq": unknown, "buffers_sq": unknown.copy(), "long_in_a_row": np.zeros(num_clients)}

    def combine(self, state: AggregationState, updates: Updates) -> tuple[Combined, AggregationState]:
        if self.options.most_norm == 0.0:
            return self._combined(updates, np.ones(len(updates.clients)), np.ones(len(updates.clients))), state
        clients, noise = list(updates.clients), updates.quantization_errors
        lengths, buffers = updates.norms()
        votes, buffer_votes = state["parameters_sq"].copy(), state["buffers_sq"].copy()
        squares = np.square(lengths)
        votes[clients] = np.maximum(squares - noise, LEAST_SIGNAL * squares)
        buffer_votes[clients] = np.square(buffers)
        in_a_row = state["long_in_a_row"].copy()
        usual, usual_buffers = _usual(votes, noise), _usual(buffer_votes, np.zeros_like(noise))
        is_long = lengths > LASTING_SHARE * self.options.most_norm * usual
        in_a_row[clients] = np.where(is_long & (usual > 0.0), in_a_row[clients] + 1.0, 0.0)
        factors = self._factors(lengths, usual, in_a_row[clients] >= LASTING)
        buffer_factors = self._factors(buffers, usual_buffers, np.zeros(len(clients), dtype=bool))
        after = {"parameters_sq": votes, "buffers_sq": buffer_votes, "long_in_a_row": in_a_row}
        return self._combined(updates, factors, buffer_factors, lengths), after

    def _factors(self, lengths: FloatArray, usual: FloatArray, lasting: BoolArray) -> FloatArray:
        """What remains of each change; 1 where the usual length is unknown or 0."""
        limits = self.options.most_norm * usual
        long = (limits > 0.0) & ((lengths > limits) | lasting)
        return np.where(long, np.minimum(usual, limits) / np.where(long, lengths, 1.0), 1.0)

    def _combined(
        self, updates: Updates, factors: FloatArray, buffer_factors: FloatArray, lengths: FloatArray | None = None
    ) -> Combined:
        untouched = bool((factors == 1.0).all() and (buffer_factors == 1.0).all())
        model = updates.mean() if untouched else updates.shrunk_mean(factors, buffer_factors)

        def mean_norm_sq() -> float:
            known = updates.norms()[0] if lengths is None else lengths
            return float(np.dot(updates.shares, np.square(factors * known)))

        return Combined(model, np.minimum(factors, buffer_factors), mean_norm_sq)


def _usual(votes: FloatArray, noise: FloatArray) -> FloatArray:
    """The usual length of each change that arrived, infinite where too few are known."""
    known = votes[np.isfinite(votes)]
    return np.sqrt((float(np.median(known)) if len(known) >= LEAST_KNOWN else np.inf) + noise)
