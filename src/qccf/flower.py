"""The policies and codecs in a Flower federation. Needs the extra `flower`.

Names load on first use: in a deployment each message starts a client process, which does not need the server's modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "FederationError": "qccf.core.errors",
    "MeasuredRates": "qccf.runtimes.flower.rates",
    "Meter": "qccf.runtimes.flower.meter",
    "QccfStrategy": "qccf.runtimes.flower.strategy",
    "RateSource": "qccf.runtimes.flower.rates",
    "SimulatedRates": "qccf.runtimes.flower.rates",
    "client_app": "qccf.runtimes.flower.client",
    "quantize": "qccf.runtimes.flower.mod",
    "server_app": "qccf.runtimes.flower.server",
}

__all__ = [*_HOMES]

if TYPE_CHECKING:
    from qccf.core.errors import FederationError
    from qccf.runtimes.flower.client import client_app
    from qccf.runtimes.flower.meter import Meter
    from qccf.runtimes.flower.mod import quantize
    from qccf.runtimes.flower.rates import MeasuredRates, RateSource, SimulatedRates
    from qccf.runtimes.flower.server import server_app
    from qccf.runtimes.flower.strategy import QccfStrategy


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'qccf.flower' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
