"""Interference from neighbouring cells with a stated layout."""

from dataclasses import dataclass

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.streams import stream
from qccf.wireless.placement import Ring
from qccf.wireless.radio import Radio


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Base stations on a circle of `distance_m` around ours, at equal angles; their cells are as large as ours.

    Each neighbour gives each channel to one client of its own with the probability `load`. Such a client is uniform in
    its cell, sends with our clients' mean power, and reaches our base station with the mean gain of the same path-loss
    model, with shadowing where it is on. Who sends is drawn anew in each round.
    """

    count: int
    distance_m: float
    load: float
    ring: Ring

    def interference_w(self, radio: Radio, seed: int, round_index: int) -> FloatArray:
        """Power received from the neighbours' clients on each channel."""
        rng = stream(seed, "interference", round_index)
        shape = (self.count, radio.num_channels)
        angles = 2.0 * np.pi * np.arange(self.count) / self.count
        sites_m = self.distance_m * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        positions_m = sites_m[:, None, :] + self.ring.positions_m(*self.ring.draw(rng, shape))
        distances_m = np.maximum(np.hypot(positions_m[..., 0], positions_m[..., 1]), self.ring.distance_min_m).ravel()
        sight_draws, shadow_draws = rng.random(distances_m.size), rng.standard_normal(distances_m.size)
        gains = radio.mean_gains(distances_m, sight_draws, shadow_draws)[0].reshape(shape)
        sends = rng.random(shape) < self.load
        return np.asarray(float(np.mean(radio.transmit_power_w)) * np.where(sends, gains, 0.0).sum(axis=0))
