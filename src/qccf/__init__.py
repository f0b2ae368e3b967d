"""Energy-efficient federated learning over a wireless uplink.

Names load on first use, so that importing the package costs almost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qccf._version import __version__

_MODULES = {
    "Certificate": "qccf.core.contracts",
    "Constants": "qccf.core.contracts",
    "Decision": "qccf.core.contracts",
    "Observation": "qccf.core.contracts",
    "Outcome": "qccf.core.contracts",
    "Policy": "qccf.core.contracts",
    "Statistics": "qccf.core.contracts",
    "QccfError": "qccf.core.errors",
    "RoundProblem": "qccf.control.problem",
    "solve_round": "qccf.control.solve",
    "settle": "qccf.devices.cost",
    "POLICIES": "qccf.policies.registry",
    "build_policy": "qccf.rounds.setup",
    "build_world": "qccf.rounds.world",
    "Scenario": "qccf.settings.loading",
    "load_scenario": "qccf.settings.loading",
    "Dataset": "qccf.learning.datasets.base",
    "Run": "qccf.rounds.run",
    "Runs": "qccf.rounds.runs",
    "compare": "qccf.api",
    "load_run": "qccf.api",
    "load_runs": "qccf.api",
    "plan": "qccf.api",
    "report": "qccf.api",
    "simulate": "qccf.api",
}

__all__ = [*_MODULES, "__version__"]

if TYPE_CHECKING:
    from qccf.api import compare, load_run, load_runs, plan, report, simulate
    from qccf.control.problem import RoundProblem
    from qccf.control.solve import solve_round
    from qccf.core.contracts import Certificate, Constants, Decision, Observation, Outcome, Policy, Statistics
    from qccf.core.errors import QccfError
    from qccf.devices.cost import settle
    from qccf.learning.datasets.base import Dataset
    from qccf.policies.registry import POLICIES
    from qccf.rounds.run import Run
    from qccf.rounds.runs import Runs
    from qccf.rounds.setup import build_policy
    from qccf.rounds.world import build_world
    from qccf.settings.loading import Scenario, load_scenario


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'qccf' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
