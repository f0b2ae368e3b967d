"""P3.1 solved by trying every set of participants: the reference for small federations.

For a fixed set of participants S is fixed, and the best channels are one assignment problem. So 2^U assignment
problems give the true optimum of P2.
"""

from itertools import combinations

import numpy as np

from qccf.control.matching import match_everyone
from qccf.control.pairs import PairModel
from qccf.control.problem import Allocation, RoundProblem, empty_allocation
from qccf.core.errors import SolverError

MAX_CLIENTS = 12


def solve_exhaustive(problem: RoundProblem, pairs: PairModel) -> Allocation:
    """The participants, channels and bits with the smallest J."""
    num_clients, num_channels = problem.rates_bps.shape
    if num_clients > MAX_CLIENTS:
        raise SolverError(
            f"the exhaustive solver tries all 2^U participant sets and takes at most {MAX_CLIENTS} clients, but this "
            f"problem has {num_clients}: use the solver 'assignment', which certifies its gap at any size."
        )
    best_value, best = 0.0, empty_allocation(num_clients)
    for size in range(1, min(num_clients, num_channels) + 1):
        for members in combinations(range(num_clients), size):
            rows = np.array(members)
            total = float(problem.dataset_sizes[rows].sum())
            matched = match_everyone(pairs.costs(total, rows))
            if matched is not None and matched[0] < best_value:
                best_value, columns = matched
                best = empty_allocation(num_clients)
                best.channels[rows] = columns
                best.num_bits[rows] = pairs.bits(total, rows, columns)
    return best
