"""The interface of a rate model."""

from typing import Any, Protocol


class RateModel(Protocol):
    """From signal-to-noise ratios (linear, any shape) to rates of the same shape.

    A rate never falls as the ratio rises; it is 0 where nothing can be sent. Built as ``Class(**options)``.
    """

    def rates_bps(self, signal_to_noise: Any, *, bandwidth_hz: float) -> Any:
        """The rate of a channel of this bandwidth over which signal and noise were measured."""
        ...
