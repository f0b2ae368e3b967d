"""Path loss and line of sight of Sionna (NVIDIA), an independent implementation of TR 38.901, for comparison."""

from typing import Any

import numpy as np


def links(name: str, in_sight: bool | None, distances_m: np.ndarray, carrier_hz: float, base_m: float, client_m: float):
    """Path loss in dB without shadowing, and line-of-sight probability, of clients at these distances."""
    import torch
    from sionna.phy.channel.tr38901 import PanelArray
    from sionna.phy.channel.tr38901.inh_scenario import InHScenario
    from sionna.phy.channel.tr38901.uma_scenario import UMaScenario
    from sionna.phy.channel.tr38901.umi_scenario import UMiScenario

    array = PanelArray(
        num_rows_per_panel=1,
        num_cols_per_panel=1,
        polarization="single",
        polarization_type="V",
        antenna_pattern="omni",
        carrier_frequency=carrier_hz,
        precision="double",
    )
    common: dict[str, Any] = {"ut_array": array, "bs_array": array, "direction": "uplink", "precision": "double"}
    if name.startswith("inh"):
        scene = InHScenario(carrier_hz, "open" if name == "inh-open" else "mixed", **common)
    else:
        scene = {"umi": UMiScenario, "uma": UMaScenario}[name](carrier_hz, "low", **common)
    count = len(distances_m)
    places = torch.zeros(1, count, 3, dtype=torch.float64)
    places[0, :, 0], places[0, :, 2] = torch.from_numpy(distances_m), client_m
    base = torch.tensor([[[0.0, 0.0, base_m]]], dtype=torch.float64)
    still, indoors = torch.zeros(1, count, 3, dtype=torch.float64), torch.full((1, count), name.startswith("inh"))
    los = None if in_sight is None else torch.full((1, 1, count), in_sight)
    scene.set_topology(places, base, still, torch.zeros(1, 1, 3, dtype=torch.float64), still, indoors, los=los)
    return scene.basic_pathloss.numpy()[0, 0], scene.los_probability.numpy()[0, 0]
