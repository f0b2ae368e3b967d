"""Sources of a federation's rates: the simulated cell, or the measured uploads."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from qccf.core.contracts import Constants, Decision, FloatArray
from qccf.devices.power import rates_at_power_bps
from qccf.wireless.cell import Cell

SMOOTHING = 0.3
"""Weight of the newest upload in the running mean."""

SHORTEST_S = 0.5
"""Polling makes shorter times inexact. A shorter upload only gives a lower bound of the rate."""

FORGETTING = 0.05
"""Share by which an estimate returns to its first value in each round without an upload.

Otherwise a client that was once too slow for the deadline would never be scheduled and measured again."""


class RateSource(Protocol):
    """Rates [client, channel] of each round."""

    def rates_bps(self, round_index: int) -> FloatArray:
        """The rates with which the server decides the round."""
        ...

    def record_upload(self, client: int, num_bits: float, seconds: float) -> None:
        """Take note of the size and the duration of an upload."""
        ...

    def state(self) -> dict[str, Any]:
        """The values that a resumed run needs, as JSON types."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from such a state. The empty state of another source changes nothing."""
        ...


class SimulatedRates:
    """The rates of the simulated cell, as in the simulator."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def rates_bps(self, round_index: int) -> FloatArray:
        return self._cell.estimated_rates_bps(round_index)

    def record_upload(self, client: int, num_bits: float, seconds: float) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


class MeasuredRates:
    """Smoothed bits per second of each client's last uploads; the mean of the simulated cell before the first one.

    A real network has no channels to choose from, so a client has the same rate on each channel.
    """

    def __init__(self, cell: Cell) -> None:
        self._num_channels = cell.radio.num_channels
        self._first = cell.round_rates_bps(0).mean(axis=1)
        self._rates = self._first.copy()
        self._round = 0
        self._last_upload = np.full(len(self._rates), -1)
        """The round of each client's last upload, -1 before its first."""

    def rates_bps(self, round_index: int) -> FloatArray:
        self._round = round_index
        kept = (1.0 - FORGETTING) ** np.maximum(0, round_index - 1 - self._last_upload)
        return np.repeat(_mean_rate(kept, self._rates, self._first)[:, None], self._num_channels, axis=1)

    def record_upload(self, client: int, num_bits: float, seconds: float) -> None:
        if not -SHORTEST_S <= seconds < np.inf:
            return  # a clock was set in between
        newest = num_bits / max(seconds, SHORTEST_S)
        if seconds < SHORTEST_S:
            self._rates[client] = max(self._rates[client], newest)
        else:
            weight = SMOOTHING if self._last_upload[client] >= 0 else 1.0
            self._rates[client] = _mean_rate(weight, newest, self._rates[client])
        self._last_upload[client] = self._round

    def state(self) -> dict[str, Any]:
        return {"rates_bps": self._rates.tolist(), "last_upload": self._last_upload.tolist(), "round": self._round}

    def restore(self, state: dict[str, Any]) -> None:
        if state:
            self._rates = np.array(state["rates_bps"], dtype=np.float64)
            self._last_upload = np.array(state["last_upload"], dtype=np.int64)
            self._round = state["round"]


SOURCES: dict[str, Callable[[Cell], RateSource]] = {"simulated": SimulatedRates, "measured": MeasuredRates}


def throttled_rates_bps(cell: Cell, round_index: int, decision: Decision, constants: Constants) -> FloatArray:
    """The cell's rate of each client on its channel with its power."""
    full_bps = cell.round_rates_bps(round_index)[np.arange(len(decision.channels)), decision.channels]
    if decision.powers_w is None:
        return full_bps
    return np.asarray(rates_at_power_bps(full_bps, decision.powers_w, constants))


def _mean_rate(weight: Any, first: Any, second: Any) -> Any:
    """The harmonic mean, because the duration of the next upload is the mean of durations and not of rates."""
    return 1.0 / (weight / first + (1.0 - weight) / second)
