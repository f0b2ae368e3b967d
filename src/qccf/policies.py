"""The table of policies, and how a name in the config becomes one."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qccf.baselines.channel_allocate import ChannelAllocate
from qccf.baselines.no_quantization import NoQuantization
from qccf.baselines.principle import Principle
from qccf.baselines.same_size import SameSize
from qccf.config import Scenario
from qccf.contracts import Constants, Policy
from qccf.control.policy import Qccf
from qccf.errors import ConfigError

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
    factory = POLICIES.get(name) or _load(name)
    options = _options(name, scenario)
    try:
        return factory(constants or scenario.constants(), rounds=scenario.federation.rounds, **options)
    except TypeError as error:
        raise ConfigError(
            f"policy {name!r} cannot be built with options {options}: {error}; a policy is called as "
            "Class(constants, rounds=…, **options)."
        ) from None


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


def _load(name: str) -> Callable[..., Policy]:
    module_name, colon, class_name = name.partition(":")
    if not colon or not module_name or not class_name:
        raise ConfigError(f"policy {name!r} is not one of {', '.join(POLICIES)}; name one of your own as module:Class.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # a user's module may fail in any way while it is imported
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"policy {name!r} cannot be loaded ({reason}): it must be importable from here.") from None
    missing = [method for method in ("init", "decide", "update") if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(f"policy {name!r} has no {', no '.join(missing)}; a policy has init, decide and update.")
    return found
