"""The virtual queues, computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.control import bound
from qccf.control.queues import Queues, advance, warm_start
from support.problems import CONSTANTS, equal_statistics


def test_queues_move_by_term_minus_budget_and_stop_at_zero() -> None:
    constants = replace(CONSTANTS, data_budget=10.0, quantization_budget=0.03)
    s = equal_statistics(100.0, 300.0)
    on, bits = np.array([True, True]), np.array([3, 3])
    data = bound.data_term(on, s, constants)
    error = bound.quantization_term(on, bits, s, constants)
    after = advance(Queues(5.0, 0.5), on, bits, s, constants)
    assert after.participation == pytest.approx(5.0 + data - 10.0)
    assert after.quantization == pytest.approx(0.5 + error - 0.03)
    assert advance(Queues(0.0, 0.0), on, bits, s, replace(constants, data_budget=1e9, quantization_budget=1e9)) == (
        0.0,
        0.0,
    )
    empty = advance(Queues(5.0, 0.5), np.array([False, False]), np.array([0, 0]), s, constants)
    assert empty == pytest.approx((5.0 + 48.0 - 10.0, 0.47))


def test_warm_start_is_above_both_budgets() -> None:
    constants = replace(CONSTANTS, data_budget=10.0)
    s = equal_statistics(100.0, 300.0)
    queues = warm_start(s, constants, participation_margin=0.1, quantization_margin=0.5)
    all_clients = bound.data_term(np.array([True, True]), s, constants)
    assert queues.participation == pytest.approx(10.0 + 0.1 * all_clients)
    assert queues.quantization == pytest.approx(0.53)


def test_after_a_warm_start_every_client_is_worth_its_energy() -> None:
    """100 of 400 samples: 2e5 cycles at 200 MHz cost 0.08 mJ, 20 ms at 0.2 W cost 4 mJ; the presence weighs 24/4·G²."""
    s = equal_statistics(100.0, 300.0, norm_sq=0.01)
    queues = warm_start(s, CONSTANTS, participation_margin=1e-9, quantization_margin=0.5)
    assert queues.participation == pytest.approx(100.0 * 4.08e-3 / (24 * 0.25 * 0.01))
    waking = replace(CONSTANTS, wake_energy_j=1e-3)
    queues = warm_start(s, waking, participation_margin=1e-9, quantization_margin=0.5)
    assert queues.participation == pytest.approx(100.0 * 5.08e-3 / (24 * 0.25 * 0.01)), "and waking up costs 1 mJ"
    nothing = warm_start(
        equal_statistics(1.0, norm_sq=0.0), CONSTANTS, participation_margin=0.5, quantization_margin=0.5
    )
    alone = bound.data_term(np.array([True]), equal_statistics(1.0, norm_sq=0.0), CONSTANTS)
    assert nothing.participation == pytest.approx(0.5 * alone), "where nobody is worth anything the margin is all"
    assert 0.0 < alone < 0.1
