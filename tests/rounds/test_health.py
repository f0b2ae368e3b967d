"""Each finding with a made run that shows it, and one that just does not."""

from typing import get_args

import numpy as np
import pytest

from qccf.rounds.health import Finding, Kind, diverges, gathered, health, is_recorded, jain_index, oscillation, service
from tests.helpers.made_tables import CLIENTS, ROUNDS, made_scenario, made_tables

N, K = np.arange(ROUNDS)[:, None], np.arange(CLIENTS)[None, :]
SCENARIO = made_scenario()


def findings(rounds=None, clients=None, *settings: str, num_rounds: int = ROUNDS) -> dict[str, str]:
    found = health(*made_tables(rounds, clients, num_rounds=num_rounds), made_scenario(*settings))
    assert len({one.kind for one in found}) == len(found), "one sentence per kind"
    assert all(one.message.endswith(".") and ": " in one.message for one in found), "a sentence with a remedy"
    return {one.kind: one.message for one in found}


def test_a_run_in_which_all_is_well_has_no_findings() -> None:
    assert findings() == {}
    assert findings(None, None, "control.form=paper") == {}
    assert findings(num_rounds=1) == {}
    assert findings(num_rounds=0) == {}


def test_tables_of_older_versions_and_empty_ones_have_no_findings() -> None:
    rounds, clients = made_tables(clients={"participated": False})
    assert len(health(rounds, clients, SCENARIO)) == 2
    for name in ("able", "turn", "most_bits"):
        old = {key: column for key, column in clients.items() if key != name}
        assert health(rounds, old, SCENARIO) == []
        assert service(rounds, old, SCENARIO) == (None, None, None, None)
    for name in ("aggregate_error", "error_budget", "error_price"):
        assert health({key: column for key, column in rounds.items() if key != name}, clients, SCENARIO) == []
    assert health({}, {}, SCENARIO) == []


def test_tables_need_no_more_columns_than_health_uses() -> None:
    assert is_recorded(dict.fromkeys(["aggregate_error", "error_budget", "error_price"]),
                       dict.fromkeys(["able", "turn", "most_bits"]))  # fmt: skip


def test_empty_rounds() -> None:
    empty = {"participated": N >= 3}
    assert findings(None, empty)["empty-rounds"] == (
        "3 of 40 rounds had no participant although a client could upload, and none should be empty: raise "
        "device.deadline_s or radio.bandwidth_hz."
    )
    assert findings(None, empty | {"able": N >= 3}) == {}, "nobody could upload"
    assert "empty-rounds" in findings(None, empty | {"able": (N >= 3) | (K == 0)}), "one client is enough"


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        (["control.form=paper"], 'set control.form = "scale-free".'),
        (["policy.name=same-size", "control.form=paper"], 'set control.form = "scale-free".'),
        (["policy.name=principle"], 'use policy.name = "qccf".'),
        (["policy.name=principle", "control.form=paper"], 'use policy.name = "qccf".'),
    ],
)
def test_the_remedy_depends_on_the_policy(settings: list[str], remedy: str) -> None:
    sentence = findings(None, {"participated": N >= 3}, *settings)["empty-rounds"]
    assert sentence.endswith(f"none should be empty: {remedy}")


def test_clients_that_never_take_part() -> None:
    out = {"participated": K >= 2}
    assert findings(None, out) == {
        "never-scheduled": "2 of 6 clients (0, 1) never took part, although they could upload in at least 100% of the "
        "rounds and had 40 turns or more: raise device.deadline_s or radio.bandwidth_hz, so that more channels serve "
        "them."
    }
    assert findings(None, out | {"able": (K >= 2) | (N < 19)}) == {}, "able in less than half of the rounds"
    assert set(findings(None, out | {"able": (K >= 2) | (N < 20)})) == {"never-scheduled"}
    assert findings(None, out | {"turn": 0.124}) == {}, "less than five turns"
    assert set(findings(None, out | {"turn": 0.125})) == {"never-scheduled"}, "five turns"
    assert (
        "1 of 6 clients (0) never took part, although it could"
        in findings(None, {"participated": K > 0})["never-scheduled"]
    )
    assert "5 of 6 clients (0, 1, 2, 3, 4) never" in findings(None, {"participated": K >= 5})["never-scheduled"]
    assert "6 of 6 clients (0, 1, 2, 3, 4 and 1 more)" in findings(None, {"participated": False})["never-scheduled"]


def test_clients_that_get_less_than_half_of_their_turns() -> None:
    behind = {"participated": (K > 0) | (N % 4 == 0)}
    assert findings(None, behind) == {
        "left-behind": "1 of 6 clients (0) took part in 25% of its turns at the least, below 50%: raise "
        "device.deadline_s or radio.bandwidth_hz, so that more channels serve them."
    }
    assert findings(None, behind | {"turn": 0.5}) == {}, "half of the turns"
    assert findings(None, behind | {"participated": (K > 0) | (N % 2 == 0)}) == {}, "half of the turns"
    halves = {"participated": (K > 0) | (N % 2 == 0)}
    assert findings(None, halves, "control.form=paper") == {}
    assert findings(None, behind | {"able": (K > 0) | (N % 4 == 0)}) == {}, "able in a quarter of the rounds"
    assert findings(None, {"participated": (K > 0) | (N == 0), "turn": 0.24}) == {}, "less than ten turns"
    assert set(findings(None, {"participated": (K > 0) | (N == 0), "turn": 0.25})) == {"left-behind"}, "ten turns"


def test_a_share_of_the_participants_that_was_asked_for_leaves_nobody_behind() -> None:
    half = {"participated": (N + K) % 5 < 2}
    assert set(findings(None, half)) == {"left-behind"}
    assert findings(None, half, "control.share=0.4") == {}
    paper = made_scenario("control.form=paper").replaced(control={"share": 0.4})
    assert [one.kind for one in health(*made_tables(None, half), paper)] == ["left-behind"], "it knows no share"
    assert set(findings(None, {"participated": (N + K) % 6 < 1}, "control.share=0.4")) == {"left-behind"}


def test_clients_that_can_never_upload() -> None:
    far = {"able": K < 5, "turn": np.where(K < 5, 1.0, 0.0), "participated": K < 5}
    assert findings(None, far) == {
        "never-able": "1 of 6 clients (5) could upload in none of the 40 rounds within device.deadline_s = 0.02: raise "
        "it, radio.bandwidth_hz or radio.gain_db, or lower device.cycles_per_sample or cell.radius_m."
    }
    cautious = findings(None, far, "radio.backoff_db=9")["never-able"]
    assert cautious.endswith("or lower radio.backoff_db = 9, device.cycles_per_sample or cell.radius_m.")
    boards = findings(None, far, "devices.profile=raspberry-pi-4")["never-able"]
    assert boards.endswith("or lower cell.radius_m, or give them fewer samples or faster devices.")
    assert findings(None, far | {"able": (K < 5) | (N == 7)}) == {}
    assert findings(None, far | {"participated": (K < 5) | (N == 7)}) == {}, "one upload arrived, so it can"
    exempt = {"able": False, "turn": 0.0, "missed": True}
    assert findings(None, exempt, "policy.name=no-quantization") == {}, "late uploads that arrive all the same"


def test_clients_whose_batteries_ran_out() -> None:
    """Client 4 is out from round 12 on, client 1 from round 30 on; client 2 was recharged."""
    empty = ((K == 4) & (N >= 12)) | ((K == 1) & (N >= 30)) | ((K == 2) & (N == 20))
    words = "2 of 6 clients (1, 4) ran out of battery, the first in round 12, and took no part from then on: "
    lower = "lower federation.rounds, learning.local_epochs or the samples per client, or recharge."
    batteries = {"battery_j": np.where(empty, 0.0, 0.5)}
    assert findings(None, batteries, "control.battery_weight=0.25") == {
        "empty-batteries": f"{words}raise control.battery_weight = 0.25 where channels are scarce, {lower}"
    }
    assert findings(None, batteries, "control.form=paper") == {"empty-batteries": words + lower}
    assert findings(None, {"battery_j": 0.5}) == {}
    last = findings(None, {"battery_j": np.where((K == 3) & (N == ROUNDS - 1), 0.0, 0.5)})["empty-batteries"]
    assert last.startswith(f"1 of 6 clients (3) ran out of battery, the first in round {ROUNDS - 1}, ")
    assert findings(None, {"battery_j": np.where((K == 3) & (N < ROUNDS - 1), 0.0, 0.5)}) == {}, "recharged at last"


def test_an_error_budget_that_is_not_met() -> None:
    assert findings({"aggregate_error": 1.2}) == {
        "error-budget": "the error of the aggregates was 1.2 times its budget on average, above 1.1: raise "
        "control.slack = 2 or control.energy_weight = 1, device.deadline_s or radio.bandwidth_hz."
    }
    assert findings({"aggregate_error": 1.09}) == {}
    assert findings({"aggregate_error": 1.9}, num_rounds=19) == {}, "the price of error has not settled"
    assert "above 2: " in findings({"aggregate_error": 2.1}, num_rounds=19)["error-budget"]
    assert findings({"aggregate_error": 1.2, "error_budget": np.nan}) == {}, "no budget"
    gaps = np.where(np.arange(ROUNDS) % 2, 1.2, np.nan)
    assert set(findings({"aggregate_error": gaps, "error_budget": gaps / 1.2})) == {"error-budget"}
    assert findings({"aggregate_error": 0.0, "error_budget": 0.0}) == {}
    assert "inf times" in findings({"aggregate_error": 1e-9, "error_budget": 0.0})["error-budget"]
    grows = {"quantization_queue": 1.0 + 0.006 * np.arange(ROUNDS)}  # by a fifth of ε2 in each round
    paper = findings(grows, None, "control.form=paper")["error-budget"]
    assert paper.startswith("the error of the aggregates was 1.2 times its budget")
    steady = {"quantization_queue": 1.0, "aggregate_error": 1.2}
    assert findings(steady, None, "control.form=paper") == {}, "the paper's form has its own budget"
    assert paper.endswith('set control.form = "scale-free", or raise control.paper.quantization_budget = 0.03.')
    late = (K == 0) & (N < 4)
    lost = findings({"aggregate_error": 1.2}, {"missed": late, "arrived": ~late})
    assert set(lost) == {"error-budget", "lost-uploads"}
    assert lost["error-budget"].endswith(
        "above 1.1: 2% of the uploads were lost, so that fewer errors average out; mend that first."
    )
    few = {"missed": late & (N < 2), "arrived": ~late | (N >= 2)}
    assert findings({"aggregate_error": 1.2}, few) == findings({"aggregate_error": 1.2}), "2 of 240 are not many"
    other = findings({"aggregate_error": 1.2}, None, "policy.name=principle")["error-budget"]
    assert other.endswith('use policy.name = "qccf", or raise device.deadline_s or radio.bandwidth_hz.')


def test_an_error_budget_is_judged_more_strictly_from_twenty_rounds_on() -> None:
    assert findings({"aggregate_error": 2.0}, num_rounds=19) == {}, "exactly twice the budget"
    assert "above 2: " in findings({"aggregate_error": np.nextafter(2.0, 3.0)}, num_rounds=19)["error-budget"]
    assert "above 1.1: " in findings({"aggregate_error": 2.0}, num_rounds=20)["error-budget"]


def test_a_loss_of_one_upload_in_a_hundred_does_not_explain_a_large_error() -> None:
    rounds = np.arange(50)[:, None]
    for count, words in ((3, "raise control.slack"), (4, "1% of the uploads were lost")):
        late = (K == 0) & (rounds < count)
        found = findings({"aggregate_error": 1.2}, {"missed": late, "arrived": ~late}, num_rounds=50)
        assert f"above 1.1: {words}" in found["error-budget"]
    only = {"participated": (N == 0) & (K == 0), "missed": True, "arrived": False}
    assert "above 1.1: 100% of the uploads were lost" in findings({"aggregate_error": 1.2}, only)["error-budget"]


def test_in_the_papers_form_the_error_follows_from_the_growth_of_the_queue() -> None:
    """The queue moves by the error minus ε2 = 0.03 in each round. At 0 it cannot fall, so that it tells nothing."""

    def ratio(queue, *settings: str, num_rounds: int = ROUNDS) -> float | None:
        tables = made_tables({"aggregate_error": 0.7, "quantization_queue": queue}, num_rounds=num_rounds)
        return service(*tables, made_scenario("control.form=paper", *settings)).error_ratio

    times = np.arange(ROUNDS)
    assert ratio(10.0 + 0.03 * times) == pytest.approx(2.0)
    assert ratio(0.5 + 0.003 * times) == pytest.approx(1.1)
    assert ratio(10.0 - 0.015 * times) == pytest.approx(0.5)
    assert ratio(10.0 - 0.06 * times) == 0.0
    assert ratio(np.array([5.0, 5.03]), num_rounds=2) == pytest.approx(2.0)
    assert ratio(5.0, num_rounds=1) == pytest.approx(0.7), "one round shows no growth"
    assert ratio(np.where(times == 9, 0.0, 10.0)) == pytest.approx(0.7), "at 0"
    assert ratio(10.0 + times, "control.paper.quantization_budget=0") == pytest.approx(0.7)
    assert ratio(10.0 + times, "control.form=scale-free") == pytest.approx(0.7)
    assert ratio(10.0 + times, "policy.name=principle") == pytest.approx(0.7)


TIMES = np.arange(200.0)
NOISE = np.random.default_rng(0).normal(size=200)


@pytest.mark.parametrize(
    "series",
    [
        TIMES,
        100.0 + TIMES,
        150.0 + TIMES,  # the last quarter is 1.86 times the first and 1.45 times the second
        TIMES + 5.0 * NOISE,
        TIMES**2,
        1.02**TIMES,
        np.where(TIMES == 0, np.nan, TIMES),
    ],
    ids=["linear", "warm start", "warmer start", "linear with noise", "quadratic", "exponential", "unknown at first"],
)
def test_series_that_diverge(series: np.ndarray) -> None:
    assert diverges(series)
    assert not diverges(series[:19]), "too short to say"


@pytest.mark.parametrize(
    "series",
    [
        np.sqrt(TIMES),
        np.log1p(TIMES),
        1.0 - np.exp(-TIMES / 200.0),
        500.0 + TIMES,
        200.0 - TIMES,
        10.0 + NOISE,
        np.full(200, 3.0),
        np.where(TIMES > 190, 1000.0, 1.0),
        np.where(TIMES < 20, 1000.0, 1.0),
        10.0 + 5.0 * np.sin(TIMES / 5.0),
        np.full(200, np.nan),
    ],
    ids=["root", "log", "settles", "slow", "falls", "noise", "constant", "jump", "transient", "waves", "none"],
)
def test_series_that_do_not_diverge(series: np.ndarray) -> None:
    assert not diverges(series)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([6.0, 7.0, 8.0, 9.0], True),  # exactly 1.5 times
        ([6.0, 7.0, 8.0, 8.9], False),
        ([0.0, 5.0, 15.0, 19.0], True),  # the last growth is exactly 0.8 of the first
        ([0.0, 5.0, 15.0, 18.9], False),
        ([4.0, 8.0, 8.0, 12.0], False),  # not through all quarters
        ([4.0, 8.0, 7.0, 12.0], False),
    ],
)
def test_the_limits_of_divergence_are_exact(levels: list[float], expected: bool) -> None:
    """Twenty values are enough to judge."""
    assert diverges(np.repeat(levels, 5)) == expected


def test_queues_that_diverge() -> None:
    grows = np.arange(1.0, ROUNDS + 1.0)
    paper = "control.form=paper"
    assert findings({"participation_queue": grows}, None, paper) == {
        "diverging-participation-queue": "λ1 (participation_queue) grows without end: its mean rose from 5.5 in the "
        "first quarter of the rounds to 35.5 in the last, by more than a factor of 1.5: set control.form = "
        '"scale-free", or raise radio.num_channels.'
    }
    found = findings({"quantization_queue": grows}, None, paper)
    assert set(found) == {"diverging-quantization-queue", "error-budget"}
    assert found["diverging-quantization-queue"].endswith("or raise control.paper.quantization_budget = 0.03.")
    assert set(findings({"quantization_queue": np.sqrt(grows)}, None, paper)) == {"error-budget"}


def test_a_price_of_error_diverges_only_if_the_budget_is_not_met() -> None:
    grows = np.arange(1.0, ROUNDS + 1.0)
    assert findings({"error_price": grows}) == {}
    late = np.where(grows > 20, 1.2, 0.1)
    assert findings({"error_price": 1.0, "aggregate_error": late}) == {}
    found = findings({"error_price": grows, "aggregate_error": late})
    assert set(found) == {"diverging-error-price"}
    assert "the price of error (error_price) grows without end" in found["diverging-error-price"]


def test_bits_that_stay_at_one() -> None:
    late = np.where(np.arange(ROUNDS) >= 20, 1.2, 0.1)  # the mean over all rounds is within the budget
    one = {"num_bits": np.where(N >= 20, 1, 3)}
    assert findings({"aggregate_error": late}, one) == {
        "bits-at-one": "all uploads of the last half had 1 bit, the least there is, and the error budget was not met: "
        "raise control.slack = 2 or control.energy_weight = 1, device.deadline_s or radio.bandwidth_hz."
    }
    assert findings(None, one) == {}, "the budget is met"
    assert findings({"aggregate_error": late}, {"num_bits": np.where(N >= 21, 1, 3)}) == {}
    assert findings({"aggregate_error": late}, one | {"participated": N < 20, "able": N < 20}) == {}


def test_bits_are_judged_from_twenty_rounds_on_and_of_participants_only() -> None:
    one = {"num_bits": 1}
    assert set(findings({"aggregate_error": 1.2}, one, num_rounds=20)) == {"error-budget", "bits-at-one"}
    assert set(findings({"aggregate_error": 1.2}, one, num_rounds=19)) == set()
    absent = {"participated": (K > 0) | (N < 20)}
    assert set(findings({"aggregate_error": 1.2}, one | absent)) == {"error-budget", "bits-at-one"}
    for bits in (np.where((K == 0) & (N == 30), 1, 3), np.where((K == 0) & (N == 30), 6, 3)):
        assert set(findings({"aggregate_error": 1.2}, {"num_bits": bits})) == {"error-budget"}, "a single upload"


def test_bits_that_stay_at_the_most_that_the_links_carry() -> None:
    grows = {"quantization_queue": np.arange(1.0, ROUNDS + 1.0)}
    full = {"num_bits": np.where(N >= 20, 6, 3)}
    found = findings(grows, full, "control.form=paper")
    assert set(found) == {"diverging-quantization-queue", "error-budget", "bits-at-most"}
    assert found["bits-at-most"].startswith(
        "all uploads of the last half had as many bits as their links carry, 6.0 on average, and the error budget was "
        'not met: set control.form = "scale-free"'
    )
    assert findings(None, full, "control.form=paper") == {}
    assert "bits-at-most" not in findings(grows, {"num_bits": np.where(N >= 21, 6, 3)}, "control.form=paper")
    short = {"quantization_queue": np.arange(1.0, 20.0)}
    assert set(findings(short, {"num_bits": 6}, "control.form=paper", num_rounds=19)) == {"error-budget"}


def test_aggregates_that_err_by_far_more_than_learning_tolerates() -> None:
    one = {"num_bits": 1, "most_bits": 1, "gradient_norm_sq": 1.0}
    # G² = 1 with six steps of 0.1 is a squared update of 0.36; learning tolerates three of them.
    noisy = {"aggregate_error": 11.0 * 3.0 * 0.36, "error_budget": 100.0}
    found = findings(noisy, one, "codec.name=model")
    assert found == {
        "noisy-aggregates": "the aggregates of the last half erred by 11 times what learning tolerates, above 10, with "
        '1.0 of the 1.0 bits per parameter that links carry: use codec.name = "update+entropy", or raise '
        "device.deadline_s or radio.bandwidth_hz."
    }
    default = findings(noisy, one)["noisy-aggregates"]
    assert default.endswith("links carry: raise device.deadline_s or radio.bandwidth_hz.")
    more = findings(noisy, one | {"most_bits": 3})["noisy-aggregates"]
    assert more.endswith("1.0 of the 3.0 bits per parameter that links carry: lower control.slack = 2, or raise "
                         "device.deadline_s or radio.bandwidth_hz.")  # fmt: skip
    assert findings(noisy | {"aggregate_error": 9.0 * 3.0 * 0.36}, one) == {}, "learning copes"
    assert findings(noisy, one, "control.energy_weight=2") == {}, "twice as much error is asked for"
    assert findings(noisy, one, "policy.name=no-quantization") == {}
    assert findings(noisy, one, num_rounds=19) == {}, "too short to judge"
    absent = one | {"participated": (K > 0) | (N < 20)}
    assert set(findings(noisy, absent)) == {"noisy-aggregates"}, "a client sat out"
    lost = noisy | {"aggregate_error": np.where(np.arange(ROUNDS) == 30, np.nan, noisy["aggregate_error"])}
    assert "erred by 11 times" in findings(lost, one)["noisy-aggregates"], "a round in which nothing arrived"


def test_the_limit_of_noise_and_what_counts() -> None:
    """Steps of 1 with a gradient of 1 and 6 steps: a squared update of 36, of which learning tolerates three."""
    settings, one = ("learning.learning_rate=1",), {"num_bits": 1, "most_bits": 1, "gradient_norm_sq": 1.0}

    def noise(error, *more: str, num_rounds: int = 20, **changed) -> dict[str, str]:
        return findings(
            {"aggregate_error": error, "error_budget": 1e9}, one | changed, *settings, *more, num_rounds=num_rounds
        )

    assert noise(10.0 * 3.0 * 36.0) == {}, "exactly ten times what learning tolerates"
    assert set(noise(1081.0)) == {"noisy-aggregates"}, "twenty rounds are enough"
    assert set(noise(1081.0, "control.form=paper")) == {"noisy-aggregates"}
    still = np.where(np.arange(20)[:, None] == 15, 0.0, 1.0)
    assert "erred by 10 times" in noise(1081.0, gradient_norm_sq=still)["noisy-aggregates"], "a round without gradients"
    assert noise(1081.0, gradient_norm_sq=0.0) == {}
    half = 1 + np.arange(20)[:, None] % 2
    assert "lower control.slack" in noise(1081.0, most_bits=half)["noisy-aggregates"], "half a bit is left"
    fewer = np.where(np.arange(20)[:, None] % 4 == 3, 2, 1)
    assert "lower control.slack" not in noise(1081.0, most_bits=fewer)["noisy-aggregates"], "a quarter is not enough"


def test_bits_that_oscillate() -> None:
    found = findings(None, {"num_bits": 3 + N % 2})
    assert found == {
        "oscillating-bits": "bits jumped up and down by 1 or more in 100% of the rounds of the last half, above 50%: "
        "raise control.slack = 2."
    }
    assert findings(None, {"num_bits": np.where(N < 20, 3 + N % 2, 3)}) == {}, "only at first"
    paper = findings(None, {"num_bits": 3 + N % 2}, "control.form=paper")["oscillating-bits"]
    assert paper.endswith('set control.form = "scale-free".')


def test_what_does_not_count_as_oscillation() -> None:
    rng = np.random.default_rng(1)
    everybody = np.ones((40, 6), dtype=bool)
    assert oscillation(3.0 + np.arange(40)[:, None] % 2 + np.zeros((1, 6)), everybody) == 1.0
    assert oscillation(3.0 + np.arange(40)[:, None] % 2 * (K < 5), everybody) == 0.0, "less than one bit on average"
    some = 5.0 + 3.0 * np.where(np.arange(40) < 18, (-1.0) ** np.arange(40), 0.0)[:, None]
    assert oscillation(some + np.zeros((1, 6)), everybody) == 0.0, "in less than half of the rounds"
    assert oscillation(3.0 + np.arange(40)[:, None] // 2 + np.zeros((1, 6)), everybody) == 0.0, "they climb"
    for _ in range(20):
        fading = np.round(4.0 + 3.0 * rng.normal(size=(40, 1))) + np.zeros((1, 6))
        assert oscillation(fading, everybody) == 0.0, "jumps at random"
    turns = (np.arange(40)[:, None] + K) % 2 == 0
    assert oscillation(np.where(turns, 3.0 + 3.0 * (K % 2), 0.0), turns) == 0.0, "taking turns on unequal links"
    half_absent = (np.arange(40)[:, None] % 2 == 0) | (K < 3)
    assert oscillation(np.where(half_absent, 3.0 + K, 0.0), half_absent) == 0.0, "only the number of clients alternates"
    assert oscillation(np.zeros((40, 6)), np.zeros((40, 6), dtype=bool)) == 0.0
    assert oscillation(3.0 + np.arange(8.0)[:, None] % 2, np.ones((8, 1), dtype=bool)) == 0.0, "too few rounds to tell"
    assert oscillation(3.0 + np.arange(9.0)[:, None] % 2, np.ones((9, 1), dtype=bool)) == 1.0


@pytest.mark.parametrize(
    ("deviations", "share"),
    [
        ([3, -3, 3, -3, 3, -3, 0, 0, 0, 0], 5 / 8),
        ([3, -3, 3, -3, 3, 0, 0, 0, 0, 0], 0.0),  # exactly half of the rounds
        ([3, -3, 3, -3, 3, 0, 0.5, 0.5, 0.5, 0.5], 0.0),  # a small step is no jump
    ],
)
def test_most_rounds_must_jump(deviations: list[float], share: float) -> None:
    bits = 5.0 + np.array(deviations)[:, None]
    assert oscillation(bits, np.ones((10, 1), dtype=bool)) == share


def test_each_client_is_compared_with_its_own_mean_over_its_rounds() -> None:
    """One jumps by 1 from round to round, and another one takes part once, with its own usual number of bits."""
    bits = np.column_stack([3.0 + np.arange(20) % 2, np.full(20, 20.0)])
    on = np.ones((20, 2), dtype=bool)
    on[:, 1] = np.arange(20) == 10
    found = oscillation(np.where(on, bits, 0.0), on)
    assert found == 15 / 18, "the mean of both is a quarter of a bit in round 10"
    alone = oscillation(bits[:, :1], on[:, :1])
    gap = np.insert(bits[:, :1], 7, 99.0, axis=0), np.insert(on[:, :1], 7, False, axis=0)
    assert alone == oscillation(*gap) == 1.0, "a round without anybody is left out"


def test_oscillation_does_not_depend_on_who_takes_part_in_the_rounds_with_many_bits() -> None:
    """A client jumps by 2 bits, and another one takes part only when the first has many: deviations of -1 and 0.5."""
    high = np.arange(20) % 2 == 1
    bits = np.column_stack([np.where(high, 5.0, 3.0), np.full(20, 7.0)])
    on = np.column_stack([np.ones(20, dtype=bool), high])
    assert oscillation(np.where(on, bits, 0.0), on) == 1.0


def test_uploads_that_are_lost_because_they_are_larger_than_forecast() -> None:
    large = (K == 0) & (N < 4)
    sizes = {"missed": large, "arrived": ~large, "payload_bits": np.where(large, 1.2e6, 1e6)}
    assert findings(None, sizes) == {
        "forecast-too-small": "4 of 240 uploads missed the deadline because they were larger than forecast, by 20% at "
        "most, and at most 1% may: raise codec.safety_margin from 0.05 to 0.26."
    }
    assert findings(None, sizes | {"missed": False, "arrived": True}) == {}, "they arrived in time"
    few = (K == 0) & (N < 2)
    assert findings(None, sizes | {"missed": few, "arrived": ~few}) == {}, "less than one in a hundred"


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((1.004e6, 1.004e6), "by less than 1%, and"),
        ((1.014e6, 1.014e6), "by 1% at most, and"),
        ((1.014e6, 1.3e6), "by 30% at most, and"),
    ],
)
def test_the_largest_excess_is_stated(sizes: tuple[float, float], words: str) -> None:
    large = (K == 0) & (N < 4)
    sent = np.where(large, np.where(N < 2, *sizes), 1e6)
    assert words in findings(None, {"missed": large, "arrived": ~large, "payload_bits": sent})["forecast-too-small"]


def test_forecasts_that_are_far_off() -> None:
    assert findings(None, {"payload_bits": 0.7e6}) == {
        "forecast-wrong": "uploads differed from their forecast size by 30% in the median, above 20%: lower "
        "codec.safety_margin = 0.05, or use a codec whose sizes are known."
    }
    assert findings(None, {"payload_bits": 1.3e6})["forecast-wrong"].endswith("raise codec.safety_margin = 0.05.")
    assert findings(None, {"payload_bits": 0.81e6}) == {}
    assert findings(None, {"payload_bits": np.where(K < 2, 0.5e6, 1e6)}) == {}, "a minority"


def test_uploads_that_are_lost_because_their_channel_was_overrated() -> None:
    """100 Mb/s in 10 MHz is an SNR of 1023, 90 Mb/s one of 511: the channel is 3.01 dB worse than estimated."""
    late = (K == 0) & (N < 4)
    lost = {"missed": late, "arrived": ~late, "rate_bps": np.where(late, 9e7, 1e8)}
    words = "4 of 240 uploads missed device.deadline_s = 0.02 because their channel was worse than estimated, and at "
    stale = ("radio.estimate_age=2", "radio.backoff_db=1.5")
    assert findings(None, lost, *stale) == {
        "optimistic-estimates": words + "most 1% may: raise radio.backoff_db from 1.5 to 5, or lower "
        "radio.estimate_age = 2."
    }
    gains = findings(None, lost, *stale, "radio.trace=gains.npz")["optimistic-estimates"]
    assert "from 1.5 to 5" in gains, "a table may hold gains"
    rates = findings(None, lost, *stale, "radio.trace=files", "radio.trace_form=ucc-5g")["optimistic-estimates"]
    assert "from 1.5 to 2" in rates, "0.46 dB of rates"
    underrated = {"estimated_rate_bps": np.where((K == 1) & (N < 4), 0.0, 1e8)}
    assert findings(None, lost | underrated, *stale) == findings(None, lost, *stale), "these need no back-off"
    larger = {"payload_bits": np.where(late, 1.2e6, 1e6)}
    assert set(findings(None, lost | larger, *stale)) == {"optimistic-estimates"}, "not the codec's fault"
    outage = findings(None, lost | {"rate_bps": np.where(late, 0.0, 1e8)}, "radio.estimate_error_db=2")
    assert outage["optimistic-estimates"].endswith("at most 1% may: raise the deadline."), "no back-off is enough"
    for worse_db, remedy in ((19.9, "raise radio.backoff_db from 0 to 20."), (20.1, "raise the deadline.")):
        weaker = 1e7 * np.log2(1.0 + 1023.0 / 10.0 ** (worse_db / 10.0))
        deep = findings(None, lost | {"rate_bps": np.where(late, weaker, 1e8)}, "radio.estimate_error_db=2")
        assert deep["optimistic-estimates"].endswith(remedy), "a back-off of more than 20 dB leaves hardly any rate"
    old = findings(None, lost | {"rate_bps": np.where(late, 0.0, 1e8)}, "radio.estimate_age=1")
    assert old["optimistic-estimates"].endswith("raise the deadline, or lower radio.estimate_age = 1.")
    assert findings(None, {"rate_bps": 9e7}) == {}, "they arrived in time"
    few = (K == 0) & (N < 2)
    assert findings(None, lost | {"missed": few, "arrived": ~few}) == {}, "less than one in a hundred"


def test_uploads_that_miss_the_deadline() -> None:
    late = (K == 0) & (N < 4)
    lost = {"missed": late, "arrived": ~late}
    assert findings(None, lost) == {
        "lost-uploads": "4 of 240 uploads missed device.deadline_s = 0.02 or failed, and at most 1% may: raise the "
        "deadline."
    }
    principle = findings(None, lost, "policy.name=principle")["lost-uploads"]
    assert principle.endswith('raise the deadline, or use policy.name = "qccf".')
    emptied = findings(None, lost | {"battery_j": np.where((K == 0) & (N < 39), 0.0, 1.0)})
    assert "lost-uploads" not in emptied, "their batteries emptied"
    little = findings(None, lost | {"battery_j": 0.5})
    assert set(little) == {"lost-uploads"}, "half a joule is left"
    rounds, clients = made_tables(None, lost | {"rate_bps": np.where(late, 9e7, 1e8)})
    del clients["estimated_rate_bps"]
    assert [one.kind for one in health(rounds, clients, SCENARIO)] == ["lost-uploads"], "tables of older versions"
    few = (K == 0) & (N < 2)
    assert findings(None, {"missed": few, "arrived": ~few}) == {}
    assert findings(None, {"missed": late, "arrived": True}, "policy.name=no-quantization") == {}, "exempt"


def test_one_upload_in_a_hundred_may_be_lost() -> None:
    """In 50 rounds of six clients three are exactly one in a hundred, whatever the reason."""
    rounds = np.arange(50)[:, None]
    larger, overrated = {"payload_bits": 1.1e6}, {"rate_bps": 0.9e8}
    for why, kind in (({}, "lost-uploads"), (larger, "forecast-too-small"), (overrated, "optimistic-estimates")):
        for count, kinds in ((3, set()), (4, {kind})):
            late = (K == 0) & (rounds < count)
            lost = why | {"missed": late, "arrived": ~late}
            assert set(findings(None, lost, "radio.backoff_db=1", num_rounds=50)) == kinds


def test_service_by_hand() -> None:
    """Client 0 takes 10 of its 20 turns, the five others all 20: shares 0.5 and 1, so Jain's index is 5.5²/(6·5.25)."""
    rounds, clients = made_tables(
        {"aggregate_error": np.where(np.arange(ROUNDS) == 0, np.nan, 0.5)},
        {"turn": 0.5, "participated": (N % 2 == 0) & ((K > 0) | (N % 4 == 0)), "able": N % 4 != 3},
    )
    found = service(rounds, clients, SCENARIO)
    assert found.error_ratio == pytest.approx(0.5)
    assert found.participation_ratio == pytest.approx((10 + 5 * 20) / (6 * 20))
    assert found.jain == pytest.approx(5.5**2 / (6 * 5.25))
    assert found.empty_rounds == 10


def test_service_without_budget_turns_or_participants() -> None:
    none = service(*made_tables({"error_budget": np.nan}, {"turn": 0.0, "able": False}), SCENARIO)
    assert none == (None, None, None, 0)
    idle = service(*made_tables(None, {"participated": False}), SCENARIO)
    assert idle == (0.5, 0.0, None, ROUNDS)
    raw = service(*made_tables({"aggregate_error": 0.0, "error_budget": np.nan}), SCENARIO)
    assert raw.error_ratio is None
    exact = service(*made_tables({"aggregate_error": 0.0, "error_budget": 0.0}), SCENARIO)
    assert exact.error_ratio == 0.0
    rare = {"turn": np.where(K == 0, 0.01, 1.0), "participated": (K > 0) | (N == 0)}
    few = service(*made_tables(None, rare), SCENARIO)
    assert few.jain == pytest.approx(7.5**2 / (6 * (6.25 + 5))), "one upload in 0.4 turns"
    silent = {"turn": np.where(N % 2, 0.0, 1.0), "able": N % 2 == 0, "participated": N % 2 == 0}
    assert service(*made_tables(None, silent), SCENARIO).participation_ratio == 1.0, "nothing is due where nobody can"
    part = service(*made_tables(None, {"turn": np.where(K < 3, 1.0, 0.0)}), SCENARIO)
    assert part.jain == pytest.approx(1.0), "only clients that had turns count"


def test_jain_index() -> None:
    assert jain_index(np.array([2.0, 2.0, 2.0])) == pytest.approx(1.0)
    assert jain_index(np.array([5.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert jain_index(np.zeros(3)) is None
    assert jain_index(np.empty(0)) is None


def test_sentences_of_many_runs_are_gathered_by_group_and_kind() -> None:
    empty, late = (
        Finding("empty-rounds", "3 rounds were empty: act."),
        Finding("lost-uploads", "5 uploads were late: act."),
    )
    other = Finding("empty-rounds", "9 rounds were empty: act.")
    assert gathered([("", "seed 0", [empty, late])]) == [empty.message, late.message]
    assert gathered([("qccf", "seed 0", []), ("qccf", "seed 1", [])]) == []
    assert gathered([("qccf", "seed 0", [late]), ("mine", "seed 0", [late])]) == [
        "qccf: 5 uploads were late: act.",
        "mine: 5 uploads were late: act.",
    ]
    several = [("qccf", "seed 0", []), ("qccf", "seed 1", [empty]), ("qccf", "seed 2", [other, late])]
    assert gathered([*several, ("qccf", "seed 3", [other])]) == [
        "qccf, seed 1: 3 rounds were empty: act. Also in 2 other runs.",
        "qccf, seed 2: 5 uploads were late: act.",
    ]
    assert gathered(several[:2]) == ["qccf, seed 1: 3 rounds were empty: act."]
    assert gathered(several)[0] == "qccf, seed 1: 3 rounds were empty: act. Also in 1 other run."


def test_every_finding_is_explained(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs" / "health.md").read_text(encoding="utf-8")
    assert [kind for kind in get_args(Kind) if f"`{kind}`" not in page] == []


def test_at_least_one_participation_is_due_in_a_round() -> None:
    """One channel: a turn of 1/6 for each of six clients. A tenth of that is due, but somebody always takes part."""
    alone = {"participated": K == N % CLIENTS, "turn": 1.0 / CLIENTS}
    found = service(*made_tables(None, alone), made_scenario("control.share=0.1"))
    assert found.participation_ratio == pytest.approx(1.0)


def test_clipped_updates_name_their_clients() -> None:
    kept = {"kept": np.where(K == 2, 0.5, 1.0) + 0.0 * N}
    assert findings(None, kept)["clipped-updates"].startswith(
        f"{ROUNDS} of {ROUNDS * CLIENTS} uploads were too long (aggregation.mean.most_norm = "
    )
    assert f"those of 1 of {CLIENTS} clients (2): find out" in findings(None, kept)["clipped-updates"]
    once = findings(None, {"kept": np.where((K == 2) & (N == 7), 0.5, 1.0)})["clipped-updates"]
    assert once.startswith(f"1 of {ROUNDS * CLIENTS} uploads were too long")
    assert f"those of 1 of {CLIENTS} clients (2): find out" in once
    assert findings(None, {"kept": np.where(K == 2, 0.0, 1.0) + 0.0 * N}) == {}, "a rule that chooses rejects some"
    assert findings(None, {"kept": np.full((ROUNDS, CLIENTS), np.nan)}) == {}


def test_a_rule_that_keeps_nothing() -> None:
    sentence = findings(None, {"kept": np.where(N < 3, 0.0, np.nan) + 0.0 * K}, "aggregation.rule=median")
    assert sentence["nothing-kept"].startswith(
        f"aggregation.rule = 'median' kept nothing of the uploads of 3 of {ROUNDS} rounds, because most"
    )
    absent = {"participated": (K > 0) | (N > 5), "kept": np.where(K == 0, np.nan, np.where(N < 3, 0.0, 1.0))}
    assert set(findings(None, absent, "aggregation.rule=median")) == {"nothing-kept"}, "a client sat out"
    some = {"kept": np.where((N < 3) & (K > 0), 0.0, 1.0)}
    assert findings(None, some, "aggregation.rule=median") == {}, "something of one client counted"


def test_a_loss_that_grows() -> None:
    def sentence(loss: object, *settings: str) -> str | None:
        return findings({"train_loss": np.asarray(loss, dtype=float)}, None, *settings).get("diverging-training")

    falling = np.linspace(4.0, 1.0, ROUNDS)
    assert sentence(falling) is None
    assert sentence(np.full(ROUNDS, np.nan)) is None, "nothing is trained"
    assert sentence(np.where(np.arange(ROUNDS) > 10, 8.0, falling)) is None, "just twice as much"
    assert sentence(np.where(np.arange(ROUNDS) == ROUNDS - 1, 99.0, falling)) is None, "one bad round at the end"
    assert sentence(np.where(np.arange(ROUNDS) == 5, 99.0, falling)) is None, "it has recovered"
    grown = np.where(np.arange(ROUNDS) > 10, 8.01, falling)
    grown[-1] = np.nan
    assert (sentence(grown) or "").startswith("the loss that clients report rose from 4 to 8.01, and at most 2 times")
    assert (sentence(grown) or "").endswith("is usual: lower learning.learning_rate = 0.1.")
    of_server = sentence(grown, "server.optimizer=fedadam", "server.fedadam.learning_rate=10") or ""
    assert of_server.endswith("0.1, or server.fedadam.learning_rate = 10.")
    assert "server.average" not in (sentence(grown, "server.optimizer=average") or "server.average")
