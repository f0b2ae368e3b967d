"""Where a federation's rates come from: the simulated cell, or the uploads that it really saw."""

from typing import Any, Protocol

import numpy as np

from qccf.contracts import FloatArray
from qccf.wireless.cell import Cell

SMOOTHING = 0.3
"""Weight of the newest upload in the running mean."""

SHORTEST_S = 1e-3
"""A difference of clocks below this says nothing about a link."""


class RateSource(Protocol):
    """Rates [client, channel] of each round."""

    def rates_bps(self, round_index: int) -> FloatArray:
        """What the server believes of the links before it decides."""
        ...

    def heard(self, client: int, num_bits: float, seconds: float) -> None:
        """An upload of so many bits took so long."""
        ...

    def state(self) -> dict[str, Any]:
        """What a resumed run needs, as plain values."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Take up such a state."""
        ...


class SimulatedRates:
    """The rates of the simulated cell, the same as in the simulator."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def rates_bps(self, round_index: int) -> FloatArray:
        return self._cell.round_rates_bps(round_index)

    def heard(self, client: int, num_bits: float, seconds: float) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


class MeasuredRates:
    """Bits over seconds of each client's last uploads, smoothed; until its first one, the simulated cell's mean.

    A real network shows no channels to choose from, so that a client has the same rate on each.
    """

    def __init__(self, cell: Cell) -> None:
        self._num_channels = cell.radio.num_channels
        self._rates = cell.round_rates_bps(0).mean(axis=1)
        self._seen = np.zeros(len(self._rates), dtype=bool)

    def rates_bps(self, round_index: int) -> FloatArray:
        return np.repeat(self._rates[:, None], self._num_channels, axis=1)

    def heard(self, client: int, num_bits: float, seconds: float) -> None:
        if not seconds >= SHORTEST_S:
            return
        newest = num_bits / seconds
        weight = SMOOTHING if self._seen[client] else 1.0
        # Times average over uploads, not rates: the harmonic mean is what a future upload takes.
        self._rates[client] = 1.0 / (weight / newest + (1.0 - weight) / self._rates[client])
        self._seen[client] = True

    def state(self) -> dict[str, Any]:
        return {"rates_bps": self._rates.tolist(), "seen": self._seen.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        self._rates = np.array(state["rates_bps"], dtype=np.float64)
        self._seen = np.array(state["seen"], dtype=bool)
