"""A flipped sign: the change points away from where training went."""

from dataclasses import dataclass

from qccf.core.options import option
from qccf.learning.attacks.scaled_update import ScaledUpdate


@dataclass(frozen=True)
class SignFlipOptions:
    """A flipped sign."""

    scale: float = option(1.0, "factor of the flipped change", ge=0, le=1e9)


class SignFlip(ScaledUpdate):
    """θ − s·Δ in place of θ + Δ. With s = 1 its length is an honest one."""

    Options = SignFlipOptions
    section = "sign_flip"
    sign = -1.0
