"""The terms of the convergence bound, computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.control import bound
from qccf.core.errors import ConfigError
from support.problems import CONSTANTS, equal_statistics


def test_coefficients_by_hand() -> None:
    """η = 0.1, L = 1, τ = 6: (ηL)² = 0.01, 2τ³ - 3τ² + τ = 330, so A1 = 6.6/0.84 and A2 = 0.6 + 0.3/0.28."""
    assert bound.gradient_norm_coefficient(0.1, 1.0, 6) == pytest.approx(6.6 / 0.84)
    assert bound.gradient_variance_coefficient(0.1, 1.0, 6) == pytest.approx(0.6 + 0.3 / 0.28)


def test_terms_by_hand() -> None:
    """Of two clients with 100 and 300 samples only the second participates, so its weight is 1."""
    constants = replace(CONSTANTS, smoothness=1.0, num_parameters=100)
    s = equal_statistics(100.0, 300.0)
    on = np.array([False, True])
    a1, a2 = 6.6 / 0.84, 0.6 + 0.3 / 0.28
    assert bound.data_term(on, s, constants) == pytest.approx(24 * (1 + 0.25) + a1 * 1.0 + a2 * 2.0)
    worst = 100 * 0.25 / (4 * 9)
    assert bound.quantization_term(on, np.array([0, 2]), s, constants) == pytest.approx(0.5 * worst)


def test_empty_round_has_no_weights() -> None:
    s, no_client = equal_statistics(100.0, 300.0), np.array([False, False])
    assert bound.aggregation_weights(no_client, s.dataset_sizes).tolist() == [0.0, 0.0]
    assert bound.data_term(no_client, s, CONSTANTS) == pytest.approx(24 * 2)
    assert bound.quantization_term(no_client, np.array([0, 0]), s, CONSTANTS) == 0.0


def test_aggregate_error_by_hand() -> None:
    """Weights 1/4 and 3/4, q = 1 and 2: c = 100·0.25/4 = 6.25, so 6.25/16 + 9/16·6.25/9. Squared weights: E12."""
    constants = replace(CONSTANTS, num_parameters=100)
    s = equal_statistics(100.0, 300.0, 500.0)
    on, bits = np.array([True, True, False]), np.array([1, 2, 4])
    assert bound.aggregate_error(on, bits, s, constants) == pytest.approx(6.25 / 8)
    known = replace(s, upload_errors=np.array([[8.0, 1.0], [8.0, 2.0], [8.0, 4.0]]))
    assert bound.aggregate_error(on, bits, known, constants) == pytest.approx(8.0 / 16 + 9 / 16 * 2.0)
    assert np.isnan(bound.aggregate_error(np.zeros(3, dtype=bool), bits, s, constants))


def test_aggregate_error_is_what_independent_errors_add_up_to() -> None:
    """Oracle: errors of known variance are drawn, averaged with the weights and measured."""
    rng = np.random.default_rng(0)
    sizes, errors = np.array([100.0, 300.0, 600.0]), np.array([2.0, 1.0, 0.5])
    drawn = rng.normal(size=(20_000, 3)) * np.sqrt(errors)
    squares = np.square(drawn @ (sizes / sizes.sum()))
    known = replace(equal_statistics(*sizes), upload_errors=errors[:, None])
    expected = bound.aggregate_error(np.ones(3, dtype=bool), np.ones(3, dtype=np.int64), known, CONSTANTS)
    assert abs(squares.mean() - expected) < 5 * squares.std() / np.sqrt(len(squares))


@pytest.mark.parametrize(
    ("rate", "smoothness", "updates", "says"),
    [(0.1, 1.2, 6, "2η²τ²L² = 1.04"), (0.9, 1.2, 1, "2η²τ²L²"), (0.5, 2.0, 1, "2η²τ²L² = 2")],
)
def test_validity_is_checked(rate: float, smoothness: float, updates: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        bound.require_valid_bound(learning_rate=rate, smoothness=smoothness, local_updates=updates)
    bound.require_valid_bound(learning_rate=0.1, smoothness=1.0, local_updates=6)


def test_the_largest_valid_smoothness_is_named() -> None:
    """2·(0.25·2·L)² = 1 at L = √2."""
    with pytest.raises(ConfigError, match=r"lower smoothness below 1\.414,"):
        bound.require_valid_bound(learning_rate=0.25, smoothness=1.5, local_updates=2)
    bound.require_valid_bound(learning_rate=0.25, smoothness=1.414, local_updates=2)


def test_weights_are_shares_however_few_the_samples() -> None:
    everybody = np.array([True, True, False])
    weights = bound.aggregation_weights(everybody, np.array([0.0625, 0.1875, 8.0]))
    assert weights.tolist() == [0.25, 0.75, 0.0]
