"""Replies that are wrong, broken or hostile: each is rejected with its reason and never aggregated."""

import logging
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict

from qccf.flower import FederationError
from qccf.rounds.ledger import MEASURED
from qccf.runtimes.flower.messages import MOST, PAYLOAD_STYPE, REPLY, UPLOAD
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.own_federation import ROUNDS, answering, federation, first_arrays, is_training


def _with_report(**changes):
    def meddle(client, reply):
        if client == 1 and is_training(reply):
            reply.content[REPLY] = MetricRecord({**reply.content[REPLY], **changes})
        return reply

    return meddle


def _with_payload(change, stype=PAYLOAD_STYPE):
    def meddle(client, reply):
        if client == 1 and is_training(reply):
            data = change(reply.content[UPLOAD]["payload"].data)
            array = Array(dtype="uint8", shape=(len(data),), stype=stype, data=data)
            reply.content[UPLOAD] = ArrayRecord({"payload": array})
        return reply

    return meddle


def _error(client, reply):
    if client == 1 and is_training(reply):
        return Message(Error(0, "Traceback…\nMemoryError: none left"), reply_to=answering(reply))
    return reply


def _without(name):
    def meddle(client, reply):
        if client == 1 and is_training(reply):
            del reply.content[name]
        return reply

    return meddle


def flip(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


BAD_REPLIES = {
    "corrupt": (_with_payload(flip), "checksum"),
    "cut short": (_with_payload(lambda data: data[:-1]), "payload"),
    "empty": (_with_payload(lambda _: b""), "less than its header"),
    "too large": (_with_payload(lambda data: data + bytes(200_000)), "bytes, and at most 70,736 are allowed"),
    "another type": (_with_payload(lambda data: data, stype="numpy.ndarray"), "of type 'numpy.ndarray'"),
    "another round": (_with_report(round=7), "it is for round 7"),
    "another client": (_with_report(client=3), "it is for client 3"),
    "NaN": (_with_report(**{"gradient-norm-sq": float("nan")}), "gradient-norm-sq = nan"),
    "huge": (_with_report(**{"gradient-norm-sq": 1e308}), "gradient-norm-sq = 1e+308"),
    "huge forecast": (_with_report(**{"forecast-bits": [1e300] * 32}), "forecast-bits must be 32"),
    "negative": (_with_report(**{"gradient-variance": -1.0}), "gradient-variance = -1.0"),
    "infinite loss": (_with_report(loss=float("inf")), "loss = inf"),
    "no sample": (_with_report(**{"num-examples": 0}), "num-examples = 0"),
    "forecast": (_with_report(**{"forecast-bits": [1.0, 2.0]}), "forecast-bits must be 32"),
    "endless forecast": (_with_report(**{"forecast-bits": [float("inf")] * 32}), "forecast-bits must be 32"),
    "few errors": (_with_report(**{"forecast-errors": [0.0] * 31}), "forecast-errors must be 32"),
    "error as a number": (_with_report(**{"forecast-errors": 0.0}), "forecast-errors must be 32"),
    "NaN error": (_with_report(**{"forecast-errors": [float("nan")] * 32}), "forecast-errors must be 32"),
    "negative error": (_with_report(**{"forecast-errors": [0.0] * 31 + [-1e-9]}), "forecast-errors must be 32"),
    "huge error": (_with_report(**{"forecast-errors": [1e9] + [0.0] * 31}), "from 0 to error-scale/(2^q - 1)²"),
    "error above its bound": (_with_report(**{"error-scale": 9.0, "forecast-errors": [1.1] * 32}), "error-scale = 9."),
    "NaN seconds": (_with_report(**{"measured-seconds": float("nan")}), "measured-seconds = nan"),
    "negative joules": (_with_report(**{"measured-joules": -1.0}), "measured-joules = -1.0"),
    "endless joules": (_with_report(**{"measured-joules": 1e12}), "from 0 to 1e+09"),
    "seconds as a list": (_with_report(**{"measured-seconds": [1.0]}), "measured-seconds = [1.0]"),
    "no report": (_without(REPLY), "is the mod `quantize`"),
    "no payload": (_without(UPLOAD), "has no payload"),
    "error": (_error, "MemoryError: none left"),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_bad_reply_is_rejected_and_never_aggregated(name: str, caplog: pytest.LogCaptureFixture) -> None:
    meddle, reason = BAD_REPLIES[name]
    bad, bad_grid = federation(meddle)
    lost, lost_grid = federation(lambda client, reply: None if client == 1 and is_training(reply) else reply)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        bad.start(bad_grid, first_arrays(), num_rounds=1, timeout=0.3)
    assert any(
        record.levelname == "WARNING" and "(client 1) is rejected" in record.message and reason in record.message
        for record in caplog.records
    ), caplog.text
    lost.start(lost_grid, first_arrays(), num_rounds=1, timeout=0.3)
    np.testing.assert_array_equal(bad.weights, lost.weights)
    clients = bad.ledger.tables()["clients"]
    assert clients["missed"].tolist() == [False, True, False, False, False]
    assert clients["arrived"].tolist() == [True, False, True, True, True]
    assert clients["compute_energy_j"][1] > 0.0


def test_raw_weights_are_checked_as_well(caplog: pytest.LogCaptureFixture) -> None:
    nan = np.full(650, np.nan, dtype="<f4").tobytes()
    for change, reason in ((lambda _: nan, "not finite"), (lambda data: data[:-4], "raw weights have 2,600")):
        strategy, grid = federation(_with_payload(change), "policy.name=no-quantization")
        with caplog.at_level(logging.WARNING, logger="flwr"):
            strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
        assert reason in caplog.text
        assert np.isfinite(strategy.weights).all()
        assert strategy.ledger.tables()["clients"]["arrived"].tolist() == [True, False, True, True, True]


def test_replies_nobody_asked_for_and_second_replies_are_rejected(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = federation(lambda _, reply: reply, "radio.num_channels=3")
    messages = list(strategy.configure_train(1, first_arrays(), ConfigRecord(), grid))
    replies = grid.send_and_receive(messages)
    idle = next(node for node in grid.numbers if node not in {m.metadata.dst_node_id for m in messages})
    stranger = Message(replies[0].content, reply_to=Message(RecordDict(), idle, MessageType.TRAIN))
    thief = Message(replies[1].content, reply_to=answering(replies[1], node=idle))
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.aggregate_train(1, [thief, *replies, replies[0], stranger])
    assert "has replied already" in caplog.text
    assert f"node {idle} (client unknown) is rejected: it answers no message of this round." in caplog.text
    assert f"the message went to node {replies[1].metadata.src_node_id}." in caplog.text
    assert strategy.ledger.last["arrived"] == 3


def test_a_reply_that_hangs_or_cannot_be_read_costs_nobody_elses(caplog: pytest.LogCaptureFixture) -> None:
    """Client 1 dies in the middle of its upload, and client 2 sends bytes that cannot be read."""

    released = threading.Event()
    returned = []

    class Broken(LoopGrid):
        def pull_messages(self, message_ids):
            clients = {
                number
                for number, message in self.sent
                if message.metadata.message_id in message_ids and message.metadata.group_id.startswith("train")
            }
            if 1 in clients:
                super().pull_messages(message_ids)
                returned.append(released.wait())
                return []
            if 2 in clients:
                raise ValueError("not a record")
            return super().pull_messages(message_ids)

    strategy, grid = federation()
    grid.__class__ = Broken
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=1.0)
    assert not returned, "the round ends although the pull still hangs"
    released.set()
    assert "cannot be read: ValueError: not a record" in caplog.text
    assert strategy.ledger.tables()["clients"]["arrived"].tolist() == [True, False, False, True, True]


def test_the_largest_statistics_that_are_let_through_do_no_harm() -> None:
    most = {"gradient-norm-sq": MOST, "gradient-variance": MOST, "weight-range": MOST, "loss": MOST}
    errors = {"error-scale": MOST, "forecast-errors": [MOST / (2.0**q - 1.0) ** 2 for q in range(1, 33)]}
    strategy, grid = federation(_with_report(**most, **errors))
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=1)
    assert strategy.ledger.tables()["rounds"]["arrived"].tolist()[0] == 5
    assert np.isfinite(strategy.weights).all()


def test_a_client_that_cannot_be_measured_starts_with_the_median_of_the_others(caplog) -> None:
    """Client 2 fails in the probe. It takes part, and its first upload says what it has."""
    strategy, grid = federation(lambda client, reply: _zero_examples(reply) if client == 2 else reply)
    whole, whole_grid = federation()
    whole.start(whole_grid, first_arrays(), num_rounds=2, timeout=5)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=2, timeout=5)
    assert "client 2 could not be measured: num-examples = 0" in caplog.text
    assert "clients 2 start with the median of the others" in caplog.text
    tables, honest = strategy.ledger.tables(), whole.ledger.tables()
    assert tables["clients"]["participated"].all()
    first = tables["statistics"]["gradient_norm_sq"].reshape(2, 5)
    assert first[0, 2] == np.sort(first[0, [0, 1, 3, 4]])[1], "of two middle values the lower one"
    assert tables["statistics"]["upload_errors"].reshape(2, 5, 32)[0, 2, 3] > 0.0
    known = honest["statistics"]["gradient_norm_sq"].reshape(2, 5)
    np.testing.assert_allclose(first[1], known[1], rtol=0.2)
    assert first[1, 2] != first[0, 2], "its first upload has told"
    assert tables["clients"]["dataset_size"].tolist() == [60] * 10


def test_a_run_in_which_nobody_can_be_measured_ends() -> None:
    strategy, grid = federation(lambda _, reply: None if reply.metadata.group_id == "probe-1" else reply)
    with pytest.raises(FederationError, match="no client measured the initial model"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.2)


def _zero_examples(reply):
    if reply.metadata.group_id.startswith("probe"):
        reply.content[REPLY] = MetricRecord({**reply.content[REPLY], "num-examples": 0})
    return reply


def test_patience_counts_rounds_in_a_row() -> None:
    """Rounds 1 and 3 bring no usable upload: with a patience of two rounds the run goes on, with one it ends."""

    def meddle(_, reply):
        if reply.metadata.group_id in ("train-1", "train-3"):
            del reply.content[UPLOAD]
        return reply

    strategy, grid = federation(meddle, patience=2)
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert strategy.ledger.tables()["rounds"]["arrived"].tolist() == [0, 5, 0, 5]
    strategy, grid = federation(meddle, patience=1)
    with pytest.raises(FederationError, match="in 1 rounds in a row"):
        strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)


def test_one_client_that_sends_nothing_usable_does_not_end_a_federation_with_one_channel() -> None:
    """`channel-allocate` asks client 0 in some rounds in a row, because its link is the best."""
    asked = []

    def meddle(client, reply):
        if is_training(reply):
            asked.append(client)
            if client == best:
                del reply.content[UPLOAD]
        return reply

    settings = ("radio.num_channels=1", "policy.name=channel-allocate")
    best = -1
    strategy, grid = federation(meddle, *settings, patience=1)
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    best = asked[0]
    strategy, grid = federation(meddle, *settings, patience=1)
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert strategy.ledger.tables()["rounds"]["arrived"].tolist()[0] == 0
    grid.numbers = {node: number for node, number in grid.numbers.items() if number == best}
    strategy, _ = federation(meddle, *settings, patience=1, least_clients=1)
    with pytest.raises(FederationError, match="in 1 rounds in a row"):
        strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)


@pytest.mark.parametrize("channels", [1, 2])
def test_of_two_clients_that_are_there_both_must_have_been_asked_in_vain(channels: int) -> None:
    """With one channel one of them is asked, and the other one may still send something usable."""

    def meddle(_, reply):
        if is_training(reply):
            del reply.content[UPLOAD]
        return reply

    settings = (f"radio.num_channels={channels}", "policy.name=channel-allocate")
    strategy, grid = federation(meddle, *settings, patience=1, least_clients=2)
    grid.numbers = {node: number for node, number in grid.numbers.items() if number < 2}
    with nullcontext() if channels == 1 else pytest.raises(FederationError, match="in 1 rounds in a row"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert strategy.ledger.last["participants"] == channels
    assert strategy.ledger.last["arrived"] == 0


def test_a_size_is_limited_again_when_others_register(caplog: pytest.LogCaptureFixture) -> None:
    """Only clients 0 and 1 are measured, and 1 states 5,000 samples: it counts as four times the other, also later."""

    def meddle(client, reply):
        if REPLY not in reply.content or "num-examples" not in reply.content[REPLY]:
            return reply
        if client > 1:
            return _zero_examples(reply)
        if client == 1:
            reply.content[REPLY] = MetricRecord({**reply.content[REPLY], "num-examples": 5000})
        return reply

    strategy, grid = federation(meddle)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=2, timeout=5)
    sizes = strategy.ledger.tables()["clients"]["dataset_size"].reshape(2, 5)
    assert sizes.tolist() == [[60, 240, 60, 60, 60]] * 2
    assert caplog.text.count("client 1 states 5000 samples, and the limit is 240") == 1


def test_a_client_whose_app_failed_must_say_hello_again_and_one_with_a_bad_upload_need_not() -> None:
    def meddle(client, reply):
        if client == 2 and is_training(reply):
            del reply.content[UPLOAD]
        return _error(client, reply)

    strategy, grid = federation(meddle)
    worked = []
    strategy.roster.record_work = worked.append
    messages = list(strategy.configure_train(1, first_arrays(), ConfigRecord(), grid))
    strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert strategy.ledger.tables()["clients"]["arrived"].tolist() == [True, False, False, True, True]
    assert sorted(strategy.roster.nodes) == sorted(worked) == [0, 2, 3, 4]


def test_a_dataset_size_is_fixed_when_a_client_registers(caplog: pytest.LogCaptureFixture) -> None:
    """A client that says in the first round that it has 10^9 samples is neither charged nor weighted for them."""
    honest, grid = federation()
    honest.start(grid, first_arrays(), num_rounds=2, timeout=5)
    strategy, grid = federation(_with_report(**{"num-examples": 10**9}))
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=2, timeout=5)
    assert caplog.text.count("client 1 reported 1000000000 samples and registered with 60") == 1
    np.testing.assert_array_equal(strategy.weights, honest.weights)
    for name, column in honest.ledger.tables()["clients"].items():
        if name in MEASURED:  # the clock's own
            continue
        np.testing.assert_array_equal(strategy.ledger.tables()["clients"][name], column, err_msg=name)


def test_a_dataset_size_stays_fixed_when_a_server_is_started_again(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    first, grid = federation(out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=1, timeout=5)
    second, grid = federation(_with_report(**{"num-examples": 10**9}), out=tmp_path)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        second.start(grid, first_arrays(), num_rounds=3, timeout=5)
    assert caplog.text.count("client 1 reported 1000000000 samples and registered with 60") == 1
    assert second.ledger.tables()["clients"]["dataset_size"].tolist() == [60] * 15


def test_a_client_that_registers_with_many_samples_gets_a_bounded_share(caplog: pytest.LogCaptureFixture) -> None:
    def meddle(client, reply):
        if client == 1 and REPLY in reply.content and "num-examples" in reply.content[REPLY]:
            reply.content[REPLY] = MetricRecord({**reply.content[REPLY], "num-examples": 10**9})
        return reply

    strategy, grid = federation(meddle)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert "client 1 states 1000000000 samples, and the limit is 240 (4 times the median of the others)" in caplog.text
    assert strategy.ledger.tables()["clients"]["dataset_size"].tolist() == [60, 240, 60, 60, 60]
    announced, grid = federation(meddle, "claims.dataset_sizes=[60,70,60,60,60]")
    announced.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert announced.ledger.tables()["clients"]["dataset_size"].tolist() == [60, 70, 60, 60, 60]


@pytest.mark.parametrize("form", ["scale-free", "paper"])
def test_one_false_report_does_not_stop_the_others(form: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error of 10^30, once: nobody was scheduled any more, for good and without a message."""
    lie = {"error-scale": 1e30, "forecast-errors": [1e30 / (2.0**q - 1.0) ** 2 for q in range(1, 33)]}

    def meddle(client, reply):
        return _with_report(**lie)(client, reply) if reply.metadata.group_id == "train-1" else reply

    strategy, grid = federation(meddle, f"control.form={form}")
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert "client 1 reported error_scale = 1e+30, and the limit is" in caplog.text
    assert strategy.ledger.tables()["rounds"]["arrived"].tolist() == [5] * ROUNDS
