"""Errors are found before data is loaded, a round is computed or a folder is made."""

from qccf.core.errors import ConfigError
from qccf.policies.registry import build_policy
from qccf.quantization.registry import build_codec
from qccf.rounds.world import build_world
from qccf.settings.loading import Scenario


def check_scenario(scenario: Scenario) -> None:
    """Build the policy, the codec and the world once."""
    build_policy(scenario.policy.name, scenario)
    size = scenario.learning.num_parameters
    codec = build_codec(scenario.codec.name, size, [size], **scenario.codec.options)
    if scenario.control.inner != "exact" and not codec.affine:
        raise ConfigError(
            f'control.inner = "{scenario.control.inner}" needs bits that are affine in q, and those of codec '
            f'{scenario.codec.name!r} are not: use inner = "exact", or a codec without entropy coding.'
        )
    build_world(scenario, scenario.federation.seed)
