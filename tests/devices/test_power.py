"""Transmit power as a decision, compared with brute force over powers, and with the conditions of its optimum."""

from dataclasses import replace

import numpy as np
import pytest

from qccf.core.contracts import Constants
from qccf.devices import cost, power
from support.problems import CONSTANTS

BANDWIDTH_HZ = 1e7


def constants(**changes: float) -> Constants:
    given = {"bandwidth_hz": BANDWIDTH_HZ, "transmit_power_min_w": 1e-3, "adapt_power": True}
    return replace(CONSTANTS, **{**given, **changes})


def drawn(rng: np.random.Generator, count: int, c: Constants) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Uploads of every kind: some that miss the deadline, some that barely meet it, some with much time."""
    rates_bps = 10.0 ** rng.uniform(5.5, 8.3, count)
    cycles = 10.0 ** rng.uniform(5.0, np.log10(0.999 * c.deadline_s * c.frequency_max_hz), count)
    bits = rates_bps * c.deadline_s * 10.0 ** rng.uniform(-4.0, 0.1, count)
    return bits, rates_bps, cycles


def energy_j(bits: float, rate_bps: float, cycles: float, power_w: float, c: Constants) -> float:
    """In plain words: the rate with this power, the time it leaves, the slowest frequency, and both energies."""
    snr = (2.0 ** (rate_bps / c.bandwidth_hz) - 1.0) * power_w / c.transmit_power_w
    upload_s = bits / (c.bandwidth_hz * np.log2(1.0 + snr))
    left_s = c.deadline_s - upload_s
    if left_s <= 0.0 or cycles / left_s > c.frequency_max_hz:
        return np.inf
    frequency_hz = max(c.frequency_min_hz, cycles / left_s)
    return c.energy_coefficient * cycles * frequency_hz**2 + (power_w + c.circuit_power_w) * upload_s


def found_j(bits: np.ndarray, rates_bps: np.ndarray, cycles: np.ndarray, c: Constants) -> np.ndarray:
    sent = cost.transmission(bits, rates_bps, cycles, c)
    frequency_hz = cost.slowest_frequency_hz(cycles, sent.upload_s, c)
    return cost.compute_energy_j(cycles, frequency_hz, c) + cost.upload_energy_j(sent, c)


@pytest.mark.parametrize("circuit_power_w", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("energy_coefficient", [1e-28, 1e-26, 1e-24])
def test_no_power_of_a_fine_grid_takes_less(circuit_power_w: float, energy_coefficient: float) -> None:
    c = constants(circuit_power_w=circuit_power_w, energy_coefficient=energy_coefficient)
    bits, rates_bps, cycles = drawn(np.random.default_rng(3), 60, c)
    powers_w = np.geomspace(c.transmit_power_min_w, c.transmit_power_w, 4001)
    best = np.array([
        min(energy_j(*one, float(p), c) for p in powers_w) for one in zip(bits, rates_bps, cycles, strict=True)
    ])  # fmt: skip
    found = found_j(bits, rates_bps, cycles, c)
    feasible = np.isfinite(best)
    np.testing.assert_array_equal(np.isfinite(found), feasible)
    assert (found[feasible] <= best[feasible] * (1.0 + 1e-9)).all()
    assert (found[feasible] >= best[feasible] * (1.0 - 1e-3)).all(), "the grid is fine enough to see the optimum"
    assert 10 < feasible.sum() < 60


def test_the_conditions_of_the_optimum_hold() -> None:
    """In every regime the slope of the energy is zero, or points out of the interval of admissible times."""
    regimes: dict[str, int] = {}
    for energy_coefficient, circuit_power_w in ((1e-26, 0.0), (1e-24, 0.0), (1e-26, 0.05), (1e-24, 0.05), (1e-26, 0.5)):
        c = constants(energy_coefficient=energy_coefficient, circuit_power_w=circuit_power_w)
        for one in zip(*drawn(np.random.default_rng(5), 300, c), strict=True):
            bits, rate_bps, cycles = map(float, one)
            upload_s, power_w = (float(x) for x in cost.transmission(*map(np.array, (bits, rate_bps, cycles)), c))
            if not np.isfinite(cost.slowest_frequency_hz(cycles, upload_s, c)):
                assert power_w == pytest.approx(c.transmit_power_w)
                continue
            assert c.transmit_power_min_w <= power_w <= c.transmit_power_w
            assert upload_s == pytest.approx(bits / float(power.rates_at_power_bps(rate_bps, power_w, c)), rel=1e-9)

            def slope(at_s: float, side: float, bits=bits, rate_bps=rate_bps, cycles=cycles, c=c) -> float:
                gain = (2.0 ** (rate_bps / c.bandwidth_hz) - 1.0) / c.transmit_power_w
                y = bits * np.log(2.0) / (c.bandwidth_hz * at_s)
                left_s = c.deadline_s - at_s
                fast = cycles / left_s > c.frequency_min_hz * (1.0 - side * 1e-9)
                computing = 2.0 * c.energy_coefficient * cycles**3 / left_s**3 if fast else 0.0
                return (np.exp(y) * (1.0 - y) - 1.0) / gain + c.circuit_power_w + computing

            size = 1e-7 * abs(slope(upload_s, 1.0)) + 1e-7 * (power_w + c.circuit_power_w)
            latest = cycles / (c.deadline_s - upload_s) >= c.frequency_max_hz * (1.0 - 1e-6)
            if power_w <= c.transmit_power_min_w * (1.0 + 1e-9) or latest:
                regimes["end"] = regimes.get("end", 0) + 1
                assert slope(upload_s, -1.0) <= size
            elif power_w >= c.transmit_power_w * (1.0 - 1e-9):
                regimes["full power"] = regimes.get("full power", 0) + 1
                assert slope(upload_s, 1.0) >= -size
            elif abs(cycles / (c.deadline_s - upload_s) / c.frequency_min_hz - 1.0) < 1e-9:
                regimes["kink"] = regimes.get("kink", 0) + 1
                assert slope(upload_s, -1.0) <= size
                assert slope(upload_s, 1.0) >= -size
            else:
                regimes["inside"] = regimes.get("inside", 0) + 1
                assert abs(slope(upload_s, 1.0)) <= size
    assert min(regimes.values()) > 20, regimes
    assert len(regimes) == 4


@pytest.mark.parametrize("circuit_power_w", [0.0, 0.1])
def test_without_a_link_or_without_time_the_upload_is_impossible(circuit_power_w: float) -> None:
    c = constants(circuit_power_w=circuit_power_w)
    bits, cycles = np.array([1e5, 1e12, 1e5]), np.array([1e6, 1e6, 1e12])
    sent = cost.transmission(bits, np.array([0.0, 1e7, 1e8]), cycles, c)
    assert np.isinf(cost.slowest_frequency_hz(cycles, sent.upload_s, c)).all()
    assert not np.isnan(sent.upload_s).any()
    assert sent.power_w == pytest.approx(c.transmit_power_w)


def test_one_admissible_power_is_the_fixed_one() -> None:
    c = constants(transmit_power_min_w=CONSTANTS.transmit_power_w)
    bits, rates_bps, cycles = drawn(np.random.default_rng(7), 100, c)
    fixed = cost.transmission(bits, rates_bps, cycles, replace(c, adapt_power=False))
    free = cost.transmission(bits, rates_bps, cycles, c)
    np.testing.assert_allclose(free.upload_s, fixed.upload_s, rtol=1e-9)
    np.testing.assert_allclose(free.power_w, fixed.power_w)


def test_rates_at_another_power_by_hand() -> None:
    """A rate of 3·B has the ratio 7 at full power. A seventh of the power has the ratio 1, and the rate B."""
    c = constants()
    assert power.rates_at_power_bps(3.0 * BANDWIDTH_HZ, c.transmit_power_w / 7.0, c) == pytest.approx(BANDWIDTH_HZ)
    assert power.rates_at_power_bps(0.0, c.transmit_power_w, c) == 0.0


def test_no_bit_costs_less_than_the_bound() -> None:
    c = constants(transmit_power_min_w=1e-9, energy_coefficient=1e-30)
    rates_bps = np.geomspace(1e5, 1e8, 20)
    bits, cycles = 0.2 * c.deadline_s * rates_bps, np.full(20, 1e5)
    extra = (found_j(1.01 * bits, rates_bps, cycles, c) - found_j(bits, rates_bps, cycles, c)) / (0.01 * bits)
    bound = power.least_energy_per_bit_j(rates_bps, c)
    assert (extra >= bound * (1.0 - 1e-6)).all()
    assert power.least_energy_per_bit_j(0.0, c) == 0.0


def test_the_cheapest_rate_solves_its_equation() -> None:
    """e^y·(y - 1) + 1 = G. By hand: y = 1 gives G = 1, and without circuits the slowest upload is the cheapest."""
    ratios = np.geomspace(1e-6, 1e12, 2001)
    nats = power._cheapest_nats(ratios)
    np.testing.assert_allclose(nats * np.exp(nats) - np.expm1(nats), ratios, rtol=1e-9)
    assert power._cheapest_nats(np.array([1.0, 0.0])) == pytest.approx([1.0, 0.0])
    small = np.array([1e-18, 1e-15, 1e-12])  # y²/2 = G
    np.testing.assert_allclose(power._cheapest_nats(small), np.sqrt(2.0 * small), rtol=1e-4)


def test_operands_with_one_entry_are_those_of_all_clients() -> None:
    bits, rates_bps, cycles = np.array([[1e5], [4e5], [9e5]]), np.array([[3e7, 1e8]]), np.array([[2e6]])
    c = constants(circuit_power_w=0.02)
    found_s = power.best_upload_s(bits, rates_bps, cycles, c)
    alone_s = [[float(power.best_upload_s(b, r, 2e6, c)) for r in rates_bps[0]] for b in bits[:, 0]]
    np.testing.assert_allclose(found_s, alone_s, rtol=1e-9)


def test_the_search_for_the_best_time_ends_within_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with the same search until nothing moves."""
    c = constants(circuit_power_w=0.02)
    uploads = drawn(np.random.default_rng(3), 20_000, c)
    found_s = power.best_upload_s(*uploads, c)
    monkeypatch.setattr(power, "LAST_NEWTON_STEP", 1e-13)
    np.testing.assert_allclose(found_s, power.best_upload_s(*uploads, c), rtol=1e-9)


@pytest.mark.parametrize("energy_coefficient", [1e-28, 1e-26])
def test_the_search_for_the_best_time_takes_few_steps(energy_coefficient: float, monkeypatch) -> None:
    """Halving alone would take thirty, also where the end of the interval is the best."""
    c = constants(circuit_power_w=0.02, energy_coefficient=energy_coefficient)
    uploads = drawn(np.random.default_rng(3), 2000, c)
    found_s = power.best_upload_s(*uploads, c)
    monkeypatch.setattr(power, "MOST_STEPS", 12)
    np.testing.assert_allclose(power.best_upload_s(*uploads, c), found_s, rtol=1e-9)


@pytest.mark.parametrize("with_steps", [False, True])
def test_an_upload_takes_all_the_time_that_the_highest_frequency_leaves(with_steps: bool) -> None:
    """10 million cycles at 1 GHz leave 10 of 20 ms, and computing costs next to nothing. The deadline is met."""
    c = constants(energy_coefficient=1e-33, transmit_power_min_w=1e-9, frequency_max_hz=1e9)
    if with_steps:
        c = replace(c, step_frequencies_hz=np.array([1e9]), step_energies_j=np.array([1e-15]))
    bits, rates_bps, cycles = np.array([1e5]), np.array([1e8]), np.array([1e7])
    upload_s = cost.transmission(bits, rates_bps, cycles, c).upload_s
    assert upload_s == pytest.approx(0.01, rel=1e-9)
    assert cost.slowest_frequency_hz(cycles, upload_s, c) == pytest.approx(1e9, rel=1e-9)
