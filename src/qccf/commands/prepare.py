"""Mistakes are found before data is loaded, a round is paid for, or a folder is made."""

from collections.abc import Iterable
from pathlib import Path

from qccf.config import Scenario
from qccf.files import require_writable
from qccf.policies import build_policy
from qccf.quantization.table import build_codec
from qccf.world import build_world


def prepare(scenario: Scenario, policies: Iterable[str], seeds: Iterable[int], out: Path) -> None:
    """Build every policy, the codec and every world once, then make the folder."""
    for name in policies:
        build_policy(name, scenario)
    size = scenario.learning.num_parameters
    build_codec(scenario.codec.name, size, [size], **scenario.codec.options)
    for seed in seeds:
        build_world(scenario, seed)
    require_writable(out)
