"""The registry of server optimizers: one line per optimizer."""

from collections.abc import Callable

from qccf.core.registry import Registry
from qccf.learning.server.average import Average
from qccf.learning.server.fedadam import FedAdam
from qccf.learning.server.fedavgm import FedAvgM
from qccf.learning.server.fedexp import FedExP
from qccf.learning.server.fedyogi import FedYogi
from qccf.learning.server.protocol import ServerOptimizer

SERVER_OPTIMIZERS: Registry[Callable[..., ServerOptimizer]] = Registry(
    "server optimizer",
    {
        "average": Average,
        "fedavgm": FedAvgM,
        "fedadam": FedAdam,
        "fedyogi": FedYogi,
        "fedexp": FedExP,
    },
    methods=("init", "step"),
    call="Class(**options)",
)
"""An optimizer may have `Options`, a frozen dataclass, and `section`, the part of `[server]` that holds them."""
