"""Each erratum: the printed form failing, the mended one holding. `docs/deviations.md` explains them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from qccf.control.bits_closed_form import Prices, marginal_gain, relaxed_optimum, terms, unconstrained_bits
from qccf.control.bits_exact import ExactPairs
from qccf.control.bits_printed import PrintedPairs, printed_optimum
from qccf.control.bound import data_term, quantization_term, require_valid_bound
from qccf.control.channels_genetic import GeneticSettings
from qccf.control.problem import RoundProblem, objective
from qccf.control.solve import solve_round
from qccf.core.contracts import Statistics
from qccf.core.errors import ConfigError
from qccf.core.streams import key
from qccf.devices.cost import compute_energy_j, training_cycles
from qccf.quantization.registry import build_codec
from qccf.rounds.run import Run
from qccf.rounds.sources import StatisticsModel
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan_run
from qccf.settings.loading import load_scenario
from support.problems import random_problem, typical_problem
from support.vectors import layered_vector


def sampled(below: float = 0.0):
    """Many rounds with all their pairs, the mended and the printed answer, and who can deliver at all."""
    rng = np.random.default_rng(41)
    for _ in range(60):
        problem = random_problem(rng, num_clients=10, num_channels=10, below=below)
        total = float(problem.dataset_sizes.sum())
        rows, columns = (index.ravel() for index in np.indices(problem.rates_bps.shape))
        mended = relaxed_optimum(problem, total, rows, columns, case_five="iterated")
        printed = printed_optimum(problem, total, rows, columns, last_bits=mended.num_bits)
        yield problem, total, rows, columns, mended, printed


def test_E1_the_table_needs_84_db() -> None:
    """One bit for 246,590 parameters in what 1,200 samples leave of 20 ms at 1 GHz is 28 Mb/s on 1 MHz."""
    rate = (2 * 246_590 + 32) / (0.02 - 2 * 1000 * 1200 / 1e9)
    assert rate == pytest.approx(28.0e6, rel=1e-3)
    assert 10 * np.log10(2 ** (rate / 1e6) - 1) == pytest.approx(84.4, abs=0.1)


def test_E2_the_printed_taylor_denominator_is_63_times_off_at_six_bits() -> None:
    power = 2.0**6
    assert (2 * power**2 + 1) / (2 * power + 1) == pytest.approx(63.5, abs=0.1)
    shorter = 0
    for problem, total, rows, columns, mended, _ in sampled():
        fifth = mended.case == 5
        start = mended.num_bits - 0.5
        step = printed_optimum(problem, total, rows, columns, last_bits=start).num_bits - start
        right = relaxed_optimum(problem, total, rows, columns, case_five="taylor", last_bits=start).num_bits - start
        inside = fifth & (start > 3.0) & np.isfinite(step) & (right > 0.05)
        shorter += int((step[inside] < 0.5 * right[inside]).sum())
    assert shorter > 100, "the printed step should fall far short of the right one"


def test_E3_printed_case_1_claims_pairs_that_cannot_deliver_and_misses_others() -> None:
    infeasible = claimed = feasible = orphaned = 0
    for _, _, _, _, mended, printed in sampled(below=0.15):
        cannot = mended.case == 0
        infeasible += int(cannot.sum())
        claimed += int((printed.case[cannot] == 1).sum())
        feasible += int((~cannot).sum())
        orphaned += int((printed.case[~cannot] == 0).sum())
    assert claimed / infeasible > 0.02, "printed Pre1 has no limit on the frequency"
    assert orphaned / feasible > 0.02, "some feasible pairs satisfy no printed case"


def test_E3_the_deadline_has_a_price_in_case_1() -> None:
    """Pairs whose optimum is one bit because the deadline, not the upload, makes a second one dear."""
    found = 0
    for problem, total, rows, columns, mended, printed in sampled():
        upload = Prices.of(problem, rows).upload
        first = (mended.case == 1) & (upload < marginal_gain(1.0, terms(problem, total, rows, columns).gain))
        found += int(first.sum())
        assert (printed.case[first] != 1).all()
        assert (ExactPairs(problem).bits(total, rows[first], columns[first]) == 1).all()
    assert found > 0


def test_E4_printed_multiplier_forgets_the_upload_price() -> None:
    """In Case 3 the printed κ1 is X itself: it accepts pairs whose true κ1 = X - pV is too small for f_max."""
    wrong = 0
    for problem, total, rows, columns, mended, printed in sampled():
        disputed = (printed.case == 3) & (mended.case != 3)
        if not disputed.any():
            continue
        bits = printed.num_bits[disputed]
        gain = marginal_gain(bits, terms(problem, total, rows[disputed], columns[disputed]).gain)
        prices = Prices.of(problem, rows[disputed])
        needed = prices.of_speed(problem.constants.frequency_max_hz)
        assert (gain >= needed).all()
        assert (gain - prices.upload < needed).all()
        wrong += int(disputed.sum())
    assert wrong > 0


def test_E5_the_printed_root_is_complex_beyond_two_bits() -> None:
    """A4 = 27/4 is x = 3, which is q = 2."""
    assert float(unconstrained_bits(27 / 4, 1.0)) == pytest.approx(2.0)
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.sqrt(0.25 - np.array([6.76]) / 27.0)).all()
    for _, _, _, _, mended, printed in sampled():
        beyond = (mended.case == 2) & (mended.num_bits > 2.0)
        assert (printed.case[beyond] != 2).all()
        below = (mended.case == 2) & (mended.num_bits < 1.99)
        np.testing.assert_allclose(
            printed.num_bits[below & (printed.case == 2)], mended.num_bits[below & (printed.case == 2)]
        )


def test_E6_a_queue_at_its_budget_asks_for_the_opposite_of_learning() -> None:
    problem = typical_problem(10, 10)
    cold = replace(problem, participation_queue=problem.constants.data_budget)
    for solver in ("assignment", "genetic", "exhaustive"):
        assert not solve_round(cold, solver=solver).participates.any()
    restless = GeneticSettings(population=2, generations=1, mutation_probability=1.0)
    assert not solve_round(cold, solver="genetic", genetic=restless).participates.any(), "staying home beats it"
    starved = replace(problem, quantization_queue=problem.constants.quantization_budget - 0.01)
    bits = solve_round(starved).num_bits
    assert (bits[bits > 0] == 1).all()
    assert (solve_round(problem).num_bits >= 2).all()


def test_E7_rounding_up_can_break_the_deadline() -> None:
    broken = 0
    for problem, total, rows, columns, mended, _ in sampled():
        on = mended.case > 0
        up = np.ceil(mended.num_bits[on])
        too_many = np.isinf(problem.frequencies_hz(up, rows[on], columns[on]))
        broken += int(too_many.sum())
        chosen = ExactPairs(problem).bits(total, rows[on], columns[on])
        assert np.isfinite(problem.frequencies_hz(chosen, rows[on], columns[on])).all()
    assert broken > 100


def test_E8_the_empty_round_is_defined() -> None:
    problem = random_problem(np.random.default_rng(1), num_clients=4, num_channels=3)
    problem.observation.rates_bps[:] = 0.0
    decision = solve_round(problem)
    assert decision.certificate is not None
    tau, g2 = problem.constants.local_updates, problem.observation.statistics.gradient_norms_sq.sum()
    assert decision.certificate.objective == pytest.approx(problem.participation_pressure * 4 * tau * g2)


def test_deciding_with_the_printed_form_costs_and_never_breaks_a_constraint() -> None:
    rng = np.random.default_rng(42)
    worse = 0
    for _ in range(40):
        problem = random_problem(rng, below=0.0)
        exact, printed = solve_round(problem).certificate, solve_round(problem, inner="printed")
        assert exact is not None
        assert printed.certificate is not None
        on = printed.participates
        frequency = printed.frequencies_hz[on]
        assert (frequency <= problem.constants.frequency_max_hz).all()
        assert printed.certificate.objective >= exact.objective - 1e-9 * abs(exact.objective)
        worse += printed.certificate.objective > exact.objective + 1e-6 * abs(exact.objective)
        assert isinstance(PrintedPairs(problem).costs(1e4), np.ndarray)
    assert worse >= 5


def case_bits(problem: RoundProblem, sizes: np.ndarray, case: int) -> list[float]:
    """Relaxed bits of a client as its dataset grows, everything else fixed, where the given case applies throughout."""
    bits = []
    for size in sizes:
        statistics = problem.observation.statistics
        grown = replace(statistics, dataset_sizes=np.concatenate([[size], statistics.dataset_sizes[1:]]))
        changed = replace(problem, observation=replace(problem.observation, statistics=grown))
        relaxed = relaxed_optimum(
            changed, float(grown.dataset_sizes.sum()), np.array([0]), np.array([0]), case_five="iterated"
        )
        if relaxed.case[0] != case:
            return []
        bits.append(float(relaxed.num_bits[0]))
    return bits


@pytest.mark.parametrize(("case", "falls"), [(2, False), (3, True), (5, True)])
def test_E10_bits_fall_with_data_only_where_the_deadline_binds(case: int, falls: bool) -> None:
    """Remark 2 holds in Cases 3 and 5; in Case 2 bits rise with the weight of the client."""
    rng = np.random.default_rng(43)
    tested = 0
    while tested < 20:
        problem = random_problem(rng, num_clients=10, num_channels=1, below=0.0)
        size = problem.dataset_sizes[0]
        bits = case_bits(problem, np.linspace(size, 1.1 * size, 5), case)
        if not bits:
            continue
        steps = np.diff(bits)
        assert (steps < 0).all() if falls else (steps > 0).all()
        tested += 1


def test_E11_the_printed_theorem_3_fails_at_the_optimum() -> None:
    """One client, one exact update per round, F = L/2·|x - x*|², start at x*: every other term of the bound is 0.

    Only quantization moves the model. F(ψ^{n+1,0}) - F(ψ^{n,τ}) is L/2·err on average and is multiplied by 2/η in the
    sum over rounds, which the printed L/2 leaves out. With one bit and x* between the knobs 0 and 1, the model is half
    a step away from x* after every round: |∇F|² is L²/4 per value, and the printed term only L/8.
    """
    smoothness, rate, rounds, count = 5.0, 0.1, 40, 100
    require_valid_bound(learning_rate=rate, smoothness=smoothness, local_updates=1)
    optimum = np.append(np.full(count, 0.5), 1.0)
    codec = build_codec("model", len(optimum), [len(optimum)])
    model = optimum.copy()
    gradients_sq = errors = bounds = 0.0
    for index in range(rounds):
        gradients_sq += float(np.square(smoothness * (model - optimum)).sum())
        trained = (model - rate * smoothness * (model - optimum)).astype(np.float32)
        forecast = codec.forecast(trained)
        errors += forecast.errors[0]
        bounds += forecast.error_scale
        model = codec.decode(codec.encode(trained, 1, key(0, "quantization", 0, index)), 1).astype(np.float64)
    descent = 2.0 / rate * -0.5 * smoothness * float(np.square(model - optimum).sum())  # F(θ^0) is 0
    printed, mended = 0.5 * smoothness, smoothness / rate
    assert mended / printed == pytest.approx(20.0)
    assert gradients_sq == pytest.approx((rounds - 1) * count * smoothness**2 / 4.0)
    assert gradients_sq > 9.0 * printed * bounds > 9.0 * (descent + printed * bounds)
    assert gradients_sq <= descent + mended * bounds
    assert gradients_sq <= descent + mended * errors, "also with the error itself instead of its bound"
    assert gradients_sq > 10.0 * printed * errors


@pytest.mark.parametrize("name", ["model", "update+entropy"])
@pytest.mark.parametrize("num_clients", [10, 50])
def test_E12_the_aggregate_errs_by_the_squared_weights(name: str, num_clients: int) -> None:
    """Clients round independently and without bias, so variances add up: Σ w²·err, not Σ w·err."""
    num_bits, draws, layers = 4, 200, [100, 900]
    rng = np.random.default_rng(12)
    sizes = rng.uniform(800.0, 1600.0, num_clients)
    weights = sizes / sizes.sum()
    vectors = [layered_vector(layers, seed=client) for client in range(num_clients)]
    codec = build_codec(name, sum(layers), layers)
    forecasts = [codec.forecast(vector) for vector in vectors]
    errors = np.array([forecast.errors[num_bits - 1] for forecast in forecasts])
    bounds = np.array([forecast.error_scale for forecast in forecasts]) / (2.0**num_bits - 1.0) ** 2
    measured = np.zeros(draws)
    for draw in range(draws):
        total = -np.tensordot(weights, np.array(vectors, dtype=np.float64), 1)
        for client, vector in enumerate(vectors):
            payload = codec.encode(vector, num_bits, key(0, "quantization", client, draw))
            codec.accumulate(payload, num_bits, float(weights[client]), total)
        measured[draw] = np.square(total).sum()
    independent, printed = float(weights**2 @ errors), float(weights @ errors)
    assert abs(measured.mean() - independent) < 5.0 * measured.std() / np.sqrt(draws)
    assert measured.std() / np.sqrt(draws) < 0.02 * independent, "enough draws to tell"
    assert printed > 0.8 * num_clients * measured.mean(), "the printed sum is about U times too large"
    assert weights @ bounds > 1.3 * printed, "and the bound of Lemma 1 comes on top"
    # E11 and E12 together, at η = 0.1: twice the printed term for 10 clients, 0.4 of it for 50
    together = (independent / 0.1) / (0.5 * printed)
    assert together == pytest.approx(20.0 / num_clients, rel=0.15)


def test_E13_the_printed_participation_term_does_not_vanish_when_everybody_takes_part() -> None:
    """4τ·Σ(1 - w_i)·G² is 24·9 = 216 for ten equal clients with G² = 1, of a data term of 216.1."""
    c = load_scenario("femnist").constants()
    sizes = np.full(10, 1200.0)
    statistics = Statistics(sizes, np.ones(10), np.ones(10), np.full(10, 0.4))
    everybody = np.ones(10, dtype=bool)
    printed = 4 * c.local_updates * np.sum((1.0 - sizes / sizes.sum()) * statistics.gradient_norms_sq)
    assert printed == pytest.approx(216.0)
    assert printed / data_term(everybody, statistics, c) > 0.999, "nothing but this constant"
    assert participation_term(everybody, statistics, c.local_updates) == 0.0


def participation_term(on: np.ndarray, statistics: Statistics, local_updates: int) -> float:
    """4τ(1 - W)·Σ|w_i - w_i^n|·G_i², which replaces 4τ·Σ(1 - a_i·w_i)·G_i²."""
    shares = statistics.dataset_sizes / statistics.dataset_sizes.sum()
    present = float(shares[on].sum())
    weights = np.where(on, shares / present, 0.0)
    return float(4 * local_updates * (1.0 - present) * np.sum(np.abs(shares - weights) * statistics.gradient_norms_sq))


def test_E13_the_mended_term_bounds_what_absent_clients_change_and_is_attained() -> None:
    """One step of the bound has 2·|Σ(w_i - w_i^n)·g_i|². Attained by two clients with opposite gradients."""
    rng = np.random.default_rng(44)

    def both_sides(sizes: np.ndarray, on: np.ndarray, gradients: np.ndarray) -> tuple[float, float]:
        norms_sq = np.square(gradients).sum(axis=1)
        statistics = Statistics(sizes, norms_sq, norms_sq, norms_sq)
        shares, weights = sizes / sizes.sum(), np.where(on, sizes, 0.0) / sizes[on].sum()
        return 2.0 * float(np.square((shares - weights) @ gradients).sum()), participation_term(on, statistics, 1)

    for _ in range(300):
        clients = int(rng.integers(2, 9))
        on = rng.random(clients) < 0.6
        on[0] = True
        gradients = rng.normal(rng.normal(0.0, 1.0, (1, 4)), 1.0, (clients, 4)) * rng.lognormal(0.0, 1.0, (clients, 1))
        change, bound = both_sides(rng.uniform(100.0, 2000.0, clients), on, gradients)
        assert change <= bound + 1e-12
    change, bound = both_sides(np.array([500.0, 500.0]), np.array([True, False]), np.array([[1.0, 2.0], [-1.0, -2.0]]))
    assert change == pytest.approx(bound) == pytest.approx(10.0)


def test_E13_step_c_is_false_for_a_lone_participant() -> None:
    """(c) needs |w_i - w_i^n|/(1 - W) ≤ 1 - a_i·w_i. For a lone participant the left side is 1, whatever its share."""
    for share in (0.1, 0.5, 0.9):
        lone = abs(share - 1.0) / (1.0 - share)
        assert lone == pytest.approx(1.0)
        assert lone > 1.0 - share


def planned(*settings: str) -> Run:
    scenario = load_scenario("femnist", ["codec.name=model", "statistics.model=constant", *settings])
    return plan_run(build_world(scenario, 0), "qccf")


def test_E14_idling_is_free_of_every_error_in_the_printed_form() -> None:
    """`qccf plan femnist` with L = 1, 4 MHz and 20 dB: everybody can upload in every round."""
    cell = ("learning.smoothness=1.0", "radio.bandwidth_hz=4e6", "radio.gain_db=20")
    printed, ours = planned("control.form=paper", *cell), planned(*cell)
    assert printed.by_round("able").all()
    assert printed.by_round("participated").mean() < 0.2, "13 %"
    assert (printed.round_columns["participants"] == 0).mean() > 0.7
    assert (ours.round_columns["participants"] == 10).all()


def test_E15_budgets_that_the_cell_cannot_carry_starve_clients() -> None:
    """Ten clients, five channels. ε1 asks for all ten: λ1 grows without end, and the same few are always worth most."""
    printed, ours = planned("control.form=paper", "radio.num_channels=5"), planned("radio.num_channels=5")
    assert printed.by_round("able").all()
    turns = printed.by_round("participated").sum(axis=0)
    assert (turns == 0).sum() == 4
    assert printed.dataset_sizes[turns == 0].max() < printed.dataset_sizes[turns > 50].min(), "the smallest datasets"
    queue = printed.round_columns["participation_queue"]
    assert (np.diff(queue) > 0.0).all()
    turns = ours.by_round("participated").sum(axis=0)
    assert turns.sum() == 500
    assert (turns >= 40).all(), "a fair share is 50"


def test_E15_the_budget_of_the_quantization_term_is_below_the_least_error() -> None:
    """Everybody with the most bits at f_max (Channel-Allocate), against ε2 = 0.03, as weights grow."""
    scenario = load_scenario(
        "femnist", ["codec.name=model", "statistics.model=trace", "statistics.trace=growing-weights"]
    )
    constants = scenario.constants()
    run = plan_run(build_world(scenario, 0), "channel-allocate")
    source = StatisticsModel(scenario, run.dataset_sizes)
    everybody = np.ones(10, dtype=bool)
    least = [
        quantization_term(everybody, np.maximum(bits, 1), source.known(index), constants)
        for index, bits in enumerate(run.by_round("num_bits"))
    ]
    assert np.mean(least) > 3.0 * constants.quantization_budget
    assert np.mean(np.array(least) > constants.quantization_budget) > 0.8
    ours = planned("statistics.model=trace", "statistics.trace=growing-weights")
    ratios = ours.round_columns["aggregate_error"] / ours.round_columns["error_budget"]
    assert np.mean(ratios) < 1.1, "a multiple of what the links carry can be met"


def test_E16_decisions_depend_on_the_unknown_smoothness_only_in_the_printed_form() -> None:
    """L is about 26 for this network, where the theorem needs L < 1.18."""
    with pytest.raises(ConfigError, match="2η²τ²L² = 487"):
        require_valid_bound(learning_rate=0.1, smoothness=26.0, local_updates=6)
    rounds, other = "federation.rounds=50", "learning.smoothness=1.0"
    columns = ("channel", "num_bits", "frequency_hz")
    ours, same = planned(rounds), planned(rounds, other)
    for name in columns:
        np.testing.assert_array_equal(ours.by_round(name), same.by_round(name))
    printed, changed = planned("control.form=paper", rounds), planned("control.form=paper", rounds, other)
    assert (printed.by_round("num_bits") != changed.by_round("num_bits")).mean() > 0.5
    assert changed.energy_j[-1] > 1.5 * printed.energy_j[-1], "L acts as a weight against energy"


def test_E17_a_training_sample_takes_64_million_operations_not_1000_cycles() -> None:
    """Forward and backward pass of the FEMNIST network. 1,000 cycles would be 64,000 operations per cycle."""
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 62),
    )
    scenario = load_scenario("femnist")
    assert sum(values.numel() for values in model.parameters()) == scenario.learning.num_parameters
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 1, 28, 28)).sum().backward()
    operations = counter.get_total_flops()
    assert operations == pytest.approx(64e6, rel=0.01)
    cycles = operations / 38.0  # of a core that does 38 operations per cycle
    constants = replace(scenario.constants(), cycles_per_sample=cycles)
    mean_size = np.array([scenario.data.dataset_size_mean])
    true_j = compute_energy_j(training_cycles(mean_size, constants), constants.frequency_min_hz, constants)
    paper_j = compute_energy_j(training_cycles(mean_size, scenario.constants()), constants.frequency_min_hz, constants)
    assert true_j / paper_j == pytest.approx(1700, rel=0.02)
    fastest_s = training_cycles(mean_size, constants) / constants.frequency_max_hz
    assert fastest_s > 200 * constants.deadline_s, "4 s of computing at f_max do not fit into 20 ms"


def test_remark_1_bits_rise_with_the_queue() -> None:
    problem = typical_problem(10, 10)
    total = float(problem.dataset_sizes.sum())
    rows, columns = (index.ravel() for index in np.indices(problem.rates_bps.shape))
    last = np.zeros(len(rows))
    for queue in np.linspace(0.1, 20.0, 12):
        bits = relaxed_optimum(
            replace(problem, quantization_queue=float(queue)), total, rows, columns, case_five="iterated"
        ).num_bits
        assert (np.nan_to_num(bits) >= last - 1e-12).all()
        last = np.nan_to_num(bits)
    assert objective(problem, _empty(problem)) == pytest.approx(problem.empty_objective)


def _empty(problem: RoundProblem):
    from qccf.control.problem import empty_allocation

    return empty_allocation(problem.rates_bps.shape[0])
