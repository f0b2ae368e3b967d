"""QCCF: bits, clients, channels and frequencies decided together, round by round.

Paper: Section V.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from qccf.control import bound
from qccf.control.channels_genetic import GeneticSettings
from qccf.control.problem import RoundProblem
from qccf.control.queues import Queues, advance, warm_start
from qccf.control.solve import Inner, Solver, solve_round
from qccf.core.contracts import Constants, Decision, Observation, Outcome, State, Statistics


class Qccf:
    """The paper's policy.

    State: the two queues, the budgets they are held against, and each client's last bits.
    """

    def __init__(
        self,
        constants: Constants,
        *,
        rounds: int,
        solver: Solver = "assignment",
        inner: Inner = "exact",
        fixed_data_budget: bool = False,
        participation_margin: float = 0.01,
        quantization_margin: float = 0.5,
        genetic: dict[str, Any] | None = None,
    ) -> None:
        """`fixed_data_budget` takes ε1 from the constants; otherwise it is measured anew after every round."""
        self.constants = constants
        self.solver: Solver = solver
        self.inner: Inner = inner
        self.fixed_data_budget = fixed_data_budget
        self.participation_margin = participation_margin
        self.quantization_margin = quantization_margin
        self.genetic = GeneticSettings(**(genetic or {}))

    def init(self, statistics: Statistics) -> State:
        statistics = self.believed(statistics)
        constants = replace(self.constants, data_budget=self._data_budget(statistics))
        queues = warm_start(
            statistics,
            constants,
            participation_margin=self.participation_margin,
            quantization_margin=self.quantization_margin,
        )
        return {
            "participation_queue": queues.participation,
            "quantization_queue": queues.quantization,
            "data_budget": constants.data_budget,
            "last_num_bits": [0] * statistics.num_clients,
        }

    def decide(self, state: State, observation: Observation, rng: np.random.Generator) -> Decision:
        known = replace(observation, statistics=self.believed(observation.statistics))
        constants = replace(self.constants, data_budget=state["data_budget"])
        problem = RoundProblem(known, constants, state["participation_queue"], state["quantization_queue"])
        return solve_round(
            problem,
            solver=self.solver,
            inner=self.inner,
            rng=rng,
            genetic=self.genetic,
            last_bits=np.array(state["last_num_bits"]),
        )

    def update(self, state: State, decision: Decision, outcome: Outcome) -> State:
        statistics = self.believed(outcome.statistics)
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
        """ε1: the least that the data term can be, with everybody present.

        It follows the gradients. Held at its first value it would let λ1 sink below it once gradients have shrunk, and
        from then on nobody would take part.
        """
        if self.fixed_data_budget:
            return self.constants.data_budget
        everybody = np.ones(statistics.num_clients, dtype=bool)
        return bound.data_term(everybody, statistics, self.constants)

    def believed(self, statistics: Statistics) -> Statistics:
        """The statistics that the policy decides by; a variant may believe less than the truth."""
        return statistics
