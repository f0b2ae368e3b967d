"""The default form of QCCF: dimensionless budgets from what the cell carries and from what learning tolerates.

A round is decided in two steps: whose turn it is (`turns`), and how these clients are served at the least cost
(`scale_free`). Each round has an error budget: what learning tolerates, but at least a multiple of the least error that
its participants could send. A price of error rises while rounds exceed their budgets and falls while they stay below.
`docs/controller.md` derives all of it.

Deviates: E11 to E16.
"""

from dataclasses import dataclass, replace
from math import exp, nan
from time import perf_counter
from typing import Any

import numpy as np

from qccf.control.bound import error_and_budget
from qccf.control.matching import match_everyone
from qccf.control.scale_free import ScaleFreeProblem, serve
from qccf.control.turns import Turns, most_bits_in_time, usable_pairs, whose_turn
from qccf.core.contracts import (
    MAX_NUM_BITS,
    Certificate,
    Constants,
    Decision,
    FloatArray,
    IntArray,
    Observation,
    Outcome,
    PolicyState,
    Statistics,
    Targets,
)
from qccf.core.steps import usual_update_sq
from qccf.devices.batteries import energy_factors
from qccf.quantization import costs

TOLERATED_NOISE = 3.0
"""The squared error of an aggregate that learning tolerates with an energy weight of 1, in squared update norms."""

PRICE_STEP = 0.5
"""The logarithm of the error price moves by this much for a round that exceeds its budget by one whole budget."""

ROUND_LIMITS = (0.5, 2.0)
"""Each round is expected to err by at least and at most this many budgets, where that is possible."""

MOST_EXCESS = 4.0
"""A round counts as exceeding its budget by at most this many budgets."""

LEAST_PRICE = 1e-2
"""The error price never falls below this much per participant: it would take too long to rise again."""

MOST_PRICE_RATIO = 1e12
"""No error price is more than this many times the least one."""

MOST_DEBT = 12.0
"""Debts are scaled to at most this many turns: e^12 is beyond any real ratio of energies."""

LEVELS = np.arange(1, MAX_NUM_BITS + 1)


@dataclass(frozen=True)
class ScaleFreeForm:
    """State: the error price (from the first round on) and the debts."""

    constants: Constants
    slack: float
    share: float
    energy_weight: float
    battery_weight: float = 0.0

    def init(self, statistics: Statistics) -> PolicyState:
        return {"debts": [0.0] * statistics.num_clients}

    def decide(self, state: PolicyState, observation: Observation) -> Decision:
        started = perf_counter()
        statistics = observation.statistics
        tolerated = self.tolerated_error(statistics)
        bits = self._usual_bits(observation, tolerated)
        factors = energy_factors(observation.charges, self.battery_weight)
        turns = whose_turn(observation, self.constants, bits, np.array(state["debts"]), self.share, factors)
        clients = np.flatnonzero(turns.channels >= 0)
        if len(clients) == 0:
            return self._nobody(state, statistics, turns, tolerated)
        part, constants = observation.of(clients), self.constants.of(clients)
        errors = costs.expected_errors(part.statistics, constants)
        least_errors, channels = _least_errors(part, constants, errors)
        price, problem = self._priced(state, part, constants, channels, errors, least_errors, tolerated)
        solved = serve(problem)

        def spread(values: Any, absent: float) -> Any:
            everybody = np.full(observation.num_clients, absent, dtype=values.dtype)
            everybody[clients] = values
            return everybody

        certificate = solved.certificate
        assert certificate is not None
        return Decision(
            spread(solved.channels, -1),
            spread(solved.num_bits, 0),
            spread(solved.frequencies_hz, 0.0),
            certificate=replace(certificate, wall_time_s=perf_counter() - started),
            targets=Targets(
                errors=spread(errors[np.arange(len(clients)), solved.num_bits - 1], 0.0),
                least_errors=spread(least_errors, 0.0),
                slack=self.slack,
                tolerated_error=tolerated,
                turns=turns.owed,
                error_price=price,
            ),
            powers_w=None if solved.powers_w is None else spread(solved.powers_w, 0.0),
        )

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        """Move the error price by what was decided, the debts by who had a turn.

        Lost uploads move neither: with more bits not one more would arrive, and the budget of the few that did arrive
        says nothing about the price.
        """
        targets = decision.targets
        if targets is None:  # of a variant that decides itself
            return {name: state[name] for name in ("debts", "error_price") if name in state}
        debts = np.array(state["debts"]) + targets.turns - decision.participates
        debts *= MOST_DEBT / max(float(np.abs(debts).max()), MOST_DEBT)  # keeps their order
        after: PolicyState = {"debts": debts.tolist()}
        price = targets.error_price
        on = decision.participates
        if on.any():
            error, budget = error_and_budget(targets, on, outcome.statistics.dataset_sizes)
            excess = min(error / budget - 1.0, MOST_EXCESS) if budget > 0.0 else 0.0
            least = LEAST_PRICE * float(on.sum())
            after["error_price"] = min(max(price * exp(PRICE_STEP * excess), least), least * MOST_PRICE_RATIO)
        elif "error_price" in state:
            after["error_price"] = state["error_price"]
        return after

    def tolerated_error(self, statistics: Statistics) -> float:
        """The aggregate's squared error that learning tolerates: a multiple of the squared norm of an update."""
        return TOLERATED_NOISE * self.energy_weight * usual_update_sq(statistics, self.constants)

    def _usual_bits(self, observation: Observation, tolerated: float) -> IntArray:
        """The fewest bits with which each client meets the budget of a round in which all participants are like it."""
        statistics = observation.statistics
        rows = np.arange(observation.num_clients)
        errors = costs.expected_errors(statistics, self.constants)
        best = Observation(observation.rates_bps.max(axis=1)[:, None], statistics)
        most_bits = most_bits_in_time(best, self.constants)[:, 0]
        participants = self.share * min(observation.num_clients, observation.num_channels)
        budgets = np.maximum(self.slack * errors[rows, most_bits - 1], max(participants, 1.0) * tolerated)
        return np.asarray(1 + (errors <= budgets[:, None]).argmax(axis=1), dtype=np.int64)

    def _priced(
        self,
        state: PolicyState,
        part: Observation,
        constants: Constants,
        channels: IntArray,
        errors: FloatArray,
        least_errors: FloatArray,
        tolerated: float,
    ) -> tuple[float, ScaleFreeProblem]:
        """The price of an error of a whole budget, and the problem in which this round's clients are served.

        `channels` are those of the least error, on which the budget can be met at some price. One price for all rounds
        serves very different clients badly. Where it would exceed the budget of this round by far, or stay far below,
        the problem has the price that just does not.
        """
        rows, sizes = np.arange(len(channels)), part.statistics.dataset_sizes
        squares = np.square(sizes / sizes.sum())
        budget = max(self.slack * float(squares @ least_errors), tolerated)
        free = ScaleFreeProblem(part, constants, energy_price=1.0, error_price=0.0)
        spent_j = free.energy_costs(LEVELS, rows[:, None], channels[:, None])
        reference_j = float(spent_j[:, 0].mean())
        if budget <= 0.0:  # an exact upload is possible, and nothing else is tolerated
            largest = float((squares[:, None] * errors).max())
            highest = LEAST_PRICE * MOST_PRICE_RATIO / largest if largest > 0.0 else 0.0
            price = state.get("error_price", LEAST_PRICE * len(rows))
            return price, replace(free, energy_price=1.0 / reference_j, error_price=highest)
        energy, ratios = spent_j / reference_j, squares[:, None] * errors / budget
        price = state.get("error_price")
        if price is None:
            price = _balanced_price(energy, ratios, 1.0)
        expected = _error(energy, ratios, price)
        within = float(np.clip(expected, *ROUND_LIMITS))
        round_price = price if expected == within else _balanced_price(energy, ratios, within)
        return price, replace(free, energy_price=1.0 / reference_j, error_price=round_price / budget)

    def _nobody(self, state: PolicyState, statistics: Statistics, turns: Turns, tolerated: float) -> Decision:
        """An empty round, because nobody can upload."""
        count = statistics.num_clients
        price = state.get("error_price", nan)
        zeros = np.zeros(count)
        return Decision(
            turns.channels,
            np.zeros(count, dtype=np.int64),
            zeros,
            certificate=Certificate(0.0, 0.0, "nobody can upload", 0.0),
            targets=Targets(zeros, zeros, self.slack, tolerated, turns.owed, price),
        )


def _least_errors(part: Observation, constants: Constants, errors: FloatArray) -> tuple[FloatArray, IntArray]:
    """Each client's error and channel where the aggregate errs least: all bits, on the best channels for that."""
    rows = np.arange(len(errors))
    at_most = errors[rows[:, None], most_bits_in_time(part, constants) - 1]
    usable = usable_pairs(part, constants)
    weights_sq = np.square(part.statistics.dataset_sizes / part.statistics.dataset_sizes.sum())
    matched = match_everyone(np.where(usable, weights_sq[:, None] * at_most, np.inf))
    assert matched is not None, "these clients were matched before"
    return at_most[rows, matched[1]], matched[1]


def _balanced_price(energy: FloatArray, ratios: FloatArray, goal: float) -> float:
    """The error price at which clients that choose their own bits err by `goal` budgets together.

    `energy` and `ratios` are [client, q - 1]; energy is infinite where the deadline is missed.
    """
    low = LEAST_PRICE * len(energy)
    high = low * MOST_PRICE_RATIO
    for _ in range(20):
        price = float(np.sqrt(low * high))
        low, high = (low, price) if _error(energy, ratios, price) <= goal else (price, high)
    return high


def _error(energy: FloatArray, ratios: FloatArray, price: float) -> float:
    """The error, in budgets, of clients that choose their own bits at this price."""
    chosen = (energy + price * ratios).argmin(axis=1)
    return float(ratios[np.arange(len(chosen)), chosen].sum())
