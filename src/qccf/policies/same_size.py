"""Same-Size: QCCF for a server that assumes that all datasets are as large as the largest."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from qccf.core.contracts import Constants, Statistics
from qccf.core.options import option
from qccf.policies.qccf import Qccf

Cpu = Literal["follows", "joint"]

NEGLIGIBLE = 1e-15
"""Factor on the energy of the CPU where it is to be ignored. It is not 0, so that a missed deadline still costs ∞."""


@dataclass(frozen=True)
class SameSizeOptions:
    """Options of the policy same-size, besides those of `control`."""

    cpu: Cpu = option(
        "follows",
        "follows: bits and channels are chosen without regard to the CPU's energy, and its frequency follows from the "
        "deadline (the paper's words taken literally); joint: all are chosen together",
    )


class SameSize(Qccf):
    """Decides as if every dataset had the largest size; the energy is charged for the true sizes.

    The paper's baseline optimizes channels and bits, and clients speed up their CPUs to meet the deadline of the
    largest dataset. Read literally, the energy of the CPU is not among what it optimizes. Paper: Section VI, baseline
    (d).
    """

    Options = SameSizeOptions  # type: ignore[assignment]
    section = "same_size"
    also = Qccf
    """It takes the options of this policy as well."""
    colour, marker = "#009E73", "D"

    def __init__(self, constants: Constants, *, rounds: int, cpu: Cpu = "follows", **options: Any) -> None:
        SameSizeOptions(cpu)
        if cpu == "follows":
            constants = replace(constants, energy_coefficient=NEGLIGIBLE * constants.energy_coefficient)
            if constants.step_energies_j is not None:
                constants = replace(constants, step_energies_j=NEGLIGIBLE * constants.step_energies_j)
        super().__init__(constants, rounds=rounds, **options)

    def assumed(self, statistics: Statistics) -> Statistics:
        sizes = statistics.dataset_sizes
        return replace(statistics, dataset_sizes=np.full_like(sizes, sizes.max()))
