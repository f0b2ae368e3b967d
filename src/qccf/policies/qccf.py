"""QCCF: decides bits, clients, channels and frequencies together in each round.

Paper: Section V.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from qccf.control import bound
from qccf.control.channels_genetic import GeneticSettings
from qccf.control.problem import RoundProblem
from qccf.control.queues import Queues, advance, warm_start
from qccf.control.solve import Inner, Solver, solve_round
from qccf.core.contracts import Constants, Decision, Observation, Outcome, PolicyState, Statistics
from qccf.core.options import option


@dataclass(frozen=True)
class QccfOptions:
    """Options of the policies qccf and same-size. V and ε2 are constants of the round's problem."""

    data_budget: Literal["auto"] | float = option(
        "auto", 'budget of the data term, ε1; "auto" measures it after every round', ge=0, le=1e15
    )
    participation_margin: float = option(
        0.01, "start of λ1 above ε1, as a share of the data term with all clients", gt=0, le=1e3
    )
    quantization_margin: float = option(0.5, "start of λ2 above ε2", gt=0, le=1e6)
    solver: Solver = option("assignment", "solver for clients and channels")
    inner: Inner = option("exact", "solver for bits and frequency of one client on one channel")
    genetic: GeneticSettings = option(GeneticSettings(), "options of the genetic solver")


class Qccf:
    """The paper's policy.

    State: the two queues, the measured budget ε1, and each client's last bits.
    """

    Options = QccfOptions
    section = "control"
    colour, marker = "#0072B2", "o"

    def __init__(self, constants: Constants, *, rounds: int, **options: Any) -> None:
        self.constants = constants
        self.options = QccfOptions(**options)

    def init(self, statistics: Statistics) -> PolicyState:
        statistics = self.assumed(statistics)
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
            "last_num_bits": [0] * statistics.num_clients,
        }

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        known = replace(observation, statistics=self.assumed(observation.statistics))
        constants = replace(self.constants, data_budget=state["data_budget"])
        problem = RoundProblem(known, constants, state["participation_queue"], state["quantization_queue"])
        return solve_round(
            problem,
            solver=self.options.solver,
            inner=self.options.inner,
            rng=rng,
            genetic=self.options.genetic,
            last_bits=np.array(state["last_num_bits"]),
        )

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        statistics = self.assumed(outcome.statistics)
        queues = advance(
            Queues(state["participation_queue"], state["quantization_queue"]),
            outcome.arrived,
            decision.num_bits,
            statistics,
            replace(self.constants, data_budget=state["data_budget"]),
        )
        last = np.where(decision.participates, decision.num_bits, state["last_num_bits"])
        return {
            **state,
            "participation_queue": queues.participation,
            "quantization_queue": queues.quantization,
            "data_budget": self._data_budget(statistics),
            "last_num_bits": last.tolist(),
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

    def assumed(self, statistics: Statistics) -> Statistics:
        """The statistics that the decision uses; a variant may replace them by assumptions."""
        return statistics
