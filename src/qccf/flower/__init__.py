"""The same policies and codecs in a Flower federation. Needs the extra `flower`."""

from qccf.flower.apps import client_app, server_app
from qccf.flower.meter import Meter
from qccf.flower.mod import quantize
from qccf.flower.rates import MeasuredRates, RateSource, SimulatedRates
from qccf.flower.strategy import FederationError, QccfStrategy

__all__ = [
    "FederationError",
    "MeasuredRates",
    "Meter",
    "QccfStrategy",
    "RateSource",
    "SimulatedRates",
    "client_app",
    "quantize",
    "server_app",
]
