"""Ray-traced channels: complex frequency responses as Sionna RT and DeepMIMO give them, in an .npz or .npy file.

- Sionna RT: `cfr = paths.cfr(…, normalize=False, out_type="numpy")`, saved with `np.savez(file, cfr=cfr)`. Its axes are
  [rx, rx antenna, tx, tx antenna, time step, frequency].
- DeepMIMO: the channel array of one base station, saved with `np.savez(file, channel=…)`. Its axes are
  [user, rx antenna, tx antenna, subcarrier].

The file holds one complex array. The base station is the side with one device (Sionna's tx, or its rx); channels are
reciprocal. A time step is a round; DeepMIMO's scene does not move and is the same in all rounds.

The gain of a channel is the mean of |H|² over its share of the frequencies, which are split evenly in their order, and
over all pairs of antennas. That is a link without beamforming: `radio.gain_db` adds the gain of an array.
"""

from pathlib import Path
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.errors import TraceError
from qccf.wireless.traces.arrays import read_arrays
from qccf.wireless.traces.trace import Trace


def read_ray_traced(path: Path, *, num_clients: int, num_channels: int) -> Trace:  # noqa: ARG001 (one signature)
    """The gains [round, client, channel] of a scene."""
    if path.suffix not in (".npz", ".npy"):
        raise TraceError("does not end in .npz or .npy, which ray-traced channels need.")
    arrays = read_arrays(path)
    if len(arrays) != 1 or next(iter(arrays.values())).dtype.kind != "c":
        kinds = ", ".join(f"{name} ({array.dtype})" for name, array in arrays.items())
        raise TraceError(f"holds {kinds or 'nothing'}, but ray-traced channels are one complex array.")
    (response,) = arrays.values()
    powers = _powers(response)
    frequencies = powers.shape[2]
    if frequencies < num_channels:
        raise TraceError(
            f"has {frequencies} frequencies, fewer than radio.num_channels = {num_channels}: trace more, or lower it."
        )
    parts = np.array_split(powers, num_channels, axis=2)
    return Trace(gains=np.stack([part.mean(axis=2) for part in parts], axis=2))


def _powers(response: Any) -> FloatArray:
    """|H|² [time step, client, frequency], averaged over antennas."""
    if response.ndim == 4:
        return _mean_power(response, (1, 2))[None, :, :]
    if response.ndim != 6:
        raise TraceError(
            f"has an array of shape {response.shape}: Sionna RT has six axes (rx, its antennas, tx, its antennas, "
            "time, frequency), DeepMIMO four (user, rx antennas, tx antennas, subcarrier)."
        )
    powers = _mean_power(response, (1, 3))  # rx, tx, time, frequency
    receivers, transmitters = powers.shape[:2]
    if min(receivers, transmitters) != 1:
        raise TraceError(
            f"has {receivers} receivers and {transmitters} transmitters: one side must be the single base station."
        )
    links = powers[:, 0] if transmitters == 1 else powers[0]
    return np.moveaxis(links, 1, 0)


def _mean_power(response: Any, antennas: tuple[int, ...]) -> FloatArray:
    squared = np.square(response.real.astype(np.float64)) + np.square(response.imag.astype(np.float64))
    return np.asarray(squared.mean(axis=antennas))
