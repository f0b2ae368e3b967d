"""Cost, convergence, queues, streams: by-hand numbers."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.control import bound
from qccf.control.queues import Queues, advance, warm_start
from qccf.core.contracts import Certificate, Decision, Observation, Statistics
from qccf.core.errors import ConfigError
from qccf.core.streams import stream
from qccf.devices import cost
from qccf.quantization import error_bounds, error_scales, most_bits, payload_bits, raw_payload_bits
from support.problems import CONSTANTS


def statistics(*sizes: float, norm_sq: float = 1.0, variance: float = 2.0, weight_range: float = 0.5) -> Statistics:
    n = len(sizes)
    return Statistics(np.array(sizes), np.full(n, norm_sq), np.full(n, variance), np.full(n, weight_range))


def test_payload_is_indexes_signs_and_a_range() -> None:
    two = statistics(100.0, 200.0)
    assert payload_bits(3, 0, two, replace(CONSTANTS, num_parameters=10)) == 3 * 10 + 10 + 32
    assert raw_payload_bits(10) == 320
    np.testing.assert_array_equal(payload_bits(np.array([1, 2]), np.arange(2), two, CONSTANTS), [493_212.0, 739_802.0])


def test_a_codec_may_cost_otherwise() -> None:
    two = statistics(100.0, 200.0)
    assert payload_bits(3, 0, two, replace(CONSTANTS, bits_per_index=7.0, overhead_bits=5.0)) == 26
    listed = replace(two, upload_bits=np.array([[10.0, 20.0, 40.0], [1.0, 2.0, 3.0]]))
    np.testing.assert_array_equal(payload_bits(np.array([3, 1]), np.arange(2), listed, CONSTANTS), [40.0, 1.0])
    np.testing.assert_array_equal(payload_bits(2, np.arange(2)[:, None], listed, CONSTANTS), [[20.0], [2.0]])


def test_most_bits_that_fit() -> None:
    """Sizes 10·q + 42: 52 hold one bit, 51 none, 71 two, and any room at most 32."""
    small = replace(CONSTANTS, num_parameters=10)
    room = np.array([[52.0, 51.0], [71.0, 1e9]]) * (1.0 + 1e-9)
    assert most_bits(room, statistics(1.0, 1.0), small).tolist() == [[1, 0], [2, 32]]
    listed = replace(statistics(1.0), upload_bits=np.array([[10.0, 20.0, 40.0] + [99.0] * 29]))
    assert most_bits(np.array([[41.0, 9.0, 100.0]]), listed, small).tolist() == [[3, 0, 32]]


def test_error_bound_is_lemma_1() -> None:
    hundred, one = replace(CONSTANTS, num_parameters=100), statistics(1.0)
    assert error_scales(one, hundred)[0] == pytest.approx(100 * 0.25 / 4)
    assert error_bounds(3, one, hundred)[0] == pytest.approx(100 * 0.25 / (4 * 49))
    assert error_bounds(3, replace(one, error_scales=np.array([98.0])), hundred)[0] == pytest.approx(2.0)


def test_payloads_are_settled_as_they_were_sent() -> None:
    """Twice the bits take twice the energy to send; what does not fit the deadline any more is lost."""
    observation = Observation(np.full((3, 3), 1e8), statistics(1000.0, 1000.0, 1000.0))
    decision = Decision(np.array([0, 1, -1]), np.array([1, 1, 0]), np.array([1e9, 1e9, 0.0]))
    expected = cost.settle(decision, observation, CONSTANTS)
    sizes = np.array([2 * 493_212.0, np.nan, np.nan])
    real = cost.settle(decision, observation, CONSTANTS, sizes_bits=sizes)
    np.testing.assert_allclose(real.upload_energy_j, expected.upload_energy_j * [2.0, 1.0, 1.0])
    late = cost.settle(decision, observation, CONSTANTS, sizes_bits=np.array([1.9e6, np.nan, np.nan]))
    assert expected.arrived.tolist() == real.arrived.tolist() == [True, True, False]
    assert late.arrived.tolist() == [False, True, False]
    assert late.missed.tolist() == [True, False, False]


def test_coefficients_by_hand() -> None:
    """η = 0.1, L = 1, τ = 6: (ηL)² = 0.01, 2τ³ - 3τ² + τ = 330, so A1 = 6.6/0.84 and A2 = 0.6 + 0.3/0.28."""
    assert bound.gradient_norm_coefficient(0.1, 1.0, 6) == pytest.approx(6.6 / 0.84)
    assert bound.gradient_variance_coefficient(0.1, 1.0, 6) == pytest.approx(0.6 + 0.3 / 0.28)


def test_terms_by_hand() -> None:
    """Two clients of 100 and 300 samples, the second takes part alone: its weight is 1."""
    constants = replace(CONSTANTS, smoothness=1.0, num_parameters=100)
    s = statistics(100.0, 300.0)
    on = np.array([False, True])
    a1, a2 = 6.6 / 0.84, 0.6 + 0.3 / 0.28
    assert bound.data_term(on, s, constants) == pytest.approx(24 * (1 + 0.25) + a1 * 1.0 + a2 * 2.0)
    worst = 100 * 0.25 / (4 * 9)
    assert bound.quantization_term(on, np.array([0, 2]), s, constants) == pytest.approx(0.5 * worst)


def test_empty_round_has_no_weights() -> None:
    s, nobody = statistics(100.0, 300.0), np.array([False, False])
    assert bound.aggregation_weights(nobody, s.dataset_sizes).tolist() == [0.0, 0.0]
    assert bound.data_term(nobody, s, CONSTANTS) == pytest.approx(24 * 2)
    assert bound.quantization_term(nobody, np.array([0, 0]), s, CONSTANTS) == 0.0


@pytest.mark.parametrize(
    ("rate", "smoothness", "updates", "says"),
    [(0.1, 1.2, 6, "2η²τ²L² = 1.04"), (0.9, 1.2, 1, "2η²τ²L²"), (0.5, 2.0, 1, "2η²τ²L² = 2")],
)
def test_validity_is_checked(rate: float, smoothness: float, updates: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        bound.require_valid_bound(learning_rate=rate, smoothness=smoothness, local_updates=updates)
    bound.require_valid_bound(learning_rate=0.1, smoothness=1.0, local_updates=6)


def test_slowest_frequency() -> None:
    cycles = np.array([2.4e6])
    assert cost.slowest_frequency_hz(cycles, 0.008, CONSTANTS)[0] == pytest.approx(2e8)
    assert cost.slowest_frequency_hz(cycles, 0.014, CONSTANTS)[0] == pytest.approx(4e8)
    assert np.isinf(cost.slowest_frequency_hz(cycles, 0.0177, CONSTANTS)[0])
    assert np.isinf(cost.slowest_frequency_hz(cycles, 0.03, CONSTANTS)[0])


def decision(bits: int, frequency: float, **flags: bool) -> Decision:
    return Decision(np.array([0, -1]), np.array([bits, 0]), np.array([frequency, 0.0]), **flags)


def observation(rate: float) -> Observation:
    return Observation(np.array([[rate], [rate]]), statistics(1200.0, 1000.0))


def test_settle_by_hand() -> None:
    """1200 samples are 2.4e6 cycles: 12 ms and 0.96 mJ at 200 MHz; 3 bits are 986,392 bits: 8 ms at 123.299 Mb/s."""
    outcome = cost.settle(decision(3, 2e8), observation(986_392 / 0.008), CONSTANTS)
    assert outcome.arrived.tolist() == [True, False]
    assert outcome.missed.tolist() == [False, False]
    assert outcome.compute_energy_j[0] == pytest.approx(0.96e-3)
    assert outcome.upload_energy_j[0] == pytest.approx(1.6e-3)
    assert outcome.latency_s.tolist() == pytest.approx([0.02, 0.0])
    assert outcome.energy_j.tolist() == pytest.approx([2.56e-3, 0.0])
    assert np.isnan(outcome.losses).all()


def test_who_misses_the_deadline_has_spent_everything() -> None:
    """At 1 GHz computing takes 2.4 ms and 24 mJ; the radio is then on for the remaining 17.6 ms."""
    outcome = cost.settle(decision(12, 1e9), observation(1e8), CONSTANTS)
    assert outcome.missed.tolist() == [True, False]
    assert outcome.arrived.tolist() == [False, False]
    assert outcome.compute_energy_j[0] == pytest.approx(24e-3)
    assert outcome.upload_energy_j[0] == pytest.approx(0.2 * 17.6e-3)
    assert outcome.latency_s[0] == pytest.approx(0.02)


def test_who_is_late_at_a_slow_clock_is_charged_for_the_fast_one() -> None:
    outcome = cost.settle(decision(12, 2e8), observation(1e8), CONSTANTS)
    assert outcome.missed[0]
    assert outcome.compute_energy_j[0] == pytest.approx(24e-3)
    assert outcome.upload_energy_j[0] == pytest.approx(0.2 * 17.6e-3)


def test_who_cannot_even_compute_in_time_computes_until_the_deadline() -> None:
    constants = replace(CONSTANTS, cycles_per_sample=1e5)
    outcome = cost.settle(decision(1, 1e9), observation(1e8), constants)
    assert outcome.missed[0]
    assert outcome.compute_energy_j[0] == pytest.approx(1e-26 * 1e18 * 0.02 * 1e9)
    assert outcome.upload_energy_j[0] == 0.0


def test_exempt_uploads_arrive_late_and_are_counted() -> None:
    outcome = cost.settle(decision(32, 2e8, raw=True, deadline_exempt=True), observation(1e8), CONSTANTS)
    assert outcome.missed[0]
    assert outcome.arrived[0]
    assert outcome.latency_s[0] == pytest.approx(0.012 + 32 * 246_590 / 1e8)
    assert outcome.upload_energy_j[0] == pytest.approx(0.2 * 32 * 246_590 / 1e8)


def test_losses_and_later_statistics_are_passed_on() -> None:
    after = statistics(1200.0, 1000.0, norm_sq=9.0)
    outcome = cost.settle(
        decision(3, 2e8), observation(2e8), CONSTANTS, statistics_after=after, losses=np.array([1.5, 2.5])
    )
    assert outcome.losses[0] == 1.5
    assert np.isnan(outcome.losses[1])
    assert outcome.statistics is after


def test_queues_move_by_term_less_budget_and_stop_at_zero() -> None:
    constants = replace(CONSTANTS, data_budget=10.0, quantization_budget=0.03)
    s = statistics(100.0, 300.0)
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
    s = statistics(100.0, 300.0)
    queues = warm_start(s, constants, participation_margin=0.1, quantization_margin=0.5)
    everybody = bound.data_term(np.array([True, True]), s, constants)
    assert queues.participation == pytest.approx(10.0 + 0.1 * everybody)
    assert queues.quantization == pytest.approx(0.53)


def test_warm_start_makes_everybody_worth_its_energy() -> None:
    """100 of 400 samples: 2e5 cycles at 200 MHz are 0.08 mJ, 20 ms at 0.2 W are 4 mJ; its presence weighs 24/4·G²."""
    s = statistics(100.0, 300.0, norm_sq=0.01)
    queues = warm_start(s, CONSTANTS, participation_margin=1e-9, quantization_margin=0.5)
    assert queues.participation == pytest.approx(100.0 * 4.08e-3 / (24 * 0.25 * 0.01))
    nothing = warm_start(statistics(1.0, norm_sq=0.0), CONSTANTS, participation_margin=0.5, quantization_margin=0.5)
    assert np.isfinite(nothing.participation)


def test_streams_are_named() -> None:
    first = stream(1, "channel", 3).random(4)
    assert (stream(1, "channel", 3).random(4) == first).all()
    assert (stream(1, "channel", np.int64(3)).random(4) == first).all(), "a NumPy integer names the same stream"
    others = [stream(2, "channel", 3), stream(1, "channel", 4), stream(1, "placement", 3), stream(1, "channel3")]
    assert all((other.random(4) != first).all() for other in others)


def test_certificate_gap() -> None:
    assert Certificate(5.0, 4.5, "x", 0.1).gap == pytest.approx(0.5)
