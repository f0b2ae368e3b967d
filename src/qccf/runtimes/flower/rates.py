"""Where a federation's rates come from: the simulated cell, or the uploads that it really saw."""

from typing import Any, Protocol

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.wireless.cell import Cell

SMOOTHING = 0.3
"""Weight of the newest upload in the running mean."""

SHORTEST_S = 0.5
"""Polling blurs a shorter time: then a link is only known to be at least so fast."""

FORGETTING = 0.05
"""A round without an upload takes an estimate so far back to where it began.

Else a client that was once found too slow for the deadline would get no work, and no chance to show another rate."""


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
        """Take up such a state; an empty one is of another source and changes nothing."""
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
    """Bits over seconds of each client's last uploads, smoothed; before its first one, the simulated cell's mean.

    A real network shows no channels to choose from, so that a client has the same rate on each.
    """

    def __init__(self, cell: Cell) -> None:
        self._num_channels = cell.radio.num_channels
        self._first = cell.round_rates_bps(0).mean(axis=1)
        self._rates = self._first.copy()
        self._round = 0
        self._heard = np.full(len(self._rates), -1)
        """The round of each client's last upload, -1 before its first."""

    def rates_bps(self, round_index: int) -> FloatArray:
        self._round = round_index
        kept = (1.0 - FORGETTING) ** np.maximum(0, round_index - 1 - self._heard)
        return np.repeat(_mean_rate(kept, self._rates, self._first)[:, None], self._num_channels, axis=1)

    def heard(self, client: int, num_bits: float, seconds: float) -> None:
        if not -SHORTEST_S <= seconds < np.inf:
            return  # somebody has set a clock
        newest = num_bits / max(seconds, SHORTEST_S)
        if seconds < SHORTEST_S:
            self._rates[client] = max(self._rates[client], newest)
        else:
            weight = SMOOTHING if self._heard[client] >= 0 else 1.0
            self._rates[client] = _mean_rate(weight, newest, self._rates[client])
        self._heard[client] = self._round

    def state(self) -> dict[str, Any]:
        return {"rates_bps": self._rates.tolist(), "heard": self._heard.tolist(), "round": self._round}

    def restore(self, state: dict[str, Any]) -> None:
        if state:
            self._rates = np.array(state["rates_bps"], dtype=np.float64)
            self._heard = np.array(state["heard"], dtype=np.int64)
            self._round = state["round"]


def _mean_rate(weight: Any, first: Any, second: Any) -> Any:
    """Times average over uploads, not rates: the harmonic mean is what a future upload takes."""
    return 1.0 / (weight / first + (1.0 - weight) / second)
