"""The cell: positions of the clients, fixed for the whole run, and their rates in each round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray
from qccf.core.streams import stream
from qccf.core.units import db_to_linear
from qccf.wireless.fading import rician_power_gains
from qccf.wireless.link import rates_bps
from qccf.wireless.path_loss.protocol import PathLoss
from qccf.wireless.path_loss.registry import PATH_LOSSES

LineOfSight = Literal["always", "never", "random"]


@dataclass(frozen=True, slots=True)
class Radio:
    """The settings that are the same for all clients of a cell. All are linear SI except `gain_db`.

    `path_loss` is a name of `PATH_LOSSES` or a user's own `module:Class`.
    """

    num_channels: int
    bandwidth_hz: float
    transmit_power_w: float
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

    def path_loss_model(self) -> PathLoss:
        model: PathLoss = PATH_LOSSES.build(
            self.path_loss,
            carrier_hz=self.carrier_hz,
            base_height_m=self.base_height_m,
            client_height_m=self.client_height_m,
        )
        return model

    def rates_bps(self, power_gains: FloatArray) -> FloatArray:
        return np.asarray(
            rates_bps(
                power_gains,
                transmit_power_w=self.transmit_power_w,
                bandwidth_hz=self.bandwidth_hz,
                noise_w_per_hz=self.noise_w_per_hz,
            )
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """Clients at their positions. `mean_gains` is h_Gain·h_Loss of the paper, fixed for the run."""

    radio: Radio
    positions_m: FloatArray
    in_sight: BoolArray
    mean_gains: FloatArray
    seed: int

    @property
    def distances_m(self) -> FloatArray:
        return np.hypot(self.positions_m[:, 0], self.positions_m[:, 1])

    def round_rates_bps(self, round_index: int) -> FloatArray:
        """Rates [client, channel] of a round. They depend only on the seed and the round."""
        fading = rician_power_gains(
            (len(self.mean_gains), self.radio.num_channels),
            rician_k=self.radio.rician_k,
            mean_power=self.radio.fading_mean_power,
            rng=stream(self.seed, "channel", round_index),
        )
        return self.radio.rates_bps(self.mean_gains[:, None] * fading)


def place_clients(
    radio: Radio,
    *,
    num_clients: int,
    radius_m: float,
    distance_min_m: float,
    seed: int,
    positions_m: Sequence[Sequence[float]] = (),
) -> Cell:
    """Place clients uniformly in a ring around the base station, from `distance_min_m` to `radius_m`.

    `positions_m` [client, (x, y)] places them there instead; sight and shadowing are drawn as for any other place.
    """
    rng = stream(seed, "placement")
    distances_m = np.sqrt(rng.uniform(distance_min_m**2, radius_m**2, num_clients))
    angles = rng.uniform(0.0, 2.0 * np.pi, num_clients)
    places_m = np.column_stack([distances_m * np.cos(angles), distances_m * np.sin(angles)])
    if len(positions_m):
        places_m = np.array(positions_m, dtype=float)
        distances_m = np.hypot(places_m[:, 0], places_m[:, 1])
    model = radio.path_loss_model()
    drawn = rng.random(num_clients) < model.line_of_sight_probability(distances_m)
    in_sight = {"always": np.ones(num_clients, dtype=bool), "never": np.zeros(num_clients, dtype=bool)}.get(
        radio.line_of_sight, drawn
    )
    shadows_db = rng.standard_normal(num_clients) * model.shadowing_std_db(in_sight)
    loss_db = model.loss_db(distances_m, in_sight) + (shadows_db if radio.shadowing else 0.0)
    return Cell(
        radio=radio,
        positions_m=places_m,
        in_sight=in_sight,
        mean_gains=db_to_linear(radio.gain_db - loss_db),
        seed=seed,
    )
