"""The table of policies, and how a name in the config becomes one."""

from collections.abc import Callable
from functools import partial
from typing import Any

from qccf.core import registry as plugins
from qccf.core.contracts import Constants, Policy
from qccf.policies.channel_allocate import ChannelAllocate
from qccf.policies.no_quantization import NoQuantization
from qccf.policies.principle import Principle
from qccf.policies.qccf import Qccf
from qccf.policies.same_size import SameSize
from qccf.settings.loading import Scenario

POLICIES: dict[str, Callable[..., Policy]] = {
    "qccf": Qccf,
    "no-quantization": NoQuantization,
    "channel-allocate": ChannelAllocate,
    "principle": Principle,
    "same-size": SameSize,
}


def build_policy(name: str, scenario: Scenario, constants: Constants | None = None) -> Policy:
    """The policy of that name, or a user's own as `module:Class`, built for a scenario.

    `constants` are the scenario's with the costs of its codec; without them those of the paper's quantizer count.
    """
    factory = plugins.find("policy", name, POLICIES, ("init", "decide", "update"))
    return plugins.build(
        "policy",
        name,
        partial(factory, constants or scenario.constants(), rounds=scenario.federation.rounds),
        "Class(constants, rounds=…, **options)",
        **_options(name, scenario),
    )


def _options(name: str, scenario: Scenario) -> dict[str, Any]:
    """What the config says to that policy."""
    if name in ("qccf", "same-size"):
        c = scenario.control
        return {
            "solver": c.solver,
            "inner": c.inner,
            "fixed_data_budget": c.data_budget != "auto",
            "participation_margin": c.participation_margin,
            "quantization_margin": c.quantization_margin,
            "genetic": c.genetic.model_dump(),
        }
    if name == "principle":
        p = scenario.principle
        return {**p.model_dump(), "patience": p.patience or None}
    if name == "no-quantization":
        return scenario.no_quantization.model_dump()
    return {} if name in POLICIES else dict(scenario.policy.options)
