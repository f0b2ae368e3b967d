"""What an outer solver needs from P3.2: the cost and the bits of every client-channel pair for a given S."""

from typing import Any, Protocol

from qccf.core.contracts import FloatArray, IntArray


class PairModel(Protocol):
    """One way to solve P3.2 (exact, closed form, printed), asked for many S in one round."""

    def costs(self, total: float, rows: Any = None) -> FloatArray:
        """Contribution to J of each pair [client, channel] of `rows` (default all); infinite where infeasible."""
        ...

    def chosen_costs(self, totals: Any, rows: IntArray, columns: IntArray) -> FloatArray:
        """Contribution to J of the pairs (rows, columns) only, each with an S of its own."""
        ...

    def bits(self, total: float, rows: IntArray, columns: IntArray) -> IntArray:
        """Bits of the pairs (rows, columns); 0 where infeasible."""
        ...
