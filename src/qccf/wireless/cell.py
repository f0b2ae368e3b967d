"""The cell: positions of the clients, and their rates in each round, true and as the server estimates them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray
from qccf.core.streams import stream
from qccf.core.units import db_to_linear
from qccf.wireless.fading import GaussMarkov, rician_power_gains
from qccf.wireless.neighbours import Neighbours
from qccf.wireless.placement import Ring, walked_positions_m
from qccf.wireless.radio import Radio
from qccf.wireless.traces.trace import Trace

LUCKY_SHADOW = 5.0
"""The shadowing that a walking client may hope for, in standard deviations."""


@dataclass(frozen=True)
class Walk:
    """Clients walk `step_m` between two rounds; their shadowing decorrelates over `decorrelation_m`.

    The correlation of the shadowing of two rounds is exp(-step/decorrelation). 3GPP TR 38.901, 7.4.4.
    """

    step_m: float
    decorrelation_m: float

    @property
    def shadow_correlation(self) -> float:
        return float(np.exp(-self.step_m / self.decorrelation_m))


@dataclass(frozen=True)
class Cell:
    """Clients at their first positions. `mean_gains` is h_Gain·h_Loss of the paper there, fixed unless clients walk.

    Everything in a round depends only on the seed and the round, so a resumed run sees the same channels. With a
    `trace` its gains or rates replace those of the model.
    """

    radio: Radio
    positions_m: FloatArray
    in_sight: BoolArray
    mean_gains: FloatArray
    seed: int
    ring: Ring
    sight_draws: FloatArray
    shadow_draws: FloatArray
    walk: Walk | None = None
    neighbours: Neighbours | None = None
    trace: Trace | None = None

    @property
    def distances_m(self) -> FloatArray:
        return np.hypot(self.positions_m[:, 0], self.positions_m[:, 1])

    def round_rates_bps(self, round_index: int) -> FloatArray:
        """The true rates [client, channel] of a round."""
        if self.trace is not None and self.trace.rates_bps is not None:
            return self.trace.at(self.trace.rates_bps, round_index, self.radio.num_channels)
        return self.radio.rates_bps(self._gains(round_index), self._interference_w(round_index))

    def estimated_rates_bps(self, round_index: int) -> FloatArray:
        """The rates with which the server decides a round.

        The server knows the channel of `estimate_age` rounds ago (before that, of the first round), with an error of
        each gain that is normal in decibels, and takes `backoff_db` off it. Where a trace states rates and no gains,
        error and back-off apply to the rates.
        """
        radio = self.radio
        if not radio.is_estimated:
            return self.round_rates_bps(round_index)
        known = max(round_index - radio.estimate_age, 0)
        rng = stream(self.seed, "channel-estimate", round_index)
        errors_db = radio.estimate_error_db * rng.standard_normal((len(self.mean_gains), radio.num_channels))
        factors = db_to_linear(errors_db - radio.backoff_db)
        if self.trace is not None and self.trace.rates_bps is not None:
            return self.round_rates_bps(known) * factors
        return radio.rates_bps(self._gains(known) * factors, self._interference_w(known))

    def best_rates_bps(self, fading: float) -> FloatArray:
        """The highest rate that each client can hope for where fading reaches this power gain."""
        radio = self.radio
        if self.trace is not None:
            best = self.trace.values.max(axis=(0, 2))
            return best if self.trace.gains is None else radio.rates_bps(best * db_to_linear(radio.gain_db))
        gains = self.mean_gains
        if self.walk is not None:
            nearest_m = np.full(len(gains), self.ring.distance_min_m)
            gains = radio.mean_gains(nearest_m, self.sight_draws, np.full(len(gains), -LUCKY_SHADOW))[0]
        return radio.rates_bps(gains * fading)

    def _gains(self, round_index: int) -> FloatArray:
        if self.trace is not None and self.trace.gains is not None:
            gains = self.trace.at(self.trace.gains, round_index, self.radio.num_channels)
            return gains * db_to_linear(self.radio.gain_db)
        fading = rician_power_gains(
            self._scattered.at(round_index),
            rician_k=self.radio.rician_k,
            mean_power=self.radio.fading_mean_power,
        )
        return np.asarray(self._round_mean_gains(round_index)[:, None] * fading)

    def _round_mean_gains(self, round_index: int) -> FloatArray:
        if self.walk is None:
            return self.mean_gains
        here_m = walked_positions_m(self.positions_m, self.walk.step_m * round_index, self.ring, self.seed)
        distances_m = np.maximum(np.hypot(here_m[:, 0], here_m[:, 1]), self.ring.distance_min_m)
        return self.radio.mean_gains(distances_m, self.sight_draws, self._shadows.at(round_index))[0]

    def _interference_w(self, round_index: int) -> FloatArray | float:
        return 0.0 if self.neighbours is None else self.neighbours.interference_w(self.radio, self.seed, round_index)

    @cached_property
    def _scattered(self) -> GaussMarkov:
        shape = (2, len(self.mean_gains), self.radio.num_channels)

        def draw(round_index: int) -> FloatArray:
            return stream(self.seed, "channel", round_index).standard_normal(shape)

        return GaussMarkov(self.radio.fading_correlation, draw, kept=self.radio.estimate_age + 2)

    @cached_property
    def _shadows(self) -> GaussMarkov:
        def draw(round_index: int) -> FloatArray:
            if round_index == 0:
                return self.shadow_draws
            return stream(self.seed, "shadowing", round_index).standard_normal(len(self.mean_gains))

        correlation = 0.0 if self.walk is None else self.walk.shadow_correlation
        return GaussMarkov(correlation, draw, kept=self.radio.estimate_age + 2)


def place_clients(
    radio: Radio,
    *,
    num_clients: int,
    radius_m: float,
    distance_min_m: float,
    seed: int,
    walk: Walk | None = None,
    neighbours: Neighbours | None = None,
    trace: Trace | None = None,
    positions_m: Sequence[Sequence[float]] | FloatArray = (),
) -> Cell:
    """Place clients uniformly in a ring around the base station, from `distance_min_m` to `radius_m`.

    `positions_m` [client, (x, y)] places them there instead; sight and shadowing are drawn as for any other place.
    """
    ring = Ring(radius_m, distance_min_m)
    rng = stream(seed, "placement")
    distances_m, angles = ring.draw(rng, num_clients)
    places_m = ring.positions_m(distances_m, angles)
    if len(positions_m):
        places_m = np.array(positions_m, dtype=float)
        distances_m = np.hypot(places_m[:, 0], places_m[:, 1])
    sight_draws = rng.random(num_clients)
    shadow_draws = rng.standard_normal(num_clients)
    mean_gains, in_sight = radio.mean_gains(distances_m, sight_draws, shadow_draws)
    return Cell(
        radio=radio,
        positions_m=places_m,
        in_sight=in_sight,
        mean_gains=mean_gains,
        seed=seed,
        ring=ring,
        sight_draws=sight_draws,
        shadow_draws=shadow_draws,
        walk=walk,
        neighbours=neighbours,
        trace=trace,
    )
