"""From positions and fading to a rate for every client on every channel. Paper: Section IV-A."""

from qccf.wireless.cell import Cell, Radio, place_clients
from qccf.wireless.fading import rician_power_gains
from qccf.wireless.link import rates_bps
from qccf.wireless.path_loss import line_of_sight_probability, path_loss_db, shadowing_std_db

__all__ = [
    "Cell",
    "Radio",
    "line_of_sight_probability",
    "path_loss_db",
    "place_clients",
    "rates_bps",
    "rician_power_gains",
    "shadowing_std_db",
]
