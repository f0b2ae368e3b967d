"""All rate models by name. To add one, write a file and add a line here."""

from qccf.core.registry import Registry
from qccf.wireless.rates.mcs import Mcs
from qccf.wireless.rates.protocol import RateModel
from qccf.wireless.rates.shannon import Shannon
from qccf.wireless.rates.shannon_gap import ShannonGap

RATE_MODELS: Registry[type[RateModel]] = Registry(
    "rate model",
    {"shannon": Shannon, "shannon-gap": ShannonGap, "mcs": Mcs},
    methods=("rates_bps",),
    call="Class(**options)",
)
"""A model with options is a frozen dataclass of them; `section` names their section in the settings' `radio`."""
