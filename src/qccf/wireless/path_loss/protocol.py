"""The interface of a path-loss model."""

from typing import Protocol

from qccf.core.contracts import BoolArray, FloatArray


class PathLoss(Protocol):
    """Large-scale loss between the base station and clients at horizontal distances `distances_m` [client].

    Built as ``Class(carrier_hz=…, base_height_m=…, client_height_m=…)``. A class may state ``distances_m``, the least
    and the largest distance for which it holds; the settings of a cell then keep to them.
    """

    def loss_db(self, distances_m: FloatArray, line_of_sight: BoolArray) -> FloatArray:
        """Path loss of each client, without shadowing."""
        ...

    def line_of_sight_probability(self, distances_m: FloatArray) -> FloatArray:
        """Probability that a client at this distance has line of sight to the base station."""
        ...

    def shadowing_std_db(self, line_of_sight: BoolArray) -> FloatArray:
        """Standard deviation of the log-normal shadowing of each client."""
        ...
