"""Plain averaging: the aggregate is the next model."""

from qccf.core.contracts import FloatArray
from qccf.learning.server.protocol import Aggregate, OptimizerState


class Average:
    """FedAvg. Paper: Eq. of global aggregation."""

    def init(self, num_parameters: int) -> OptimizerState:
        return {}

    def step(self, state: OptimizerState, aggregate: Aggregate) -> tuple[FloatArray, OptimizerState]:
        return aggregate.average, state
