"""What was decided when the service was started."""

from dataclasses import dataclass, field
from pathlib import Path

from qccf.service.limits import Limits


@dataclass(frozen=True)
class Setup:
    """The folder of the runs, whether requests may name code of the user's own, and the limits."""

    runs: Path
    allow_plugins: bool = False
    limits: Limits = field(default_factory=Limits)
