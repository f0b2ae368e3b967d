"""Energy-efficient federated learning over a wireless uplink.

Names load on first use, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qccf._version import __version__

_HOMES = {
    "Certificate": "qccf.core.contracts",
    "Constants": "qccf.core.contracts",
    "Decision": "qccf.core.contracts",
    "Observation": "qccf.core.contracts",
    "Outcome": "qccf.core.contracts",
    "Policy": "qccf.core.contracts",
    "Statistics": "qccf.core.contracts",
    "QccfError": "qccf.core.errors",
    "Scenario": "qccf.settings.loading",
    "load_scenario": "qccf.settings.loading",
    "RoundProblem": "qccf.control.problem",
    "solve_round": "qccf.control.solve",
    "settle": "qccf.devices.cost",
    "POLICIES": "qccf.policies.registry",
    "build_policy": "qccf.policies.registry",
    "plan": "qccf.runtimes.planner",
    "simulate": "qccf.runtimes.simulator",
    "build_world": "qccf.rounds.world",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from qccf.control.problem import RoundProblem
    from qccf.control.solve import solve_round
    from qccf.core.contracts import Certificate, Constants, Decision, Observation, Outcome, Policy, Statistics
    from qccf.core.errors import QccfError
    from qccf.devices.cost import settle
    from qccf.policies.registry import POLICIES, build_policy
    from qccf.rounds.world import build_world
    from qccf.runtimes.planner import plan
    from qccf.runtimes.simulator import simulate
    from qccf.settings.loading import Scenario, load_scenario


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'qccf' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
