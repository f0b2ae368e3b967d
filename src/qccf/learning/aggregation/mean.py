"""The weighted mean, in which no change may be much longer than the usual one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray
from qccf.core.options import option
from qccf.learning.aggregation.protocol import AggregationState, Combined, Updates

LEAST_KNOWN = 3
"""The lengths of so many clients must be known to tell the usual one: of two, either may be the wrong one."""

LEAST_SIGNAL = 0.1
"""The share of a squared length that counts as signal where noise may be all of it.

The usual noise is not the client's own, so their difference may be far below the signal, or below 0.
"""

LASTING, LASTING_SHARE = 3, 0.5
"""A client whose changes are longer than this share of the limit gets a strike for each, and from so many strikes on
such changes are too long. A shorter change takes a strike back."""

HEAVY = 2.0
"""A client with more than so many times the usual data has a limit that is lower by as much as it has more, because
what it adds to the sum is its length times its data."""


@dataclass(frozen=True)
class MeanOptions:
    """The weighted mean."""

    most_norm: float = option(
        6.0,
        "a change longer than this many times the usual length, or the third one longer than half of that, is clipped "
        "to the usual length; 0 clips nothing",
        ge=0,
        le=1e6,
    )


class Judged(NamedTuple):
    """What remains of each change that arrived, of its parameters and of its buffers, and the lengths themselves."""

    factors: FloatArray
    buffer_factors: FloatArray
    lengths: FloatArray | None = None


class Mean:
    """Σ w_i·f_i·Δ_i with w_i the client's share of the data; f_i = ℓ_i/‖Δ_i‖ where a change is too long, else 1.

    A change is too long above c·ℓ_i/h_i, and above half of that if the client has three strikes for such changes: the
    first rounds of an honest client may be long, but not many of them. h_i = max(1, D_i/2D) for a client with more than
    twice the usual data D. A change is clipped to the usual length ℓ_i and not to the limit: one attacker among ten
    that counts as much as four honest clients can turn the sum around.

    ℓ_i² = S² + E(q_i). E(q) is the median over clients of the squared error that they forecast for q bits: coarse
    uploads are longer because of their noise. S² is the median over clients of ‖Δ_j‖² − E(q_j), at least 0.1·‖Δ_j‖², at
    each client's last arrival, so that each has one vote, also in rounds in which few arrive. Before three clients have
    voted, S² is what the clients' gradients let expect. Where no change is too long the result is the plain mean to the
    bit. Buffers have lengths and limits of their own, without E.

    State: the last vote of each client for S², and the squared length of its buffers, NaN before its first arrival; and
    its strikes.
    """

    Options = MeanOptions
    section = "mean"

    def __init__(self, **options: Any) -> None:
        self.options = MeanOptions(**options)

    def init(self, num_clients: int) -> AggregationState:
        if self.options.most_norm == 0.0:
            return {}
        unknown = np.full(num_clients, np.nan)
        return {"parameters_sq": unknown, "buffers_sq": unknown.copy(), "strikes": np.zeros(num_clients)}

    def combine(self, state: AggregationState, updates: Updates) -> tuple[Combined, AggregationState]:
        if self.options.most_norm == 0.0:
            whole = np.ones(len(updates.clients))
            return self.combined(updates, Judged(whole, whole)), state
        judged, after = self.judged(state, updates)
        return self.combined(updates, judged), after

    def judged(self, state: AggregationState, updates: Updates) -> tuple[Judged, AggregationState]:
        """How much of each change counts, and the next state."""
        clients, noise = list(updates.clients), updates.quantization_errors
        lengths, buffers = updates.norms()
        votes, buffer_votes = state["parameters_sq"].copy(), state["buffers_sq"].copy()
        squares = np.square(lengths)
        votes[clients] = np.maximum(squares - noise, LEAST_SIGNAL * squares)
        buffer_votes[clients] = np.square(buffers)
        usual = _usual(votes, noise, updates.expected_norm_sq)
        usual_buffers = _usual(buffer_votes, np.zeros_like(noise), np.inf)
        limits = self.options.most_norm * usual / np.maximum(1.0, updates.relative_sizes / HEAVY)
        is_long = (lengths > LASTING_SHARE * limits) & (limits > 0.0)
        strikes = state["strikes"].copy()
        strikes[clients] = np.clip(strikes[clients] + np.where(is_long, 1.0, -1.0), 0.0, 2.0 * LASTING)
        factors = self._factors(lengths, usual, limits, is_long & (strikes[clients] >= LASTING))
        buffer_limits = self.options.most_norm * usual_buffers
        buffer_factors = self._factors(buffers, usual_buffers, buffer_limits, np.zeros(len(clients), dtype=bool))
        after = {"parameters_sq": votes, "buffers_sq": buffer_votes, "strikes": strikes}
        return Judged(factors, buffer_factors, lengths), after

    def _factors(self, lengths: FloatArray, usual: FloatArray, limits: FloatArray, lasting: BoolArray) -> FloatArray:
        """What remains of each change; 1 where the usual length is unknown or 0."""
        long = (limits > 0.0) & ((lengths > limits) | lasting)
        clipped = np.minimum(usual, self.options.most_norm * usual)
        return np.where(long, np.minimum(1.0, clipped / np.where(long, lengths, 1.0)), 1.0)

    def combined(self, updates: Updates, judged: Judged) -> Combined:
        """The mean of what remains of the changes."""
        factors, buffer_factors, lengths = judged
        untouched = bool((factors == 1.0).all() and (buffer_factors == 1.0).all())
        model = updates.mean() if untouched else updates.shrunk_mean(factors, buffer_factors)

        def mean_norm_sq() -> float:
            known = updates.norms()[0] if lengths is None else lengths
            return float(np.dot(updates.shares, np.square(factors * known)))

        return Combined(model, np.minimum(factors, buffer_factors), mean_norm_sq)


CLIPPED_MEAN = Mean()
"""What other rules use where too few changes arrive to tell which of them is hostile."""


def of_many(
    state: AggregationState, updates: Updates, combine: Callable[[Updates], Combined]
) -> tuple[Combined, AggregationState]:
    """A rule that needs at least three changes; with fewer the clipped mean stands for it.

    The state is that of the clipped mean, which so knows the usual length before it is needed.
    """
    judged, after = CLIPPED_MEAN.judged(state, updates)
    few = len(updates.clients) < LEAST_KNOWN
    return CLIPPED_MEAN.combined(updates, judged) if few else combine(updates), after


def _usual(votes: FloatArray, noise: FloatArray, expected_sq: float) -> FloatArray:
    """The usual length of each change that arrived; infinite where too few are known and nothing is expected.

    What is expected counts only until three have voted: with two clients it would count for ever, and it may be wrong.
    """
    known = votes[np.isfinite(votes)]
    if len(votes) < LEAST_KNOWN:
        expected_sq = np.inf
    return np.sqrt((float(np.median(known)) if len(known) >= LEAST_KNOWN else expected_sq) + noise)
