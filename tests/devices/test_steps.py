"""Devices with steps: the best step for a deadline by brute force over the whole table, and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.core.contracts import Decision, Observation
from qccf.devices import cost
from qccf.devices.steps import energy_per_cycle_j, offered_frequency_hz, step_arrays, useful_steps
from support.problems import CONSTANTS, equal_statistics, random_steps

TABLE = [(1e9, 2.0), (1.5e9, 2.7), (2e9, 5.0)]
"""2, 1.8 and 2.5 nJ per cycle: the first step is never the best."""


def stepped(table, **changes):
    (frequencies_hz,), (energies_j,) = step_arrays([table])
    kept = useful_steps(table)
    limits = {"frequency_min_hz": kept[0][0], "frequency_max_hz": kept[-1][0], "energy_coefficient": 0.0}
    arrays = {"step_frequencies_hz": frequencies_hz, "step_energies_j": energies_j}
    return replace(CONSTANTS, **limits, **arrays, **changes)


def test_by_hand():
    """30 million cycles in 20 ms need 1.5 GHz if the upload takes no time, and 2 GHz if it takes 4 ms."""
    assert useful_steps(TABLE) == [(1.5e9, pytest.approx(1.8e-9)), (2e9, pytest.approx(2.5e-9))]
    c = stepped(TABLE)
    assert cost.slowest_frequency_hz(30e6, 0.0, c) == 1.5e9
    assert cost.slowest_frequency_hz(30e6, 0.004, c) == 2e9
    assert np.isinf(cost.slowest_frequency_hz(30e6, 0.006, c))
    assert cost.slowest_frequency_hz(1e6, 0.0, c) == 1.5e9  # 1 GHz would do, but takes more energy
    assert cost.compute_energy_j(30e6, 1.5e9, c) == pytest.approx(0.054)
    assert cost.compute_energy_j(30e6, 1.7e9, c) == pytest.approx(0.075)  # runs at 2 GHz
    assert np.isinf(cost.compute_energy_j(30e6, np.inf, c))


def test_of_two_steps_with_the_same_energy_the_faster_is_kept():
    assert useful_steps([(1e9, 1.0), (2e9, 2.0)]) == [(2e9, 1e-9)]


@pytest.mark.parametrize(("above", "step"), [(0.0, 1.5e9), (5e-13, 1.5e9), (1e-12, 1.5e9), (2e-12, 2e9), (1e-9, 2e9)])
def test_only_a_rounding_error_above_a_step_is_that_step(above, step):
    c = stepped(TABLE)
    frequency_hz = 1.5e9 * (1.0 + above)
    assert offered_frequency_hz(frequency_hz, c) == step
    assert energy_per_cycle_j(frequency_hz, 0.0, c) == pytest.approx({1.5e9: 1.8e-9, 2e9: 2.5e-9}[step])


def test_devices_with_one_step_with_two_and_with_none():
    frequencies_hz, energies_j = step_arrays([[(1e9, 1.0)], [(1e9, 1.0), (2e9, 4.0)], []])
    c = replace(CONSTANTS, step_frequencies_hz=frequencies_hz, step_energies_j=energies_j)
    asked_hz = np.array([0.7e9, 1.2e9, 1.3e9])
    assert offered_frequency_hz(asked_hz, c).tolist() == [1e9, 2e9, 1.3e9]
    assert energy_per_cycle_j(asked_hz, 7e-9, c).tolist() == [1e-9, 2e-9, 7e-9]
    assert offered_frequency_hz(np.full(3, 3e9), c).tolist() == [np.inf, np.inf, 3e9]


def test_best_step_is_the_cheapest_that_is_fast_enough():
    rng = np.random.default_rng(5)
    law = replace(CONSTANTS, frequency_min_hz=2e8, frequency_max_hz=2e9)
    misses = 0
    for _ in range(300):
        table = random_steps(rng, law)
        c = stepped(table)
        cycles, upload_s = 10 ** rng.uniform(6.0, 7.8), rng.uniform(0.0, 0.02)
        energies = [p * cycles / f for f, p in table if cycles / f <= c.deadline_s - upload_s]
        found_hz = cost.slowest_frequency_hz(cycles, upload_s, c)
        assert np.isfinite(found_hz) == bool(energies)
        misses += not energies
        if energies:
            assert cost.compute_energy_j(cycles, found_hz, c) == pytest.approx(min(energies), rel=1e-12)
    assert 50 < misses < 250


@pytest.mark.parametrize("circuit_power_w", [0.0, 0.3])
def test_best_power_with_steps(circuit_power_w):
    """No pair of a step and a power of a fine grid takes less."""
    rng = np.random.default_rng(6)
    law = replace(CONSTANTS, frequency_min_hz=2e8, frequency_max_hz=2e9)
    chosen = {"bandwidth_hz": 1e7, "transmit_power_min_w": 1e-3, "adapt_power": True}
    powers_w = np.geomspace(1e-3, 0.2, 4001)
    met = 0
    for _ in range(60):
        table = random_steps(rng, law)
        c = stepped(table, circuit_power_w=circuit_power_w, **chosen)
        rate_bps, cycles = 10.0 ** rng.uniform(6.5, 8.0), 10 ** rng.uniform(6.0, 7.4)
        bits = rate_bps * c.deadline_s * 10.0 ** rng.uniform(-3.0, 0.0)
        snr = (2.0 ** (rate_bps / 1e7) - 1.0) * powers_w / 0.2
        upload_s = bits / (1e7 * np.log2(1.0 + snr))
        best = min(
            float(
                np.where(upload_s + cycles / f <= c.deadline_s, (powers_w + circuit_power_w) * upload_s, np.inf).min()
            )
            + p * cycles / f
            for f, p in table
        )
        sent = cost.transmission(np.array([bits]), np.array([rate_bps]), np.array([cycles]), c)
        frequency_hz = cost.slowest_frequency_hz(np.array([cycles]), sent.upload_s, c)
        found = (cost.compute_energy_j(cycles, frequency_hz, c) + cost.upload_energy_j(sent, c))[0]
        assert np.isfinite(found) or not np.isfinite(best)
        if np.isfinite(best):
            met += 1
            assert found <= best * (1.0 + 1e-9)
            assert found >= best * (1.0 - 2e-3)
    assert met > 20


def test_settlement_runs_at_the_step_above():
    """1000 samples, 2 epochs and 12,000 cycles, and 1.2 GHz asked for: the device offers 1.5 GHz and takes 43 mJ."""
    c = stepped(TABLE, cycles_per_sample=12_000.0)
    observed = Observation(np.full((1, 1), 1e9), equal_statistics(1000.0))
    decision = Decision(np.array([0]), np.array([1]), np.array([1.2e9]))
    outcome = cost.settle(decision, observed, c)
    assert outcome.compute_energy_j[0] == pytest.approx(24e6 * 1.8e-9)
    assert outcome.latency_s[0] == pytest.approx(0.016 + 493_212 / 1e9)
    assert not outcome.missed[0]


def test_a_lost_upload_is_charged_at_the_highest_step():
    c = stepped(TABLE, cycles_per_sample=10_000.0)
    observed = Observation(np.full((1, 1), 1e6), equal_statistics(1000.0))
    outcome = cost.settle(Decision(np.array([0]), np.array([1]), np.array([1.5e9])), observed, c)
    assert not outcome.arrived[0]
    assert outcome.compute_energy_j[0] == pytest.approx(20e6 * 2.5e-9)
    assert outcome.upload_energy_j[0] == pytest.approx(0.2 * 0.01)


@pytest.mark.parametrize("times", [1.0, 5000.0])
@pytest.mark.parametrize(("per_radiated", "circuit_power_w"), [(1.0, 0.0), (5.0, 0.0), (1.0, 0.005)])
def test_a_faster_step_is_taken_where_the_radio_saves_more_than_the_cpu_loses(per_radiated, circuit_power_w, times):
    """Two steps that take nearly the same energy, and a radio that decides between them, in milliseconds or seconds."""
    rng = np.random.default_rng(7)
    powers_w = np.geomspace(1e-4, 0.2, 2001)
    taken = []
    for _ in range(40):
        table = [(1e9, 0.2), (2e9, 0.4 * (1.0 + 10.0 ** rng.uniform(-3.0, 0.0)))]
        radio = {"power_per_radiated": per_radiated, "circuit_power_w": circuit_power_w, "bandwidth_hz": 1e7}
        c = stepped(table, transmit_power_min_w=1e-4, adapt_power=True, deadline_s=0.02 * times, **radio)
        rate_bps, cycles = 10.0 ** rng.uniform(7.3, 8.0), times * rng.uniform(8e6, 1.6e7)
        bits = rate_bps * times * rng.uniform(1e-3, 4e-3)
        upload_s = bits / (1e7 * np.log2(1.0 + (2.0 ** (rate_bps / 1e7) - 1.0) * powers_w / 0.2))
        radio_j = (per_radiated * powers_w + circuit_power_w) * upload_s
        best = [
            float(np.where(upload_s + cycles / f <= c.deadline_s, radio_j, np.inf).min()) + p * cycles / f
            for f, p in table
        ]
        sent = cost.transmission(np.array([bits]), np.array([rate_bps]), np.array([cycles]), c)
        frequency_hz = cost.slowest_frequency_hz(np.array([cycles]), sent.upload_s, c)
        found = (cost.compute_energy_j(cycles, frequency_hz, c) + cost.upload_energy_j(sent, c))[0]
        assert found == pytest.approx(min(best), rel=2e-3)
        taken.append(int(np.argmin(best)))
    assert 3 < sum(taken) < 37, "both steps are the better one at times"


def test_of_two_clients_one_has_steps():
    """Each gets the upload time that it has alone."""
    radio = {"bandwidth_hz": 1e7, "transmit_power_min_w": 1e-4, "adapt_power": True}
    (frequencies_hz, _), (energies_j, _) = arrays = step_arrays([TABLE, []])
    law = replace(CONSTANTS, **radio)
    both = replace(law, step_frequencies_hz=arrays[0], step_energies_j=arrays[1], frequency_max_hz=np.array([2e9, 1e9]))
    bits, rates_bps, cycles = np.array([2e5, 3e5]), np.array([5e7, 6e7]), np.array([2e7, 4e6])
    found_s = cost.transmission(bits, rates_bps, cycles, both).upload_s
    first = replace(law, step_frequencies_hz=frequencies_hz, step_energies_j=energies_j, frequency_max_hz=2e9)
    for client, alone in enumerate((first, law)):
        own_s = cost.transmission(bits[client], rates_bps[client], cycles[client], alone).upload_s
        assert found_s[client] == pytest.approx(float(own_s), rel=1e-9)
