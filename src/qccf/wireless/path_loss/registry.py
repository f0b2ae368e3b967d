"""All path-loss models by name. To add one, write a file and add a line here."""

from qccf.core.registry import Registry
from qccf.wireless.path_loss.protocol import PathLoss

PATH_LOSSES: Registry[type[PathLoss]] = Registry(
    "path loss",
    {
        "umi": "qccf.wireless.path_loss.umi:UrbanMicro",
        "uma": "qccf.wireless.path_loss.uma:UrbanMacro",
        "inh": "qccf.wireless.path_loss.inh:MixedOffice",
        "inh-open": "qccf.wireless.path_loss.inh:OpenOffice",
        "log-distance": "qccf.wireless.path_loss.log_distance:LogDistance",
    },
    methods=("loss_db", "line_of_sight_probability", "shadowing_std_db"),
    call="Class(carrier_hz=…, base_height_m=…, client_height_m=…)",
)
