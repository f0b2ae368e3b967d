"""The same policies and codecs in a Flower federation. Needs the extra `flower`.

Names load on first use: in a deployment a client's process lives for one message, and need not load the server's part.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "FederationError": "qccf.flower.strategy",
    "MeasuredRates": "qccf.flower.rates",
    "Meter": "qccf.flower.meter",
    "QccfStrategy": "qccf.flower.strategy",
    "RateSource": "qccf.flower.rates",
    "SimulatedRates": "qccf.flower.rates",
    "client_app": "qccf.flower.apps",
    "quantize": "qccf.flower.mod",
    "server_app": "qccf.flower.apps",
}

__all__ = [*_HOMES]

if TYPE_CHECKING:
    from qccf.flower.apps import client_app, server_app
    from qccf.flower.meter import Meter
    from qccf.flower.mod import quantize
    from qccf.flower.rates import MeasuredRates, RateSource, SimulatedRates
    from qccf.flower.strategy import FederationError, QccfStrategy


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'qccf.flower' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
