"""The default form of QCCF: dimensionless budgets from what the cell carries and from what learning tolerates.

Each round has an error budget: what learning tolerates, but at least a multiple of the least error that the round's
participants could send. A price of error rises while rounds exceed their budgets and falls while they stay below. Each
client has a debt: the turns that it was owed minus the turns that it had. `docs/controller.md` derives all of it.

Deviates: E11 to E16.
"""

from dataclasses import dataclass, replace
from math import exp, inf
from typing import NamedTuple

import numpy as np

from qccf.control.scale_free import ScaleFreeProblem, most_participants, usable_pairs
from qccf.core.contracts import (
    MAX_NUM_BITS,
    BoolArray,
    Constants,
    Decision,
    FloatArray,
    Observation,
    Outcome,
    PolicyState,
    Statistics,
    Targets,
)
from qccf.devices import cost
from qccf.quantization import costs

TOLERATED_NOISE = 4.0
"""The squared error of an aggregate that learning tolerates with an energy weight of 1, in squared update norms."""

PRICE_STEP = 0.5
"""The logarithm of the error price moves by this much for a round that exceeds its budget by one whole budget."""

LEAST_PRICE = 1e-2
"""The error price never falls below this much per participant: it would take too long to rise again."""

MOST_DEBT = 12.0
"""Debts count up to this many turns. A turn more is worth e times the energy, so this is beyond any real ratio."""


class _Outlook(NamedTuple):
    """Each client on its fastest channel: the cost of each number of bits, before channels are shared.

    `energy` [client, q - 1] is in units of the reference, infinite where the deadline is missed.
    """

    able: BoolArray
    most: int
    energy: FloatArray
    reference_j: float
    errors: FloatArray
    least_errors: FloatArray


@dataclass(frozen=True)
class ScaleFreeForm:
    """State: the error price (from the first round on) and the debts."""

    constants: Constants
    slack: float
    share: float
    energy_weight: float

    def init(self, statistics: Statistics) -> PolicyState:
        return {"debts": [0.0] * statistics.num_clients}

    def problem(self, state: PolicyState, observation: Observation) -> ScaleFreeProblem:
        """The problem of this round. Its `context` holds what `measured` needs."""
        outlook = self._outlook(observation)
        sizes = observation.statistics.dataset_sizes
        debts = np.array(state["debts"])
        turns = self._turns(outlook)
        able = outlook.able
        wanted = int(np.clip(round(float((turns + debts)[able].sum())), 1, outlook.most)) if outlook.most else 0
        if self.share >= 1.0:
            wanted = outlook.most
        tolerated = self.tolerated_error(observation.statistics)
        squares = _expected_squares(sizes, able, wanted)
        budget = max(self.slack * float((squares * outlook.least_errors)[able].sum()), tolerated)
        price = state.get("error_price")
        if price is None:
            price = _balanced_price(outlook, squares, budget, wanted)
        error_price = price / budget if budget > 0.0 else 0.0
        debt_prices = np.exp(debts)
        if self.share < 1.0 and wanted:
            alone = (outlook.energy + error_price * squares[:, None] * outlook.errors).min(axis=1)
            ratios = np.sort((alone / debt_prices)[able])
            debt_prices = debt_prices * ratios[wanted - 1] * (1.0 + 1e-9)
        return ScaleFreeProblem(
            observation,
            self.constants,
            energy_price=1.0 / outlook.reference_j,
            error_price=error_price,
            debt_prices=debt_prices,
            wanted=wanted if self.share >= 1.0 else 0,
            relative_price=price,
            turns=turns,
        )

    def measured(self, state: PolicyState, problem: ScaleFreeProblem, decision: Decision) -> Decision:
        """The decision with what it was measured against."""
        on = decision.participates
        statistics = problem.observation.statistics
        rates_bps = problem.rates_bps[np.arange(len(on)), np.maximum(decision.channels, 0)]
        errors = costs.expected_errors(statistics, self.constants)
        most_bits = _most_bits(rates_bps, statistics, self.constants)
        rows = np.arange(len(on))
        return replace(
            decision,
            targets=Targets(
                errors=np.where(on, errors[rows, np.maximum(decision.num_bits, 1) - 1], 0.0),
                least_errors=np.where(on, errors[rows, np.maximum(most_bits, 1) - 1], 0.0),
                slack=self.slack,
                tolerated_error=self.tolerated_error(statistics),
                turns=problem.turns,
                error_price=problem.relative_price,
            ),
        )

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        """Move the error price by what arrived, the debts by who had a turn."""
        targets = decision.targets
        assert targets is not None
        debts = np.array(state["debts"]) + targets.turns - decision.participates
        after: PolicyState = {"debts": np.clip(debts, -MOST_DEBT, MOST_DEBT).tolist()}
        price = targets.error_price
        if outcome.arrived.any():
            error, budget = error_and_budget(targets, outcome.arrived, outcome.statistics.dataset_sizes)
            excess = error / budget - 1.0 if budget > 0.0 else 0.0
            price = max(price * exp(PRICE_STEP * excess), LEAST_PRICE * float(outcome.arrived.sum()))
        if decision.participates.any():
            after["error_price"] = price
        elif "error_price" in state:
            after["error_price"] = state["error_price"]
        return after

    def tolerated_error(self, statistics: Statistics) -> float:
        """The aggregate's squared error that learning tolerates: a multiple of the squared norm of an update.

        A client's update is the learning rate times the number of steps times its mean gradient. The median over
        clients is not moved by a few wrong reports.
        """
        c = self.constants
        update_sq = (c.learning_rate * c.local_updates) ** 2 * float(np.median(statistics.gradient_norms_sq))
        return TOLERATED_NOISE * self.energy_weight * update_sq

    def _turns(self, outlook: _Outlook) -> FloatArray:
        """What this round owes each client: an equal part of the turns that channels and links allow."""
        return np.where(outlook.able, self.share * outlook.most / max(int(outlook.able.sum()), 1), 0.0)

    def _outlook(self, observation: Observation) -> _Outlook:
        c, s = self.constants, observation.statistics
        able = np.asarray(usable_pairs(observation, c).any(axis=1))
        best_bps = observation.rates_bps.max(axis=1)
        rows = np.arange(observation.num_clients)[:, None]
        bits = costs.payload_bits(np.arange(1, MAX_NUM_BITS + 1), rows, s, c)
        with np.errstate(divide="ignore", invalid="ignore"):
            upload_s = bits / best_bps[:, None]
            cycles = cost.training_cycles(s.dataset_sizes, c)[:, None]
            frequency_hz = cost.slowest_frequency_hz(cycles, upload_s, c)
            spent_j = cost.compute_energy_j(cycles, frequency_hz, c) + c.transmit_power_w * upload_s
        reference_j = float(spent_j[able, 0].mean()) if able.any() else 1.0
        errors = costs.expected_errors(s, c)
        most_bits = np.maximum(np.isfinite(spent_j).sum(axis=1), 1)
        least_errors = errors[rows[:, 0], most_bits - 1]
        return _Outlook(
            able, most_participants(observation, c), spent_j / reference_j, reference_j, errors, least_errors
        )


def error_and_budget(targets: Targets, arrived: BoolArray, dataset_sizes: FloatArray) -> tuple[float, float]:
    """The expected squared error of the aggregate of what arrived, and its budget."""
    weights_sq = np.square(np.where(arrived, dataset_sizes, 0.0) / dataset_sizes[arrived].sum())
    least = targets.slack * float(weights_sq @ targets.least_errors)
    return float(weights_sq @ targets.errors), max(least, targets.tolerated_error)


def _expected_squares(sizes: FloatArray, able: BoolArray, wanted: int) -> FloatArray:
    """Each client's squared weight times its chance to take part, if `wanted` of the able ones take part at random."""
    if not wanted:
        return np.zeros_like(sizes)
    total = wanted * sizes[able].mean()
    return np.where(able, wanted / able.sum() * np.square(sizes / total), 0.0)


def _balanced_price(outlook: _Outlook, squares: FloatArray, budget: float, wanted: int) -> float:
    """The error price at which the expected round just meets its budget, each client on its fastest channel."""
    if not wanted or budget <= 0.0:
        return LEAST_PRICE * max(wanted, 1)
    able = outlook.able
    energy = outlook.energy[able] * (wanted / able.sum())
    ratios = squares[able, None] * outlook.errors[able] / budget
    low, high = LEAST_PRICE * wanted, LEAST_PRICE * wanted * 1e12
    for _ in range(40):
        price = float(np.sqrt(low * high))
        chosen = (energy + price * ratios).argmin(axis=1)
        within = ratios[np.arange(len(chosen)), chosen].sum() <= 1.0
        low, high = (low, price) if within else (price, high)
    return high if high < inf else low


def _most_bits(rates_bps: FloatArray, statistics: Statistics, constants: Constants) -> FloatArray:
    """The most bits that each client's rate carries in time at the highest frequency; 0 where none."""
    cycles = cost.training_cycles(statistics.dataset_sizes, constants)
    room_bits = rates_bps * np.maximum(constants.deadline_s - cycles / constants.frequency_max_hz, 0.0)
    return costs.most_bits(room_bits[:, None], statistics, constants)[:, 0].astype(np.int64)
