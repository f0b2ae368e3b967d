"""Mistakes are found before data is loaded, a round is paid for, or a folder is made."""

from collections.abc import Iterable
from pathlib import Path

from qccf.core.errors import ConfigError
from qccf.core.files import require_writable
from qccf.policies.registry import build_policy
from qccf.quantization.registry import build_codec
from qccf.rounds.world import build_world
from qccf.settings.loading import Scenario


def prepare(scenario: Scenario, policies: Iterable[str], seeds: Iterable[int], out: Path) -> None:
    """Build everything once, then make the folder."""
    check(scenario, policies, seeds)
    require_writable(out)


def check(scenario: Scenario, policies: Iterable[str], seeds: Iterable[int]) -> None:
    """Build every policy, the codec and every world once."""
    for name in policies:
        build_policy(name, scenario)
    size = scenario.learning.num_parameters
    codec = build_codec(scenario.codec.name, size, [size], **scenario.codec.options)
    if scenario.control.inner != "exact" and not codec.affine:
        raise ConfigError(
            f'control.inner = "{scenario.control.inner}" needs bits that are affine in q, and codec '
            f'{scenario.codec.name!r} has none: take inner = "exact", or a codec without entropy coding.'
        )
    for seed in seeds:
        build_world(scenario, seed)
