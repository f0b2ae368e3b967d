"""The registry of attacks: one line per attack."""

from collections.abc import Callable

from qccf.core.contracts import IntArray
from qccf.core.registry import Registry
from qccf.core.streams import stream
from qccf.learning.attacks.label_flip import LabelFlip
from qccf.learning.attacks.lying_statistics import LyingStatistics
from qccf.learning.attacks.noise import Noise
from qccf.learning.attacks.protocol import Attack
from qccf.learning.attacks.scaled_update import ScaledUpdate
from qccf.learning.attacks.sign_flip import SignFlip

ATTACKS: Registry[Callable[..., Attack]] = Registry(
    "attack",
    {
        "none": Attack,
        "scaled-update": ScaledUpdate,
        "sign-flip": SignFlip,
        "label-flip": LabelFlip,
        "noise": Noise,
        "lying-statistics": LyingStatistics,
    },
    methods=("labels", "result"),
    call="Class(**options)",
)
"""An attack may have `Options`, a frozen dataclass, and `section`, the part of `[attack]` that holds them."""


def attackers(seed: int, num_clients: int, wanted: int | list[int]) -> frozenset[int]:
    """The clients that attack: those listed, or as many as wanted, drawn so that more include the ones before."""
    if isinstance(wanted, list):
        return frozenset(wanted)
    order: IntArray = stream(seed, "attackers").permutation(num_clients)
    return frozenset(int(client) for client in order[:wanted])
