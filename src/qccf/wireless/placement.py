"""Where clients are: uniform in a ring around the base station, standing or walking."""

from dataclasses import dataclass

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.streams import stream


@dataclass(frozen=True, slots=True)
class Ring:
    """The area of a cell: from `distance_min_m` to `radius_m` around its base station."""

    radius_m: float
    distance_min_m: float

    def draw(self, rng: np.random.Generator, shape: int | tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Distances and angles of points that are uniform in the ring."""
        distances_m = np.sqrt(rng.uniform(self.distance_min_m**2, self.radius_m**2, shape))
        return distances_m, rng.uniform(0.0, 2.0 * np.pi, shape)

    @staticmethod
    def positions_m(distances_m: FloatArray, angles: FloatArray) -> FloatArray:
        """The points as positions […, 2]."""
        return np.stack([distances_m * np.cos(angles), distances_m * np.sin(angles)], axis=-1)


def walked_positions_m(start_m: FloatArray, walked_m: float, ring: Ring, seed: int) -> FloatArray:
    """Positions [client, 2] of clients that have walked this far from point to point (random waypoints).

    Each client goes straight to a point that is uniform in the ring, then to another. Waypoint k of all clients comes
    from the stream ("walk", k), so a position depends only on the seed and the distance.
    """
    here_m, left_m = start_m.copy(), np.full(len(start_m), walked_m)
    leg = 0
    while (left_m > 0.0).any():
        leg += 1
        legs_m = ring.positions_m(*ring.draw(stream(seed, "walk", leg), len(start_m))) - here_m
        lengths_m = np.hypot(legs_m[:, 0], legs_m[:, 1])
        gone_m = np.minimum(left_m, lengths_m)
        here_m = here_m + legs_m * (gone_m / np.maximum(lengths_m, 1e-12))[:, None]
        left_m = left_m - gone_m
    return here_m
