"""The rules of a round, and opening and closing one by hand."""

from dataclasses import replace

import numpy as np

from qccf.core.contracts import MAX_NUM_BITS, Observation, Statistics
from qccf.learning.results import LocalStatistics
from qccf.quantization.protocol import Forecast
from qccf.quantization.registry import build_codec
from qccf.rounds.claims import ClaimRules
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import RoundRules, ServerState, close_round, open_round, state_at
from qccf.rounds.uplink import Upload
from qccf.runtimes.planner import planned_rules
from qccf.settings.loading import load_scenario
from support.problems import equal_statistics

RATES_BPS = np.full((5, 5), 1e8)
BITS = 2e5 + 1e5 * np.arange(MAX_NUM_BITS)
"""The sizes of uploads with one bit and more."""


def test_clients_add_no_noise_unless_the_rules_say_so() -> None:
    """Otherwise any change would count as not longer than usual."""
    rules = planned_rules(load_scenario("femnist"))
    assert not RoundRules(rules.policy, rules.codec, rules.constants, 0, 0.0).noisy


def test_a_client_with_an_empty_battery_has_no_link() -> None:
    scenario = load_scenario("femnist", {"device.battery_j": 0.006, "federation.num_clients": 3})
    rules, statistics = planned_rules(scenario), equal_statistics(1000.0, 1000.0, 1000.0)
    state = replace(state_at(rules, statistics, None), batteries_j=np.array([0.006, 0.0, 0.003]))
    known, true = np.full((3, 10), 1e8), np.full((3, 10), 9e7)
    opened = open_round(state, rules, Observation(known, statistics), true)
    assert opened.observation.rates_bps[:, 0].tolist() == [1e8, 0.0, 1e8]
    assert opened.truth.rates_bps[:, 0].tolist() == [9e7, 0.0, 9e7]
    assert opened.observation.charges.tolist() == [1.0, 0.0, 0.5]
    assert opened.decision.participates.tolist() == [True, False, True]


def five_clients(**rules) -> tuple[RoundRules, ServerState]:
    """A round of five equal clients, whose reports are claims, and its state before anything was uploaded."""
    scenario = load_scenario("femnist", {"federation.num_clients": 5, "radio.num_channels": 5})
    made = replace(planned_rules(scenario), claims=ClaimRules(), safety_margin=0.1, **rules)
    ones, tables = np.ones(5), np.tile(1.1 * BITS, (5, 1))
    errors = np.tile(1e5 / 4.0 ** np.arange(MAX_NUM_BITS), (5, 1))
    known = Statistics(1000.0 * ones, ones, ones, ones, 1e5 * ones, tables, errors)
    return made, state_at(made, known, None)


def upload(norm_sq: float = 1.0, loss: float = 1.0, *, bits: np.ndarray = BITS, size_bits: float = np.nan) -> Upload:
    return Upload(None, size_bits, LocalStatistics(norm_sq, 1.0, 1.0, loss), Forecast(1e5, bits, None))


def closed(rules, state, opened, uploads) -> tuple[ServerState, dict]:
    ledger = Ledger()
    after = close_round(state, rules, opened, uploads, ledger, lambda *_: (0.5, 2.0))
    return after, ledger.tables()["clients"]


def test_what_is_not_believed_is_said() -> None:
    said: list[str] = []
    rules, state = five_clients(warn=said.append)
    wrong = replace(state.statistics, weight_ranges=np.array([1.0, 1.0, 99.0, 1.0, 1.0]))
    assert state_at(rules, wrong, None).doubts.tolist() == [0, 0, 1, 0, 0]
    assert [text.partition(",")[0] for text in said] == ["client 2 reported weight_range = 99"]
    said.clear()
    opened = open_round(state, rules, Observation(RATES_BPS, state.statistics))
    uploads = {client: upload() for client in range(5)} | {3: upload(1e9, 1e9)}
    after, columns = closed(rules, state, opened, uploads)
    assert [text.partition(",")[0] for text in said] == [
        "client 3 reported gradient_norm_sq = 1e+09",
        "client 3 reported loss = 1e+09",
    ]
    assert after.doubts.tolist() == [0, 0, 0, 1, 0]
    assert after.statistics.gradient_norms_sq.tolist() == [1.0] * 5
    np.testing.assert_array_equal(columns["loss"], [1.0, 1.0, 1.0, np.nan, 1.0])
    assert after.round_index == 1


def test_sizes_that_are_claimed_are_compared_with_the_size_of_the_upload() -> None:
    """Both get the safety margin, so that a claim may be twice the true size, whatever the margin is."""
    rules, state = five_clients()
    opened = open_round(state, rules, Observation(RATES_BPS, state.statistics))
    q = int(opened.decision.num_bits[3])
    for factor, believed in ((1.95, True), (2.05, False)):
        claim = upload(bits=3.0 * BITS, size_bits=float(3.0 * BITS[q - 1] / factor))
        after, _ = closed(rules, state, opened, {client: upload() for client in range(5)} | {3: claim})
        expected = 1.1 * (3.0 * BITS if believed else BITS)
        np.testing.assert_allclose(after.statistics.upload_bits[3], expected)


def test_who_sends_nothing_has_failed_and_a_late_upload_tells_only_its_forecast() -> None:
    rules, state = five_clients()
    opened = open_round(state, rules, Observation(RATES_BPS, state.statistics))
    assert opened.to_train.all()
    late = upload(0.5, size_bits=1e8, bits=1.5 * BITS)
    after, columns = closed(rules, state, opened, {0: upload(0.5), 1: late, 2: upload(), 3: upload()})
    assert columns["arrived"].tolist() == [True, False, True, True, False]
    assert columns["missed"].tolist() == [False, True, False, False, True]
    assert after.statistics.gradient_norms_sq.tolist() == [0.5, 1.0, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(after.statistics.upload_bits[:, 0], 1.1 * BITS[0] * np.array([1.0, 1.5, 1.0, 1.0, 1.0]))


def test_who_is_known_to_be_late_is_not_asked_to_train_if_sizes_are_known() -> None:
    """Client 1 has a hundredth of the rate that was estimated, and the channel of client 2 carries nothing."""
    rules, state = five_clients()
    rates_bps = RATES_BPS + 1e6 * np.eye(5)[[1, 2, 3, 4, 0]]
    true = rates_bps.copy()
    true[1] = 1e6
    known = Observation(rates_bps, state.statistics)
    decision = open_round(state, rules, known).decision
    assert decision.channels.tolist() == [1, 2, 3, 4, 0], "each has a channel that is a little better for it"
    true[2, 3] = 0.0
    true[0, 0] = true[3, 0] = true[4, 1] = 0.0  # channels that others use
    opened = open_round(state, rules, known, true)
    assert opened.to_train.all(), "the sizes of entropy-coded uploads are not known"
    affine = replace(
        rules, codec=build_codec("update", rules.constants.num_parameters, [rules.constants.num_parameters])
    )
    assert open_round(state, affine, known, true).to_train.tolist() == [True, False, False, True, True]
    _, columns = closed(rules, state, opened, {client: upload() for client in range(5)})
    assert columns["arrived"].tolist() == [True, False, False, True, True]
