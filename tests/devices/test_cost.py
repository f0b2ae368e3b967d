"""Time and energy of a round, computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.core.contracts import Decision, Observation
from qccf.devices import cost
from support.problems import CONSTANTS, equal_statistics


def decision(bits: int, frequency: float, **flags: bool) -> Decision:
    return Decision(np.array([0, -1]), np.array([bits, 0]), np.array([frequency, 0.0]), **flags)


def observation(rate: float) -> Observation:
    return Observation(np.array([[rate], [rate]]), equal_statistics(1200.0, 1000.0))


def test_slowest_frequency() -> None:
    cycles = np.array([2.4e6])
    assert cost.slowest_frequency_hz(cycles, 0.008, CONSTANTS)[0] == pytest.approx(2e8)
    assert cost.slowest_frequency_hz(cycles, 0.014, CONSTANTS)[0] == pytest.approx(4e8)
    assert np.isinf(cost.slowest_frequency_hz(cycles, 0.0177, CONSTANTS)[0])
    assert np.isinf(cost.slowest_frequency_hz(cycles, 0.03, CONSTANTS)[0])


def test_settle_by_hand() -> None:
    """1200 samples need 2.4e6 cycles: 12 ms and 0.96 mJ at 200 MHz. q = 3 gives 986,392 bits: 8 ms at 123.299 Mb/s."""
    outcome = cost.settle(decision(3, 2e8), observation(986_392 / 0.008), CONSTANTS)
    assert outcome.arrived.tolist() == [True, False]
    assert outcome.missed.tolist() == [False, False]
    assert outcome.compute_energy_j[0] == pytest.approx(0.96e-3)
    assert outcome.upload_energy_j[0] == pytest.approx(1.6e-3)
    assert outcome.latency_s.tolist() == pytest.approx([0.02, 0.0])
    assert outcome.energy_j.tolist() == pytest.approx([2.56e-3, 0.0])
    assert np.isnan(outcome.losses).all()


def test_settle_uses_measured_payload_sizes() -> None:
    """Twice the bits need twice the upload energy; an upload that no longer meets the deadline is lost."""
    observation = Observation(np.full((3, 3), 1e8), equal_statistics(1000.0, 1000.0, 1000.0))
    decision = Decision(np.array([0, 1, -1]), np.array([1, 1, 0]), np.array([1e9, 1e9, 0.0]))
    expected = cost.settle(decision, observation, CONSTANTS)
    sizes = np.array([2 * 493_212.0, np.nan, np.nan])
    real = cost.settle(decision, observation, CONSTANTS, sizes_bits=sizes)
    np.testing.assert_allclose(real.upload_energy_j, expected.upload_energy_j * [2.0, 1.0, 1.0])
    late = cost.settle(decision, observation, CONSTANTS, sizes_bits=np.array([1.9e6, np.nan, np.nan]))
    assert expected.arrived.tolist() == real.arrived.tolist() == [True, True, False]
    assert late.arrived.tolist() == [False, True, False]
    assert late.missed.tolist() == [True, False, False]


def test_only_a_rounding_error_beyond_the_deadline_is_in_time() -> None:
    """12 ms of training and 8 ms of uploading, longer by a share of the deadline of 20 ms."""
    for share, late in ((-1e-10, False), (1e-10, False), (1e-8, True)):
        outcome = cost.settle(decision(3, 2e8), observation(986_392 / (0.008 + 0.02 * share)), CONSTANTS)
        assert outcome.missed.tolist() == [late, False]


def test_a_late_client_has_spent_all_its_energy() -> None:
    """At 1 GHz computing takes 2.4 ms and 24 mJ; the client then transmits for the remaining 17.6 ms."""
    outcome = cost.settle(decision(12, 1e9), observation(1e8), CONSTANTS)
    assert outcome.missed.tolist() == [True, False]
    assert outcome.arrived.tolist() == [False, False]
    assert outcome.compute_energy_j[0] == pytest.approx(24e-3)
    assert outcome.upload_energy_j[0] == pytest.approx(0.2 * 17.6e-3)
    assert outcome.latency_s[0] == pytest.approx(0.02)


def test_a_late_client_at_a_low_frequency_is_charged_for_the_highest() -> None:
    outcome = cost.settle(decision(12, 2e8), observation(1e8), CONSTANTS)
    assert outcome.missed[0]
    assert outcome.compute_energy_j[0] == pytest.approx(24e-3)
    assert outcome.upload_energy_j[0] == pytest.approx(0.2 * 17.6e-3)


def test_a_client_that_cannot_finish_computing_computes_until_the_deadline() -> None:
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


def test_able_clients_by_hand() -> None:
    """1000 samples need 2 ms at 1 GHz, so 493,212 bits (q = 1) need 27.4007 Mb/s on the best channel."""
    limit_bps = 493_212 / 0.018
    rates_bps = np.array([[0.0, 1.001 * limit_bps], [0.999 * limit_bps, 0.5 * limit_bps], [0.0, 0.0], [1e12, 0.0]])
    statistics = equal_statistics(1000.0, 1000.0, 1000.0, 10_000.0)  # the last one needs all 20 ms to compute
    able = cost.able_clients(Observation(rates_bps, statistics), CONSTANTS)
    assert able.tolist() == [True, False, False, False]
    sizes = np.array([[9e5, 9e5], [9e5, 4e5], [1.0, 1.0], [1.0, 1.0]])  # a codec's own sizes; any q counts
    able = cost.able_clients(Observation(rates_bps, replace(statistics, upload_bits=sizes)), CONSTANTS)
    assert able.tolist() == [False, True, False, False]


def test_able_clients_are_those_that_settle_in_time() -> None:
    """Oracle: every channel is tried with one bit at the highest frequency."""
    rng = np.random.default_rng(5)
    observation = Observation(10 ** rng.uniform(6.8, 7.8, (60, 3)), equal_statistics(*rng.uniform(200, 9000, 60)))
    tried = np.zeros(60, dtype=bool)
    for channel in range(3):
        everybody = Decision(np.full(60, channel), np.ones(60, dtype=np.int64), np.full(60, 1e9))
        tried |= cost.settle(everybody, observation, CONSTANTS).arrived
    assert 10 < tried.sum() < 50
    assert cost.able_clients(observation, CONSTANTS).tolist() == tried.tolist()


def test_optional_charges_by_hand() -> None:
    """Two clients at 200 MHz, 100 Mb/s and q = 1: 493,212 bits in 4.93 ms.

    Coding 0.2e6 cycles adds 1 ms and 0.08 mJ to each. The round ends after 6 + 1 + 4.93 ms with the larger client, and
    both take 0.1 W for all of it.
    """
    plain = replace(CONSTANTS, cycles_per_sample=500.0)
    charged = replace(plain, coding_cycles=0.2e6, receive_energy_j=3e-4, idle_power_w=0.1, circuit_power_w=0.1)
    observed = Observation(np.full((3, 2), 1e8), equal_statistics(1200.0, 1000.0, 800.0))
    both = Decision(np.array([0, 1, -1]), np.array([1, 1, 0]), np.array([2e8, 2e8, 0.0]))
    before, after = cost.settle(both, observed, plain), cost.settle(both, observed, charged)
    np.testing.assert_allclose(after.compute_energy_j, before.compute_energy_j)
    np.testing.assert_allclose(after.upload_energy_j, 1.5 * before.upload_energy_j)
    np.testing.assert_allclose(after.coding_energy_j, [0.08e-3, 0.08e-3, 0.0])
    np.testing.assert_allclose(after.receive_energy_j, [3e-4, 3e-4, 0.0])
    np.testing.assert_allclose(after.idle_energy_j, [0.1 * 11.93212e-3, 0.1 * 11.93212e-3, 0.0])
    np.testing.assert_allclose(after.latency_s - before.latency_s, [1e-3, 1e-3, 0.0], atol=1e-15)
    assert after.arrived.tolist() == [True, True, False]
    parts = ("compute_energy_j", "upload_energy_j", "coding_energy_j", "receive_energy_j", "idle_energy_j")
    np.testing.assert_allclose(after.energy_j, sum(getattr(after, part) for part in parts))
    for part in parts[2:]:
        assert not np.any(getattr(before, part)), "nothing is charged unless it is set"


def test_an_upload_without_a_quantizer_is_not_coded() -> None:
    charged = replace(CONSTANTS, coding_cycles=1e6)
    raw = cost.settle(decision(32, 2e8, raw=True, deadline_exempt=True), observation(1e9), charged)
    assert not np.any(raw.coding_energy_j)
    plain = cost.settle(decision(32, 2e8, raw=True, deadline_exempt=True), observation(1e9), CONSTANTS)
    np.testing.assert_array_equal(raw.energy_j, plain.energy_j)
    np.testing.assert_array_equal(raw.latency_s, plain.latency_s)


def test_coding_counts_for_the_deadline() -> None:
    """12 ms of training and 8 ms of uploading fill the deadline: with coding the upload is lost."""
    outcome = cost.settle(decision(3, 2e8), observation(986_392 / 0.008), replace(CONSTANTS, coding_cycles=1e5))
    assert outcome.missed.tolist() == [True, False]


def test_settle_uses_the_power_of_the_decision() -> None:
    """At full power the ratio is 7 and the rate 3·B; with a seventh of the power it is 1, and the rate B."""
    constants = replace(CONSTANTS, bandwidth_hz=1e8)
    powers_w = np.array([CONSTANTS.transmit_power_w / 7.0, 0.0])
    outcome = cost.settle(replace(decision(1, 2e8), powers_w=powers_w), observation(3e8), constants)
    upload_s = (2 * 246_590 + 32) / 1e8
    assert outcome.latency_s[0] == pytest.approx(0.012 + upload_s)
    assert outcome.upload_energy_j[0] == pytest.approx(powers_w[0] * upload_s)


def test_the_highest_frequency_itself_is_allowed() -> None:
    """Half a second for half a gigacycle: exactly 1 GHz, in numbers that are exact."""
    constants = replace(CONSTANTS, deadline_s=1.0, frequency_max_hz=1e9)
    assert cost.slowest_frequency_hz(np.array([0.5e9]), 0.5, constants)[0] == 1e9
    assert np.isinf(cost.slowest_frequency_hz(np.array([0.5e9]), np.nextafter(0.5, 1.0), constants)[0])


def test_an_upload_without_a_quantizer_has_the_buffers_as_well() -> None:
    """32 bits for each of 246,590 parameters and 10 buffer values, at 1 Gb/s."""
    constants = replace(CONSTANTS, num_buffers=10)
    outcome = cost.settle(decision(32, 2e8, raw=True, deadline_exempt=True), observation(1e9), constants)
    assert outcome.latency_s[0] == pytest.approx(0.012 + 32 * 246_600 / 1e9, rel=1e-12)


def test_who_sits_out_has_no_transmit_power() -> None:
    assert cost.transmit_powers_w(decision(1, 2e8), CONSTANTS).tolist() == [0.2, 0.0]
    chosen = replace(decision(1, 2e8), powers_w=np.array([0.05, 0.0]))
    assert cost.transmit_powers_w(chosen, CONSTANTS).tolist() == [0.05, 0.0]


def test_who_receives_a_part_of_the_model_is_charged_for_that_part() -> None:
    charged = replace(CONSTANTS, receive_energy_j=3e-4)
    outcome = cost.settle(decision(1, 2e8), observation(1e9), charged, received=np.array([0.25, 1.0]))
    assert outcome.receive_energy_j.tolist() == pytest.approx([0.75e-4, 0.0])
