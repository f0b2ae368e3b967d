"""Energy-efficient federated learning over a wireless uplink.

Names load on first use, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qccf._version import __version__

_HOMES = {
    "Certificate": "qccf.contracts",
    "Constants": "qccf.contracts",
    "Decision": "qccf.contracts",
    "Observation": "qccf.contracts",
    "Outcome": "qccf.contracts",
    "Policy": "qccf.contracts",
    "Statistics": "qccf.contracts",
    "QccfError": "qccf.errors",
    "Scenario": "qccf.config",
    "load_scenario": "qccf.config",
    "RoundProblem": "qccf.control.problem",
    "solve_round": "qccf.control.solve",
    "settle": "qccf.cost",
    "POLICIES": "qccf.policies",
    "build_policy": "qccf.policies",
    "plan": "qccf.planning",
    "simulate": "qccf.simulation.loop",
    "build_world": "qccf.world",
}

__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from qccf.config import Scenario, load_scenario
    from qccf.contracts import Certificate, Constants, Decision, Observation, Outcome, Policy, Statistics
    from qccf.control.problem import RoundProblem
    from qccf.control.solve import solve_round
    from qccf.cost import settle
    from qccf.errors import QccfError
    from qccf.planning import plan
    from qccf.policies import POLICIES, build_policy
    from qccf.simulation.loop import simulate
    from qccf.world import build_world


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'qccf' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
