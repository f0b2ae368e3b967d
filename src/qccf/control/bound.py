"""The terms of the convergence bound that depend on decisions, and the condition under which the bound is valid.

Paper: Section III, Theorem 3, and constraints C6 and C7.
"""

import numpy as np

from qccf.core.contracts import BoolArray, Constants, FloatArray, IntArray, Statistics, Targets
from qccf.core.errors import ConfigError
from qccf.quantization.costs import error_bounds, expected_errors


def require_valid_bound(*, learning_rate: float, smoothness: float, local_updates: int) -> None:
    """Refuse settings for which the theorems do not hold: they need 2η²τ²L² < 1, which implies ηL < 1."""
    drift = 2.0 * (learning_rate * local_updates * smoothness) ** 2
    if drift >= 1.0:
        limit = 1.0 / (np.sqrt(2.0) * learning_rate * local_updates)
        raise ConfigError(
            f"learning.smoothness = {smoothness:g} makes 2η²τ²L² = {drift:.3g} with η = {learning_rate:g} and "
            f"τ = {local_updates}, but the convergence bound needs it below 1: lower smoothness below {limit:.4g}, "
            "or lower learning.learning_rate or learning.local_updates."
        )


def gradient_norm_coefficient(learning_rate: float, smoothness: float, local_updates: int) -> float:
    """A1: the weight of a squared gradient norm in the data term. Paper: below constraint (C7) of P1."""
    tau = local_updates
    squared = (learning_rate * smoothness) ** 2
    return 2.0 * squared * (2 * tau**3 - 3 * tau**2 + tau) / (3.0 - 6.0 * squared * tau**2)


def gradient_variance_coefficient(learning_rate: float, smoothness: float, local_updates: int) -> float:
    """A2: the weight of a mini-batch gradient variance in the data term. Paper: below constraint (C7) of P1."""
    tau = local_updates
    squared = (learning_rate * smoothness) ** 2
    return learning_rate * smoothness * tau + squared * (tau**2 - tau) / (1.0 - 2.0 * squared * tau**2)


def aggregation_weights(participates: BoolArray, dataset_sizes: FloatArray) -> FloatArray:
    """w^n: each client's share of the aggregate; all zero in an empty round. Deviates: E8."""
    taken = np.where(participates, dataset_sizes, 0.0)
    total = taken.sum()
    return taken / total if total > 0.0 else taken


def data_term(participates: BoolArray, statistics: Statistics, constants: Constants) -> float:
    """The data term of the bound in one round. It decreases with more participating samples. Paper: C6."""
    c = constants
    population_shares = statistics.dataset_sizes / statistics.dataset_sizes.sum()
    weights = aggregation_weights(participates, statistics.dataset_sizes)
    norms_sq = statistics.gradient_norms_sq
    absent = 4.0 * c.local_updates * (1.0 - participates * population_shares) * norms_sq
    a1 = gradient_norm_coefficient(c.learning_rate, c.smoothness, c.local_updates)
    a2 = gradient_variance_coefficient(c.learning_rate, c.smoothness, c.local_updates)
    return float(np.sum(absent + weights * (a1 * norms_sq + a2 * statistics.gradient_variances)))


def quantization_term(
    participates: BoolArray, num_bits: IntArray, statistics: Statistics, constants: Constants
) -> float:
    """The quantization term of the bound in one round. It decreases with more bits. Paper: C7."""
    weights = aggregation_weights(participates, statistics.dataset_sizes)
    bounds = error_bounds(np.where(participates, num_bits, 1), statistics, constants)
    return float(0.5 * constants.smoothness * np.sum(weights * bounds))


def aggregate_error(arrived: BoolArray, num_bits: IntArray, statistics: Statistics, constants: Constants) -> float:
    """Expected squared error of the aggregate, Σ w²·e(q), because the errors of clients are independent.

    NaN if nothing arrived. Deviates: E12.
    """
    if not arrived.any():
        return float("nan")
    rows = np.flatnonzero(arrived)
    errors = expected_errors(statistics, constants)[rows, num_bits[rows] - 1]
    return float(np.sum(np.square(aggregation_weights(arrived, statistics.dataset_sizes)[rows]) * errors))


def error_and_budget(targets: Targets, on: BoolArray, dataset_sizes: FloatArray) -> tuple[float, float]:
    """The expected squared error of the aggregate of these clients, and its budget."""
    weights_sq = np.square(dataset_sizes[on] / dataset_sizes[on].sum())
    least = targets.slack * float(weights_sq @ targets.least_errors[on])
    return float(weights_sq @ targets.errors[on]), max(least, targets.tolerated_error)
