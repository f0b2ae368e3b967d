"""The paper's form of QCCF: two queues, weights to the first power, budgets and V as the paper has them.

Paper: Section V-A. Deviates: E6 and E8. `docs/deviations.md` says what goes wrong outside the tuned cell (E11 to E16).
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from qccf.control import bound
from qccf.control.problem import RoundProblem
from qccf.control.queues import Queues, advance, warm_start
from qccf.core.contracts import Constants, Decision, Observation, Outcome, PolicyState, Statistics
from qccf.core.options import option


@dataclass(frozen=True)
class PaperOptions:
    """Options of the paper's form."""

    energy_weight: float = option(100.0, "weight of energy against convergence, V", ge=1e-9, le=1e12)
    quantization_budget: float = option(0.03, "budget of the quantization term, ε2", ge=0, le=1e9)
    data_budget: Literal["auto"] | float = option(
        "auto", 'budget of the data term, ε1; "auto" measures it after every round', ge=0, le=1e15
    )
    participation_margin: float = option(
        0.01, "start of λ1 above ε1, as a share of the data term with all clients", gt=0, le=1e3
    )
    quantization_margin: float = option(0.5, "start of λ2 above ε2", gt=0, le=1e6)


@dataclass(frozen=True)
class PaperForm:
    """State: the two queues and the measured budget ε1. V and ε2 stand in the constants."""

    constants: Constants
    options: PaperOptions

    def init(self, statistics: Statistics) -> PolicyState:
        constants = replace(self.constants, data_budget=self._data_budget(statistics))
        queues = warm_start(
            statistics,
            constants,
            participation_margin=self.options.participation_margin,
            quantization_margin=self.options.quantization_margin,
        )
        return {
            "participation_queue": queues.participation,
            "quantization_queue": queues.quantization,
            "data_budget": constants.data_budget,
        }

    def problem(self, state: PolicyState, observation: Observation) -> RoundProblem:
        constants = replace(self.constants, data_budget=state["data_budget"])
        return RoundProblem(observation, constants, state["participation_queue"], state["quantization_queue"])

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        queues = advance(
            Queues(state["participation_queue"], state["quantization_queue"]),
            outcome.arrived,
            decision.num_bits,
            outcome.statistics,
            replace(self.constants, data_budget=state["data_budget"]),
        )
        return {
            "participation_queue": queues.participation,
            "quantization_queue": queues.quantization,
            "data_budget": self._data_budget(outcome.statistics),
        }

    def _data_budget(self, statistics: Statistics) -> float:
        """ε1: the least value of the data term, reached when all clients take part.

        It follows the gradients. If it kept its first value, λ1 would fall below it once the gradients have shrunk,
        and no client would take part from then on.
        """
        if self.options.data_budget != "auto":
            return self.options.data_budget
        everybody = np.ones(statistics.num_clients, dtype=bool)
        return bound.data_term(everybody, statistics, self.constants)
