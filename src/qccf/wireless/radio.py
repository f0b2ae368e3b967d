"""The radio: what is the same for all clients of a cell, and the rate of a channel with a given gain."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray, PerClient
from qccf.core.units import db_to_linear
from qccf.wireless.path_loss.protocol import PathLoss
from qccf.wireless.path_loss.registry import PATH_LOSSES
from qccf.wireless.rates.protocol import RateModel

LineOfSight = Literal["always", "never", "random"]

BLOCK_SUBCARRIERS = 12
SUBCARRIER_HZ = 15e3


def resource_blocks_hz(count: int, numerology: int) -> float:
    """Bandwidth of adjacent resource blocks: 12 subcarriers of 15 kHz·2^μ each. 3GPP TS 38.211, 4.2 and 4.4.4.1."""
    return count * BLOCK_SUBCARRIERS * SUBCARRIER_HZ * 2.0**numerology


@dataclass(frozen=True, slots=True)
class Radio:
    """The settings of a cell. All are linear SI except those in decibels. Clients may differ in transmit power only.

    `path_loss` is a name of `PATH_LOSSES` or a user's own `module:Class`. `noise_w_per_hz` includes the margin for
    interference. The last three describe what the server knows: see `Cell.estimated_rates_bps`.
    """

    num_channels: int
    bandwidth_hz: float
    transmit_power_w: PerClient
    noise_w_per_hz: float
    gain_db: float
    path_loss: str
    line_of_sight: LineOfSight
    shadowing: bool
    carrier_hz: float
    base_height_m: float
    client_height_m: float
    rician_k: float
    fading_mean_power: float
    rate_model: RateModel
    fading_correlation: float = 0.0
    estimate_error_db: float = 0.0
    estimate_age: int = 0
    backoff_db: float = 0.0

    @property
    def is_estimated(self) -> bool:
        """Whether the server decides with rates that may differ from the true ones."""
        return bool(self.estimate_age or self.estimate_error_db or self.backoff_db)

    def path_loss_model(self) -> PathLoss:
        model: PathLoss = PATH_LOSSES.build(
            self.path_loss,
            carrier_hz=self.carrier_hz,
            base_height_m=self.base_height_m,
            client_height_m=self.client_height_m,
        )
        return model

    def mean_gains(
        self, distances_m: FloatArray, sight_draws: FloatArray, shadow_draws: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """Mean gain h_Gain·h_Loss at each distance, and whether there is line of sight.

        `sight_draws` are uniform in [0, 1), `shadow_draws` standard normal. There is line of sight where its
        probability exceeds the draw, so a client that walks and keeps its draw comes into sight as it comes near.
        """
        model = self.path_loss_model()
        drawn = sight_draws < model.line_of_sight_probability(distances_m)
        count = len(distances_m)
        in_sight = {"always": np.ones(count, dtype=bool), "never": np.zeros(count, dtype=bool)}.get(
            self.line_of_sight, drawn
        )
        shadows_db = shadow_draws * model.shadowing_std_db(in_sight)
        loss_db = model.loss_db(distances_m, in_sight) + (shadows_db if self.shadowing else 0.0)
        return db_to_linear(self.gain_db - loss_db), in_sight

    def rates_bps(self, power_gains: Any, interference_w: Any = 0.0) -> FloatArray:
        """The rate of a channel with this power gain; signal and noise are those of its whole bandwidth."""
        noise_w = self.bandwidth_hz * self.noise_w_per_hz + interference_w
        powers_w = self.transmit_power_w
        if np.ndim(powers_w):  # the gains may also have the channels as an axis
            powers_w = np.reshape(powers_w, (-1,) + (1,) * (np.ndim(power_gains) - 1))
        signal_to_noise = powers_w * np.asarray(power_gains) / noise_w
        return np.asarray(self.rate_model.rates_bps(signal_to_noise, bandwidth_hz=self.bandwidth_hz))
