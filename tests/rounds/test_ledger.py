"""The columns of the ledger that tell how well a round served its budgets and its clients."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qccf.core.contracts import Constants, Decision, Observation, Targets
from qccf.devices.cost import settle
from qccf.rounds.ledger import Ledger
from support.problems import CONSTANTS, equal_statistics

STATISTICS = equal_statistics(1000.0, 3000.0, 1000.0, 1000.0)
RATES_BPS = np.array([[1e8, 1e8], [1e8, 1e8], [1e8, 1e8], [1e6, 1e6]])  # the last one cannot upload in time


def recorded(
    channels: list[int],
    num_bits: list[int],
    state: dict | None = None,
    frequency_hz: float = 1e9,
    constants: Constants = CONSTANTS,
    rates_bps: np.ndarray = RATES_BPS,
    rounds: int = 1,
    kept: np.ndarray | None = None,
    measured: dict | None = None,
    losses: np.ndarray | None = None,
    **more,
) -> Ledger:
    on = np.array(channels) >= 0
    decision = Decision(np.array(channels), np.array(num_bits), np.where(on, frequency_hz, 0.0), **more)
    observation = Observation(rates_bps, STATISTICS)
    outcome = settle(decision, observation, constants)
    if losses is not None:
        outcome = replace(outcome, losses=losses)
    ledger = Ledger()
    for index in range(rounds):
        ledger.record(
            index, observation, decision, outcome, true_rates_bps=rates_bps, sizes_bits=np.full(4, np.nan),
            policy_state=state or {}, constants=constants, accuracy=0.1 * index, loss=1.0 * index,
            kept=kept, measured=measured,
        )  # fmt: skip
    return ledger


def targets(**changed) -> Targets:
    least = np.array([1.0, 2.0, np.nan, np.nan])
    made = {"errors": least, "least_errors": least, "slack": 2.0, "tolerated_error": 0.0, "turns": least}
    return Targets(**made | {"error_price": 7.0} | changed)


def test_the_error_of_a_round_counts_the_uploads_that_arrived() -> None:
    c = 0.25 * 246_590 * 0.25
    assert recorded([0, 1, -1, -1], [1, 2, 0, 0]).last["aggregate_error"] == pytest.approx(c / 16 + c / 9 * 9 / 16)
    # q = 30 is late, so that the other client is alone with a weight of 1
    assert recorded([0, 1, -1, -1], [1, 30, 0, 0]).last["aggregate_error"] == pytest.approx(c)


def test_the_error_of_raw_uploads_is_zero_and_of_an_empty_round_unknown() -> None:
    raw = {"raw": True, "deadline_exempt": True}
    assert recorded([0, 1, -1, -1], [32, 32, 0, 0], **raw).last["aggregate_error"] == 0.0
    for more in ({}, raw):
        assert math.isnan(recorded([-1] * 4, [0] * 4, **more).last["aggregate_error"])


def test_the_error_budget_follows_the_targets() -> None:
    """Weights 1/4 and 3/4, slack 2: 2·(1/16 + 2·9/16) = 2.375."""
    on, bits = [0, 1, -1, -1], [1, 2, 0, 0]
    assert recorded(on, bits, targets=targets()).last["error_budget"] == pytest.approx(2.375)
    assert recorded(on, bits, targets=targets(tolerated_error=5.0)).last["error_budget"] == 5.0
    late = recorded(on, [1, 30, 0, 0], targets=targets()).last
    assert late["error_budget"] == pytest.approx(2.375), "a lost upload does not change what was allowed"
    assert math.isnan(recorded(on, bits).last["error_budget"])
    assert math.isnan(recorded([-1] * 4, [0] * 4, targets=targets()).last["error_budget"])


def test_prices_and_queues_are_those_of_the_policy() -> None:
    state = {"error_price": 3.0, "participation_queue": 4.0}
    last = recorded([0, 1, -1, -1], [1, 2, 0, 0], state).last
    assert (last["error_price"], last["participation_queue"]) == (3.0, 4.0)
    assert math.isnan(last["quantization_queue"])
    assert recorded([0, 1, -1, -1], [1, 2, 0, 0], state, targets=targets()).last["error_price"] == 7.0


def test_the_turn_of_a_client_is_its_share_of_the_channels() -> None:
    """Two channels for three clients that can upload."""
    clients = recorded([0, 1, -1, -1], [1, 2, 0, 0]).tables()["clients"]
    assert clients["able"].tolist() == [True, True, True, False]
    assert clients["turn"].tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0.0])
    one_channel = np.array([[1e8], [1e6], [1e6], [1e6]])
    alone = recorded([0, -1, -1, -1], [1, 0, 0, 0], rates_bps=one_channel).tables()["clients"]
    assert alone["turn"].tolist() == [1.0, 0.0, 0.0, 0.0]
    spare = recorded([0, -1, -1, -1], [1, 0, 0, 0], rates_bps=np.repeat(one_channel, 3, axis=1)).tables()["clients"]
    assert spare["turn"].tolist() == [1.0, 0.0, 0.0, 0.0], "no client has more than one turn"
    nobody = recorded([-1] * 4, [0] * 4, rates_bps=np.full((4, 1), 1e6)).tables()["clients"]
    assert nobody["turn"].tolist() == [0.0] * 4


def test_the_most_bits_of_a_participant_are_those_that_its_channel_carries() -> None:
    """At 1 GHz 1000 samples leave 18 ms and 1.8 Mb, 3000 samples 14 ms and 1.4 Mb: (q + 1)·Z fit for q = 6 and 4."""
    clients = recorded([0, 1, -1, -1], [1, 2, 0, 0]).tables()["clients"]
    assert clients["most_bits"].tolist() == [6, 4, 0, 0]
    assert recorded([-1, -1, -1, 0], [0, 0, 0, 1]).tables()["clients"]["most_bits"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("adapted", [False, True])
def test_the_energy_of_a_round_adds_up_over_its_parts_and_clients(adapted: bool) -> None:
    charged = replace(
        CONSTANTS, coding_cycles=1e6, receive_energy_j=2e-4, idle_power_w=0.05, circuit_power_w=0.02, bandwidth_hz=1e7
    )
    powers_w = np.array([0.1, 0.15, 0.0, 0.0]) if adapted else None
    ledger = recorded([0, 1, -1, -1], [1, 2, 0, 0], constants=charged, powers_w=powers_w)
    row, columns = ledger.last, ledger.tables()["clients"]
    parts = ("compute_energy_j", "upload_energy_j", "coding_energy_j", "receive_energy_j", "idle_energy_j")
    assert row["energy_j"] == pytest.approx(sum(row[part] for part in parts))
    for part in parts:
        assert row[part] == pytest.approx(columns[part].sum())
        assert row[part] > 0.0
    assert columns["power_w"].tolist() == ([0.1, 0.15, 0.0, 0.0] if adapted else [0.2, 0.2, 0.0, 0.0])
    sent_s = columns["payload_bits"][:2] / columns["rate_bps"][:2]
    np.testing.assert_allclose(columns["upload_energy_j"][:2], (columns["power_w"][:2] + 0.02) * sent_s)


def test_a_raw_upload_is_expected_to_have_32_bits_per_parameter_and_buffer() -> None:
    raw = {"raw": True, "deadline_exempt": True, "constants": replace(CONSTANTS, num_buffers=10)}
    clients = recorded([0, 1, -1, -1], [32, 32, 0, 0], **raw).tables()["clients"]
    assert clients["expected_bits"].tolist() == [32.0 * 246_600, 32.0 * 246_600, 0.0, 0.0]
    assert clients["payload_bits"].tolist() == clients["expected_bits"].tolist(), "nothing was sent in this test"


def test_a_truncated_ledger_is_that_of_the_first_rounds() -> None:
    ledger = recorded([0, 1, -1, -1], [1, 2, 0, 0], rounds=3)
    ledger.truncate(2)
    assert len(ledger) == 2
    for name, rows in (("rounds", 2), ("clients", 8), ("statistics", 8)):
        assert len(ledger.tables()[name]["round"]) == rows


def test_a_truncated_ledger_goes_on_with_the_energy_of_its_last_round() -> None:
    ledger = recorded([0, 1, -1, -1], [1, 2, 0, 0], rounds=3)
    spent_j = ledger.rounds()["energy_j"][0]
    np.testing.assert_allclose(ledger.rounds()["cumulative_energy_j"], spent_j * np.array([1.0, 2.0, 3.0]))
    assert ledger.last["round"] == 2
    ledger.truncate(2)
    assert ledger.last["round"] == 1
    assert ledger.accuracies == [0.0, 0.1]
    ledger.drop_last_evaluation()
    assert ledger.rounds()["test_loss"].tolist()[0] == 0.0
    assert np.isnan([ledger.last["test_accuracy"], ledger.last["test_loss"]]).all()


def test_tables_of_different_lengths_make_no_ledger() -> None:
    tables = [recorded([0, 1, -1, -1], [1, 2, 0, 0], rounds=count) for count in (2, 3)]
    for rounds, clients, statistics in ((0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1)):
        with pytest.raises(ValueError, match="a ledger of"):
            Ledger.restored(tables[rounds].rounds(), tables[clients].clients, tables[statistics].statistics)
    again = Ledger.restored(tables[0].rounds(), tables[0].clients, tables[0].statistics)
    np.testing.assert_equal(again.rounds(), tables[0].rounds())


def test_only_a_change_that_counted_in_part_is_clipped() -> None:
    kept = np.array([np.nan, 0.0, 0.4, 1.0])
    assert recorded([0, 1, -1, -1], [1, 2, 0, 0], kept=kept).clipped().tolist() == [2]
    assert recorded([0, 1, -1, -1], [1, 2, 0, 0]).clipped().tolist() == []


def test_the_means_of_a_round_are_those_of_the_clients_that_have_a_value() -> None:
    """Losses of 2 and 6 with 1000 and 3000 samples: 5."""
    row = recorded([0, 1, -1, -1], [1, 2, 0, 0], losses=np.array([2.0, 6.0, np.nan, np.nan])).last
    assert (row["mean_bits"], row["train_loss"]) == (1.5, 5.0)
    assert (row["participants"], row["arrived"], row["missed"]) == (2, 2, 0)
    slowest_s = 2 * 1000 * 3000 / 1e9 + (3 * 246_590 + 32) / 1e8
    assert row["latency_s"] == pytest.approx(slowest_s), "the slowest client ends the round"
    empty = recorded([-1] * 4, [0] * 4).last
    assert np.isnan([empty["mean_bits"], empty["train_loss"]]).all()


def test_what_clients_measured_is_recorded_and_unknown_for_the_others() -> None:
    columns = recorded([0, 1, -1, -1], [1, 2, 0, 0], measured={1: (3.0, 4.0)}).tables()["clients"]
    np.testing.assert_array_equal(columns["measured_s"], [np.nan, 3.0, np.nan, np.nan])
    np.testing.assert_array_equal(columns["measured_j"], [np.nan, 4.0, np.nan, np.nan])


def test_rates_and_sizes_are_those_of_the_channel_and_the_bits_of_each_client() -> None:
    """An upload of q bits has (q + 1)·Z + 32 bits."""
    rates_bps = RATES_BPS * np.array([1.0, 0.9])
    columns = recorded([1, 0, -1, -1], [1, 2, 0, 0], rates_bps=rates_bps).tables()["clients"]
    for name in ("rate_bps", "estimated_rate_bps"):
        np.testing.assert_array_equal(columns[name], [0.9e8, 1e8, np.nan, np.nan])
    expected = [2.0 * 246_590 + 32, 3.0 * 246_590 + 32, 0.0, 0.0]
    assert columns["expected_bits"].tolist() == columns["payload_bits"].tolist() == expected


def test_a_participant_that_cannot_train_in_time_has_no_room_for_an_upload() -> None:
    """3000 samples take 6 ms at the highest frequency, beyond a deadline of 4 ms."""
    short = replace(CONSTANTS, deadline_s=0.004)
    columns = recorded([-1, 0, -1, -1], [0, 1, 0, 0], constants=short, rates_bps=10.0 * RATES_BPS).tables()["clients"]
    assert columns["most_bits"].tolist() == [0, 0, 0, 0]
    assert columns["missed"].tolist() == [False, True, False, False]
