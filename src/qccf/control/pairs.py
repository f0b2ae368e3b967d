"""The interface between the outer problem P3.1 and the inner problem P3.2."""

from typing import Any, Protocol

from qccf.core.contracts import FloatArray, IntArray


class PairModel(Protocol):
    """A solver of P3.2 (exact, closed form or printed): cost and bits of client-channel pairs for a given S."""

    def costs(self, total: float, rows: Any = None) -> FloatArray:
        """Contribution to J of each pair [client, channel] of `rows` (default all); infinite where infeasible."""
        ...

    def chosen_costs(self, totals: Any, rows: IntArray, columns: IntArray) -> FloatArray:
        """Contribution to J of the pairs (rows, columns) only, each with its own S."""
        ...

    def bits(self, total: float, rows: IntArray, columns: IntArray) -> IntArray:
        """Bits of the pairs (rows, columns); 0 where infeasible."""
        ...
