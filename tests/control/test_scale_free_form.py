"""Budgets, the error price and debts of the default form, by hand."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from qccf.control import scale_free_form
from qccf.control.bound import error_and_budget
from qccf.control.scale_free import ScaleFreeProblem, serve
from qccf.control.scale_free_form import (
    LEAST_PRICE,
    MOST_DEBT,
    MOST_EXCESS,
    MOST_PRICE_RATIO,
    ScaleFreeForm,
    _balanced_price,
    _error,
)
from qccf.control.turns import most_bits_in_time, whose_turn
from qccf.core.contracts import MAX_NUM_BITS, Decision, Observation, Outcome, Statistics, Targets
from support.problems import CONSTANTS, equal_statistics, random_links
from tests.helpers import brute

FORM = ScaleFreeForm(CONSTANTS, slack=4.0, share=1.0, energy_weight=1.0)
SIZES = np.array([1.0, 3.0])
TARGETS = Targets(
    errors=np.array([16.0, 32.0]),
    least_errors=np.array([1.6, 4.8]),
    slack=4.0,
    tolerated_error=5.0,
    turns=np.array([0.5, 0.5]),
    error_price=2.0,
)


def decided(*channels: int, targets: Targets | None = TARGETS) -> Decision:
    on = np.array(channels) >= 0
    return Decision(np.array(channels), on.astype(np.int64), on * 1e9, targets=targets)


def arriving(*arrived: bool) -> Outcome:
    zeros = np.zeros(len(arrived))
    statistics = Statistics(SIZES, zeros, zeros, zeros)
    return Outcome(np.array(arrived), ~np.array(arrived), zeros, zeros, zeros, statistics)


def test_tolerated_error_is_three_squared_updates_of_the_median_client() -> None:
    """η = 0.1 and τ = 6 make (0.6)²·G²; the median of 1, 2 and 10 is 2: 3·0.36·2 = 2.16."""
    statistics = replace(equal_statistics(1.0, 5.0, 9.0), gradient_norms_sq=np.array([1.0, 10.0, 2.0]))
    assert FORM.tolerated_error(statistics) == pytest.approx(2.16)
    assert replace(FORM, energy_weight=0.5).tolerated_error(statistics) == pytest.approx(1.08)
    absurd = replace(statistics, gradient_norms_sq=np.array([1.0, 1e30, 2.0]))
    assert FORM.tolerated_error(absurd) == pytest.approx(2.16)


def test_the_steps_of_a_batch_size_are_those_of_the_median_client() -> None:
    """Batches of 50 in two epochs: 100, 130 and 400 samples are 4, 6 and 16 steps, and the median is τ = 6 as above."""
    statistics = replace(equal_statistics(1.0, 5.0, 9.0), gradient_norms_sq=np.array([1.0, 10.0, 2.0]))
    statistics = replace(statistics, dataset_sizes=np.array([100.0, 400.0, 130.0]))
    batched = replace(FORM, constants=replace(CONSTANTS, local_updates=99, local_epochs=2, batch_size=50))
    assert batched.tolerated_error(statistics) == pytest.approx(2.16)


def test_error_and_budget_by_hand() -> None:
    """Weights 1/4 and 3/4: 16/16 + 9/16·32 = 19, and 4·(0.1 + 2.7) = 11.2; the second alone: 32, and 4·4.8."""
    both, second = np.array([True, True]), np.array([False, True])
    assert error_and_budget(TARGETS, both, SIZES) == pytest.approx((19.0, 11.2))
    assert error_and_budget(replace(TARGETS, tolerated_error=12.0), both, SIZES) == pytest.approx((19.0, 12.0))
    assert error_and_budget(TARGETS, second, SIZES) == pytest.approx((32.0, 19.2))


def test_the_price_follows_what_was_decided_and_debts_follow_who_had_a_turn() -> None:
    state = {"debts": [0.25, -0.25], "error_price": 1.0}
    after = FORM.update(state, decided(0, 1), arriving(True, True))
    assert after["error_price"] == pytest.approx(2.0 * exp(0.5 * (19.0 / 11.2 - 1.0)))
    assert after["debts"] == pytest.approx([-0.25, -0.75])
    small = replace(TARGETS, errors=TARGETS.errors / 1e6, least_errors=TARGETS.least_errors / 1e6, tolerated_error=5e-6)
    scaled = FORM.update(state, decided(0, 1, targets=small), arriving(True, True))
    assert scaled["error_price"] == pytest.approx(after["error_price"]), "in whatever unit errors are"
    lost = FORM.update(state, decided(0, 1), arriving(False, True))
    assert lost["error_price"] == after["error_price"], "that an upload is lost says nothing about bits"
    assert lost["debts"] == pytest.approx([-0.25, -0.75]), "a lost upload was a turn"
    absent = FORM.update(state, decided(-1, 0), arriving(False, True))
    assert absent["error_price"] == pytest.approx(2.0 * exp(0.5 * (32.0 / 19.2 - 1.0)))
    assert absent["debts"] == pytest.approx([0.75, -0.75])


def test_rounds_below_their_budgets_lower_the_price_to_its_floor_and_no_further() -> None:
    good = replace(TARGETS, errors=TARGETS.least_errors)
    after = FORM.update({"debts": [0.0, 0.0]}, decided(0, 1, targets=good), arriving(True, True))
    assert after["error_price"] == pytest.approx(2.0 * exp(0.5 * (1.0 / 4.0 - 1.0)))
    low = replace(good, error_price=0.021)
    after = FORM.update({"debts": [0.0, 0.0]}, decided(0, 1, targets=low), arriving(True, True))
    assert after["error_price"] == 2 * LEAST_PRICE
    alone = FORM.update({"debts": [0.0, 0.0]}, decided(0, -1, targets=low), arriving(True, False))
    assert alone["error_price"] == pytest.approx(0.021 * exp(-0.375)), "the floor is per participant"


def test_one_absurd_round_moves_the_price_by_a_limited_factor() -> None:
    wild = replace(TARGETS, errors=np.array([1e30, 1e30]))
    after = FORM.update({"debts": [0.0, 0.0]}, decided(0, 1, targets=wild), arriving(True, True))
    assert after["error_price"] == pytest.approx(2.0 * exp(0.5 * MOST_EXCESS))
    most = 2 * LEAST_PRICE * MOST_PRICE_RATIO
    after = FORM.update(
        {"debts": [0.0, 0.0]}, decided(0, 1, targets=replace(wild, error_price=most)), arriving(True, True)
    )
    assert after["error_price"] == most


def test_when_nobody_takes_part_only_debts_move() -> None:
    state = {"debts": [0.0, 0.0], "error_price": 2.0}
    idle = replace(TARGETS, turns=np.zeros(2), error_price=77.0)
    assert FORM.update(state, decided(-1, -1, targets=idle), arriving(False, False)) == state
    first = FORM.update({"debts": [0.0, 0.0]}, decided(-1, -1, targets=idle), arriving(False, False))
    assert first == {"debts": [0.0, 0.0]}, "the first price waits for the first participants"


def test_debts_are_limited_on_both_sides() -> None:
    state = {"debts": [MOST_DEBT - 0.1, 0.1 - MOST_DEBT]}
    idle = replace(TARGETS, turns=np.array([0.5, 0.0]))
    after = FORM.update(state, decided(-1, 0, targets=idle), arriving(False, True))
    assert min(after["debts"]) == -MOST_DEBT
    assert after["debts"][0] == pytest.approx(MOST_DEBT * 12.4 / 12.9), "scaled together, so that their order is kept"


def test_a_decision_without_targets_changes_nothing() -> None:
    state = {"debts": [1.0, 2.0], "error_price": 3.0}
    assert FORM.update(state, decided(0, 1, targets=None), arriving(True, True)) == state


def test_no_budget_leaves_the_price() -> None:
    """Clients that send zero vectors and have no gradients: one bit is enough, and the next round has its old price."""
    statistics = replace(equal_statistics(1e3, 2e3, norm_sq=0.0), upload_errors=np.zeros((2, MAX_NUM_BITS)))
    decision = FORM.decide({"debts": [0.0, 0.0], "error_price": 7.0}, Observation(np.full((2, 2), 1e8), statistics))
    assert decision.num_bits.tolist() == [1, 1]
    assert decision.targets is not None
    assert decision.targets.error_price == 7.0
    nothing = replace(TARGETS, errors=np.zeros(2), least_errors=np.zeros(2), tolerated_error=0.0)
    after = FORM.update({"debts": [0.0, 0.0]}, decided(0, 1, targets=nothing), arriving(True, True))
    assert after["error_price"] == 2.0


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[ScaleFreeProblem]:
    """The problems that are solved."""
    seen: list[ScaleFreeProblem] = []

    def recording(problem: ScaleFreeProblem) -> Decision:
        seen.append(problem)
        return serve(problem)

    monkeypatch.setattr(scale_free_form, "serve", recording)
    return seen


def random_state(rng: np.random.Generator, clients: int) -> dict:
    state: dict = {"debts": rng.normal(0.0, 1.0, clients).tolist()}
    if rng.random() < 0.5:
        state["error_price"] = float(10 ** rng.uniform(-2, 4))
    return state


def test_the_targets_of_a_decision_by_brute_force() -> None:
    rng = np.random.default_rng(71)
    compared = 0
    for _ in range(30):
        seen = random_links(rng, int(rng.integers(1, 5)), int(rng.integers(1, 6)))
        state = random_state(rng, seen.num_clients)
        form = replace(FORM, share=float(rng.choice([0.5, 1.0])), slack=float(rng.choice([1.5, 4.0])))
        decision = form.decide(state, seen)
        targets = decision.targets
        assert targets is not None
        assert targets.slack == form.slack
        assert targets.tolerated_error == form.tolerated_error(seen.statistics)
        problem = ScaleFreeProblem(seen, CONSTANTS, 1.0, 0.0)
        bits = form._usual_bits(seen, targets.tolerated_error)
        first = whose_turn(seen, CONSTANTS, bits, np.array(state["debts"]), form.share)
        np.testing.assert_array_equal(targets.turns, first.owed)
        np.testing.assert_array_equal(decision.participates, first.channels >= 0)
        for i in range(seen.num_clients):
            if not decision.participates[i]:
                assert targets.errors[i] == targets.least_errors[i] == 0.0
                continue
            assert targets.errors[i] == pytest.approx(brute.expected_error(problem, i, int(decision.num_bits[i])))
            compared += 1
        on, sizes = np.flatnonzero(decision.participates).tolist(), seen.statistics.dataset_sizes
        if on:
            least = sum((sizes[i] / sizes[on].sum()) ** 2 * targets.least_errors[i] for i in on)
            assert least == pytest.approx(brute.least_error(problem, on), rel=1e-9)
        if "error_price" in state:
            assert targets.error_price == state["error_price"]
    assert compared > 30


def test_energy_counts_in_units_of_the_mean_energy_of_one_bit(problems: list[ScaleFreeProblem]) -> None:
    rng = np.random.default_rng(72)
    for _ in range(20):
        seen = random_links(rng, 4, 4, dead=0.0)
        decision = FORM.decide(random_state(rng, 4), seen)
        if not decision.participates.any():
            continue
        problem = problems[-1]
        assert decision.participates.sum() == len(problem.dataset_sizes)
        reference = 1.0 / problem.energy_price
        # The reference is taken on the channels of the first assignment, so it lies between the best and the worst.
        energies = [
            [brute.energy(problem, i, c, 1, f) for c in range(4) if (f := brute.slowest_frequency(problem, i, c, 1))]
            for i in range(len(problem.dataset_sizes))
        ]
        assert np.mean([min(one) for one in energies]) <= reference * (1 + 1e-9)
        assert reference <= np.mean([max(one) for one in energies]) * (1 + 1e-9)


def test_the_balanced_price_just_meets_its_goal() -> None:
    rng = np.random.default_rng(73)
    interior = 0
    for _ in range(200):
        clients, goal = int(rng.integers(1, 12)), float(rng.choice([0.5, 1.0, 2.0]))
        levels = np.arange(1, MAX_NUM_BITS + 1)
        energy = 1.0 + np.outer(rng.lognormal(0.0, 1.0, clients), levels - 1)
        most = rng.integers(1, 20, clients)
        energy[levels > most[:, None]] = np.inf
        ratios = rng.lognormal(0.0, 2.0, (clients, 1)) / (2.0**levels - 1.0) ** 2
        least = ratios[np.arange(clients), most - 1].sum()
        ratios /= 4.0 * least  # what the links carry is a quarter of the budget
        price = _balanced_price(energy, ratios, goal)
        assert _error(energy, ratios, price) <= goal
        if price > LEAST_PRICE * clients * 1.01:
            assert _error(energy, ratios, 0.99 * price) > goal
            interior += 1
    assert interior > 50


@pytest.mark.parametrize("slack", [1.5, 4.0, 30.0])
def test_the_first_round_comes_close_to_its_budget(slack: float) -> None:
    """With no gradients the budget is the slack times the least error. All channels are alike, so none is swapped."""
    rng = np.random.default_rng(76)
    ratios = []
    for _ in range(20):
        statistics = equal_statistics(*rng.uniform(500, 2000, 12), norm_sq=0.0)
        seen = Observation(np.tile(10 ** rng.uniform(8.0, 8.6, (12, 1)), 12), statistics)
        decision = replace(FORM, slack=slack).decide({"debts": [0.0] * 12}, seen)
        assert decision.targets is not None
        error, budget = error_and_budget(decision.targets, decision.participates, statistics.dataset_sizes)
        ratios.append(error / budget)
    assert max(ratios) <= 1.0
    assert np.mean(ratios) > 0.7


def test_error_of_a_price_by_hand() -> None:
    """Energies 1, 2, 4 and errors 8, 2, 0.5: up to a price of 1/6 one bit, up to 4/3 two, then three."""
    energy, ratios = np.array([[1.0, 2.0, 4.0]]), np.array([[8.0, 2.0, 0.5]])
    assert [_error(energy, ratios, price) for price in (0.16, 0.17, 1.33, 1.34)] == [8.0, 2.0, 2.0, 0.5]
    energy[0, 2] = np.inf
    assert _error(energy, ratios, 1e9) == 2.0


@pytest.mark.parametrize(("price", "limit"), [(1e-6, 2.0), (1e9, 0.5)])
def test_a_price_that_does_not_fit_the_round_is_replaced_for_this_round(
    price: float, limit: float, problems: list[ScaleFreeProblem]
) -> None:
    """Between half a budget and two budgets, where bits allow; the price of the state stays."""
    statistics = equal_statistics(*[1e3] * 4, norm_sq=1e-9)
    seen = Observation(np.full((4, 4), 3e8), statistics)
    decision = FORM.decide({"debts": [0.0] * 4, "error_price": price}, seen)
    assert decision.targets is not None
    assert decision.targets.error_price == price
    error, budget = error_and_budget(decision.targets, decision.participates, statistics.dataset_sizes)
    assert limit / 9.0 <= error / budget <= limit, "one bit is worth a factor of 4 to 9"
    assert problems[0].error_price * budget != pytest.approx(price)


def test_most_bits_by_hand() -> None:
    """17.6 ms are left at 1 GHz: 6.1 bits at 1e8 b/s, 3.99 at 7e7; none at 1e6, and then it is 1."""
    statistics = equal_statistics(1200.0, 1200.0, 1200.0)
    seen = Observation(np.array([[1e8, 0.0], [7e7, 0.0], [1e6, 0.0]]), statistics)
    assert most_bits_in_time(seen, CONSTANTS).tolist() == [[6, 1], [3, 1], [1, 1]]


def test_usual_bits_meet_the_budget_of_equal_clients() -> None:
    """Four clients like it: Σw²·e = e/4 against max(slack·least/4, tolerated). Every fewer bit is too coarse."""
    rng = np.random.default_rng(74)
    for norm_sq in (1e-9, 1e-2, 10.0):
        seen = Observation(10 ** rng.uniform(7.5, 8.5, (4, 4)), equal_statistics(*[1e3] * 4, norm_sq=norm_sq))
        tolerated = FORM.tolerated_error(seen.statistics)
        problem = ScaleFreeProblem(seen, CONSTANTS, 1.0, 0.0)
        for i, bits in enumerate(FORM._usual_bits(seen, tolerated)):
            channel = int(seen.rates_bps[i].argmax())
            fitting = [q for q in range(1, 33) if brute.slowest_frequency(problem, i, channel, q) is not None]
            budget = max(4.0 * brute.expected_error(problem, i, max(fitting, default=1)), 4 * tolerated)
            enough = [q for q in range(1, 33) if brute.expected_error(problem, i, q) <= budget]
            assert bits == min(enough)


def test_rows_keep_every_table() -> None:
    seen = random_links(np.random.default_rng(75), 5, 3, tables=True)
    some = seen.of(np.array([3, 1])).statistics
    for name in Statistics.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(some, name), getattr(seen.statistics, name)[[3, 1]])


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_where_exact_uploads_are_possible_and_nothing_else_is_tolerated_they_are_sent(
    scale: float, problems: list[ScaleFreeProblem]
) -> None:
    errors = np.where(np.arange(1, MAX_NUM_BITS + 1) < 3, scale, 0.0)
    statistics = replace(equal_statistics(1e3, 2e3, norm_sq=0.0), upload_errors=np.tile(errors, (2, 1)))
    decision = FORM.decide({"debts": [0.0, 0.0]}, Observation(np.full((2, 2), 1e8), statistics))
    assert decision.num_bits.tolist() == [3, 3]
    assert decision.targets is not None
    assert decision.targets.error_price == 2 * LEAST_PRICE, "the first price of later rounds"
    spent_j = problems[-1].energy_costs(1, np.arange(2), np.arange(2)) / problems[-1].energy_price
    assert problems[-1].energy_price == pytest.approx(1.0 / spent_j.mean()), "as in other rounds"


def test_a_round_in_which_nobody_can_upload_costs_nothing() -> None:
    seen = Observation(np.full((3, 2), 1e3), equal_statistics(1e3, 2e3, 3e3))
    for state, price in (({}, np.nan), ({"error_price": 7.0}, 7.0)):
        decision = FORM.decide({"debts": [0.5, 0.0, -0.5], **state}, seen)
        certificate, targets = decision.certificate, decision.targets
        assert certificate is not None
        assert targets is not None
        assert (certificate.objective, certificate.lower_bound, certificate.wall_time_s) == (0.0, 0.0, 0.0)
        assert certificate.solver == "nobody can upload"
        assert decision.channels.tolist() == [-1, -1, -1]
        for zeros in (decision.num_bits, decision.frequencies_hz, targets.errors, targets.least_errors, targets.turns):
            assert zeros.tolist() == [0, 0, 0]
        assert targets.error_price == pytest.approx(price, nan_ok=True)
        assert (targets.slack, targets.tolerated_error) == (4.0, FORM.tolerated_error(seen.statistics))


def test_the_time_of_a_decision_is_from_its_start_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_free_form, "perf_counter", iter([5.0, 7.5]).__next__)
    decision = FORM.decide({"debts": [0.0]}, Observation(np.array([[1e8]]), equal_statistics(1e3)))
    assert decision.certificate is not None
    assert decision.certificate.wall_time_s == 2.5


def test_who_sits_out_has_no_channel_no_bits_no_clock_and_no_power() -> None:
    """The second of three clients reaches no channel."""
    adapting = replace(CONSTANTS, adapt_power=True, bandwidth_hz=1e7, transmit_power_min_w=0.002)
    seen = Observation(np.array([[1e8, 1e8], [1e3, 1e3], [1e8, 1e8]]), equal_statistics(1e3, 1e3, 1e3))
    decision = replace(FORM, constants=adapting).decide({"debts": [0.0, 0.0, 0.0]}, seen)
    assert decision.powers_w is not None
    assert decision.targets is not None
    assert decision.channels[1] == -1
    others = (decision.num_bits, decision.frequencies_hz, decision.powers_w)
    for values in (*others, decision.targets.errors, decision.targets.least_errors):
        assert values[1] == 0
        assert (values[[0, 2]] > 0).all()


@pytest.mark.parametrize(
    ("clients", "channels", "share", "bits"),
    [(4, 2, 1.0, 2), (2, 4, 1.0, 2), (4, 4, 0.5, 2), (4, 4, 0.1, 3), (1, 4, 1.0, 3)],
)
def test_usual_bits_count_on_as_many_clients_as_take_part(clients: int, channels: int, share: float, bits: int) -> None:
    """Two bits err a little less than twice what is tolerated: enough for two that are averaged, not for one alone."""
    seen = Observation(np.full((clients, channels), 3e8), equal_statistics(*[1e3] * clients))
    two_bits = 246_590 * 0.25 / 4 / 9
    form = replace(FORM, share=share, slack=1.0)
    assert form._usual_bits(seen, 0.51 * two_bits).tolist() == [bits] * clients


def test_the_balanced_price_stays_between_the_least_and_the_most_of_its_clients() -> None:
    """One bit meets any goal, or no number of bits does."""
    energy = np.tile([1.0, 2.0], (3, 1))
    assert _balanced_price(energy, np.full((3, 2), 1e-9), 1.0) == pytest.approx(3 * LEAST_PRICE, rel=1e-3)
    assert _balanced_price(energy, np.full((3, 2), 1e9), 1.0) == 3 * LEAST_PRICE * MOST_PRICE_RATIO


def test_without_slack_the_usual_bits_are_all_that_the_best_channel_carries() -> None:
    """As above: six bits at 1e8 b/s, three at 7e7."""
    seen = Observation(np.array([[1e8, 1e6], [5e7, 7e7]]), equal_statistics(1200.0, 1200.0))
    assert replace(FORM, slack=1.0)._usual_bits(seen, 0.0).tolist() == [6, 3]


def test_batteries_count_only_where_they_have_a_weight() -> None:
    """Two clients on one channel: by its links the first is cheaper, by its battery the second."""
    statistics = equal_statistics(1e3, 1e3, norm_sq=1e6)
    seen = Observation(np.array([[2e8], [1e8]]), statistics, charges=np.array([0.01, 1.0]))
    assert FORM.decide({"debts": [0.0, 0.0]}, seen).channels.tolist() == [0, -1]
    weighted = replace(FORM, battery_weight=1.0)
    assert weighted.decide({"debts": [0.0, 0.0]}, seen).channels.tolist() == [-1, 0]


def test_the_limits_of_the_price_are_those_of_the_documentation() -> None:
    """`docs/controller.md`: between half a budget and two, at most five count, a cap of 10¹² floors, 12 turns."""
    assert scale_free_form.ROUND_LIMITS == (0.5, 2.0)
    assert (MOST_EXCESS, LEAST_PRICE, MOST_PRICE_RATIO, MOST_DEBT) == (4.0, 1e-2, 1e12, 12.0)
