"""The strategy and the mod against clients that do what they should, and against those that do not."""

import json
import logging
import time

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn import functional

from qccf.contracts import Decision
from qccf.control.policy import Qccf
from qccf.errors import QccfError
from qccf.files import alone_in
from qccf.flower import FederationError, MeasuredRates, Meter, QccfStrategy, quantize, roster
from qccf.flower.layout import Layout, LayoutError
from qccf.flower.messages import MOST, PAYLOAD_STYPE, REPORT, UPLOAD
from qccf.flower.roster import AbsentError
from qccf.learning.training import FlatModel, local_update
from qccf.quantization.table import build_codec
from qccf.random import stream
from qccf.world import build_world
from tests.flower.loop_grid import LoopGrid
from tests.tiny import Tiny, tiny_dataset, tiny_scenario

ROUNDS = 4


def own_app() -> ClientApp:
    """A user's own model, data and training loop, with nothing of ours but the mod and the meter."""
    app = ClientApp()
    data = tiny_dataset()

    @app.train(mods=[quantize])
    def train(message, context):
        model = Tiny()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        mine = slice(60 * context.node_config["partition-id"], 60 * (context.node_config["partition-id"] + 1))
        images = torch.from_numpy(data.train_images[mine]).float() / 255.0
        labels = torch.from_numpy(data.train_labels[mine])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        meter = Meter(optimizer)
        losses = []
        for part in range(3):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[part::3]), labels[part::3])
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
        metrics = MetricRecord(meter.metrics(num_examples=60, loss=losses[0]))
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def first_arrays() -> ArrayRecord:
    torch.manual_seed(0)
    return ArrayRecord(Tiny().state_dict())


def federation(meddle=lambda _, reply: reply, *settings: str, **options) -> tuple[QccfStrategy, LoopGrid]:
    scenario = tiny_scenario("codec.name=update+entropy", *settings)
    return QccfStrategy(scenario, join_timeout_s=0.5, **options), LoopGrid(own_app(), range(5), meddle=meddle)


def is_training(reply: Message) -> bool:
    return reply.metadata.group_id.startswith("train")


def test_a_users_own_app_trains() -> None:
    strategy, grid = federation()
    scores = []

    def evaluate(server_round, _):
        scores.append(server_round)
        return MetricRecord({"accuracy": 0.5, "loss": 1.0 / server_round})

    before = Layout.of(first_arrays()).flatten(first_arrays())
    result = strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5, evaluate_fn=evaluate)
    assert scores == [1, 2, 3, 4]
    assert list(result.arrays) == ["layer.weight", "layer.bias"]
    assert np.abs(strategy.weights - before).max() > 1e-3
    np.testing.assert_array_equal(Layout.of(result.arrays).flatten(result.arrays), strategy.weights)
    rounds = strategy.ledger.rounds()
    assert rounds["arrived"].min() > 0
    assert rounds["test_loss"].tolist() == [1.0, 0.5, 1 / 3, 0.25]
    assert result.train_metrics_clientapp[2]["energy_j"] == pytest.approx(rounds["energy_j"][1])
    assert result.evaluate_metrics_serverapp[4]["loss"] == 0.25
    losses = strategy.ledger.clients()["loss"].reshape(ROUNDS, 5)
    assert np.nanmean(losses[-1]) < np.nanmean(losses[0])


def test_nobody_but_the_scheduled_clients_gets_work() -> None:
    strategy, grid = federation(lambda _, reply: reply, "radio.num_channels=2")
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    worked = [client for client, message in grid.sent if message.metadata.group_id.startswith("train")]
    on = strategy.ledger.clients()["participated"].reshape(ROUNDS, 5)
    assert len(worked) == on.sum() <= 2 * ROUNDS
    assert worked == [int(client) for row in on for client in np.flatnonzero(row)]


def test_the_meter_agrees_with_our_own_training() -> None:
    """One epoch of three batches measured by both."""
    data, model = tiny_dataset(), FlatModel(Tiny(), device="cpu", precision="fp32")
    start, images, labels = (
        model.read(),
        torch.from_numpy(data.train_images[:90]),
        torch.from_numpy(data.train_labels[:90]),
    )
    ours = local_update(
        model, start, images, labels, local_updates=3, local_epochs=1, learning_rate=0.1, rng=stream(0, "batches")
    ).report
    theirs = Tiny()
    FlatModel(theirs, device="cpu", precision="fp32").load(start)
    order = np.array_split(stream(0, "batches").permutation(90), 3)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    meter = Meter(optimizer)
    for batch in order:
        optimizer.zero_grad()
        functional.cross_entropy(theirs(images[batch].float() / 255.0), labels[batch]).backward()
        optimizer.step()
    told = meter.metrics(num_examples=90, loss=1.0)
    assert told["gradient-norm-sq"] == pytest.approx(ours.gradient_norm_sq, rel=1e-4)
    assert told["gradient-variance"] == pytest.approx(ours.gradient_variance, rel=1e-4)
    assert (told["num-examples"], told["loss"]) == (90, 1.0)


def _with_report(**changes):
    def meddle(client, reply):
        if client == 1 and is_training(reply):
            reply.content[REPORT] = MetricRecord({**reply.content[REPORT], **changes})
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
        return Message(Error(0, "Traceback…\nMemoryError: none left"), reply_to=_asked(reply))
    return reply


def _asked(reply, node=None):
    """A message whose reply looks like this one, or as if another node had made it."""
    source = reply.metadata.src_node_id if node is None else node
    asked = Message(RecordDict(), source, MessageType.TRAIN, group_id=reply.metadata.group_id)
    asked.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return asked


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
    "too large": (_with_payload(lambda data: data + bytes(200_000)), "bytes, and 70,736 are allowed"),
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
    "no report": (_without(REPORT), "is the mod `quantize`"),
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
    clients = bad.ledger.clients()
    assert clients["missed"].tolist() == [False, True, False, False, False]
    assert clients["arrived"].tolist() == [True, False, True, True, True]
    assert clients["compute_energy_j"][1] > 0.0


def test_raw_weights_are_checked_as_well(caplog: pytest.LogCaptureFixture) -> None:
    nan = np.full(650, np.nan, dtype="<f4").tobytes()
    for change, reason in ((lambda _: nan, "not all finite"), (lambda data: data[:-4], "raw weights have 2,600")):
        strategy, grid = federation(_with_payload(change), "policy.name=no-quantization")
        with caplog.at_level(logging.WARNING, logger="flwr"):
            strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
        assert reason in caplog.text
        assert np.isfinite(strategy.weights).all()
        assert strategy.ledger.clients()["arrived"].tolist() == [True, False, True, True, True]


def test_replies_nobody_asked_for_and_second_replies_are_rejected(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = federation(lambda _, reply: reply, "radio.num_channels=3")
    messages = list(strategy.configure_train(1, first_arrays(), ConfigRecord(), grid))
    replies = grid.send_and_receive(messages)
    idle = next(node for node in grid.numbers if node not in {m.metadata.dst_node_id for m in messages})
    stranger = Message(replies[0].content, reply_to=Message(RecordDict(), idle, MessageType.TRAIN))
    thief = Message(replies[1].content, reply_to=_asked(replies[1], node=idle))
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.aggregate_train(1, [thief, *replies, replies[0], stranger])
    assert "has replied already" in caplog.text
    assert f"node {idle} (client unknown) is rejected: it answers no message of this round." in caplog.text
    assert f"node {replies[1].metadata.src_node_id} was asked." in caplog.text
    assert strategy.ledger.last["arrived"] == 3


def test_a_lost_client_is_missed_and_may_come_back() -> None:
    """Client 1 is gone in round 2: its node answers nothing. In round 3 it is asked who it is, in round 4 it works."""
    gone = []

    def meddle(client, reply):
        lost = client == 1 and reply.metadata.group_id == "train-2"
        gone.append(client) if lost else None
        return None if lost else reply

    strategy, grid = federation(meddle)
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=0.3)
    on = strategy.ledger.clients()["participated"].reshape(ROUNDS, 5)[:, 1]
    assert gone == [1]
    assert strategy.ledger.rounds()["missed"].tolist() == [0, 1, 0, 0]
    assert on.tolist() == [True, True, True, True]


def test_an_absent_client_is_not_scheduled() -> None:
    strategy, grid = federation()
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    node = next(node for node, number in grid.numbers.items() if number == 2)
    del grid.numbers[node]
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=1)
    grid.numbers[77] = 2
    strategy.start(grid, first_arrays(), num_rounds=3, timeout=1)
    on = strategy.ledger.clients()["participated"].reshape(3, 5)
    assert on[:, 2].tolist() == [True, False, True]
    assert on[:, [0, 1, 3, 4]].all()
    assert strategy.roster.nodes[2] == 77


def test_a_node_whose_hello_failed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "AGAIN_S", 0.0)
    failed = []

    def meddle(client, reply):
        if client == 3 and not failed:
            failed.append(client)
            return Message(Error(0, "Error: Node Unavailable"), reply_to=_asked(reply))
        return reply

    strategy, grid = federation(meddle)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    assert failed == [3]
    assert sorted(strategy.roster.nodes) == [0, 1, 2, 3, 4]


def test_a_node_that_is_refused_may_take_the_place_of_one_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without a key has another id when it comes back, while the old one seems to be there for a minute."""
    monkeypatch.setattr(roster, "AGAIN_S", 0.0)
    strategy, grid = federation()
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    old = strategy.roster.nodes[2]
    grid.numbers[77] = 2
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=1)
    assert strategy.roster.nodes[2] == old
    del grid.numbers[old]
    strategy.start(grid, first_arrays(), num_rounds=3, timeout=1)
    assert strategy.roster.nodes[2] == 77


class SlowGrid(LoopGrid):
    """Who is asked for its number needs a while."""

    def pull_messages(self, message_ids):
        asked = [message for _, message in self.sent if message.metadata.message_id in message_ids]
        if any(not one.metadata.group_id and time.time() < one.metadata.created_at + 1.5 for one in asked):
            return []
        return super().pull_messages(message_ids)


@pytest.mark.parametrize("kind", [LoopGrid, SlowGrid])
def test_it_gives_up_when_nothing_comes_back(kind) -> None:
    """Whoever is silent must say hello again, which may take a while: no round passes meanwhile."""
    strategy, grid = federation(lambda _, reply: None if is_training(reply) else reply, patience=2)
    grid.__class__ = kind
    strategy.join_timeout_s = 20.0
    with pytest.raises(FederationError, match="no client sent anything usable in 2 rounds"):
        strategy.start(grid, first_arrays(), num_rounds=9, timeout=0.3)
    assert len(strategy.ledger) == 2


class Idle(Qccf):
    """Schedules nobody."""

    def decide(self, state, observation, rng):
        nobody = np.zeros(len(observation.rates_bps))
        return Decision(nobody.astype(int) - 1, nobody.astype(int), nobody)


def test_rounds_in_which_nobody_was_to_train_are_no_reason_to_give_up() -> None:
    settings = "policy.name=tests.flower.test_strategy:Idle"
    strategy, grid = federation(lambda _, reply: reply, settings, patience=1)
    strategy.start(grid, first_arrays(), num_rounds=3, timeout=0.3)
    assert strategy.ledger.rounds()["participants"].tolist() == [0, 0, 0]


def test_it_waits_for_somebody_and_then_says_that_nobody_is_there(tmp_path) -> None:
    strategy, grid = federation(out=tmp_path)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    grid.numbers = {}
    with pytest.raises(AbsentError, match="0 of 5 clients came"):
        strategy.start(grid, first_arrays(), num_rounds=9, timeout=1)
    assert len(strategy.ledger) == 1, "no round passes with nobody there"


def test_a_reply_that_hangs_or_cannot_be_read_costs_nobody_elses(caplog: pytest.LogCaptureFixture) -> None:
    """Client 1 dies in the middle of its upload, and client 2 sends what no library can make sense of."""

    class Broken(LoopGrid):
        def pull_messages(self, message_ids):
            clients = {
                number
                for number, message in self.sent
                if message.metadata.message_id in message_ids and message.metadata.group_id.startswith("train")
            }
            if 1 in clients:
                super().pull_messages(message_ids)
                time.sleep(3.0)
                return []
            if 2 in clients:
                raise ValueError("not a record")
            return super().pull_messages(message_ids)

    strategy, grid = federation()
    grid.__class__ = Broken
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=1.0)
    assert time.monotonic() - started < 2.5, "the round ends in time"
    assert "cannot be read: ValueError: not a record" in caplog.text
    assert strategy.ledger.clients()["arrived"].tolist() == [True, False, False, True, True]


def test_the_largest_statistics_that_are_let_through_do_no_harm() -> None:
    most = {"gradient-norm-sq": MOST, "gradient-variance": MOST, "weight-range": MOST, "loss": MOST}
    strategy, grid = federation(_with_report(**most))
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=1)
    assert strategy.ledger.rounds()["arrived"].tolist()[0] == 5
    assert np.isfinite(strategy.weights).all()


def test_it_says_who_did_not_come(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = federation()
    grid.numbers = {node: number for node, number in grid.numbers.items() if number != 3} | {5: 1, 6: 99}
    with caplog.at_level(logging.WARNING, logger="flwr"), pytest.raises(AbsentError, match=r"4 of 5 .* missing: 3"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
    assert "it says that it is client 1, but that is node" in caplog.text
    assert "it says that it is client 99, and there are 5" in caplog.text


def test_a_server_that_is_started_again_goes_on(tmp_path) -> None:
    whole, grid = federation()
    whole.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    first, grid = federation(out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=2, timeout=5)
    second, grid = federation(out=tmp_path)
    grid.numbers = {node + 1: number for node, number in grid.numbers.items()}
    second.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert not [message for _, message in grid.sent if message.metadata.group_id.startswith("probe")]
    np.testing.assert_array_equal(second.weights, whole.weights)
    for name, column in whole.ledger.clients().items():
        np.testing.assert_array_equal(second.ledger.clients()[name], column, err_msg=name)
    assert json.loads((tmp_path / "summary.json").read_text())["rounds"] == ROUNDS
    assert (tmp_path / "rounds.parquet").exists()
    assert (tmp_path / "scenario.toml").exists()


def test_a_server_that_goes_on_needs_only_somebody(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    settings = (lambda _, reply: reply, "policy.name=channel-allocate")
    first, grid = federation(*settings, out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=1, timeout=5)
    second, grid = federation(*settings, out=tmp_path, rates="measured")
    grid.numbers = {node: number for node, number in grid.numbers.items() if number in (0, 4)}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        second.start(grid, first_arrays(), num_rounds=2, timeout=5)
    assert "2 of 5 clients came" in caplog.text
    assert second.ledger.clients()["participated"].reshape(2, 5)[1].tolist() == [True, False, False, False, True]
    third, grid = federation(*settings, out=tmp_path)
    grid.numbers = {}
    third.start(grid, first_arrays(), num_rounds=2, timeout=5)  # a finished run waits for nobody


def test_a_folder_of_another_run_is_left_alone(tmp_path) -> None:
    first, grid = federation(out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=1, timeout=5)
    there = sorted(tmp_path.rglob("*.npz"))
    other, grid = federation(lambda _, reply: reply, "control.energy_weight=7", out=tmp_path)
    with pytest.raises(FederationError, match="holds checkpoints of another run"):
        other.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert sorted(tmp_path.rglob("*.npz")) == there
    with alone_in(tmp_path), pytest.raises(QccfError, match="another process works in"):
        first.start(grid, first_arrays(), num_rounds=2, timeout=5)


def test_a_client_that_cannot_be_measured_stops_the_run() -> None:
    strategy, grid = federation(lambda client, reply: _zero_examples(reply) if client == 2 else reply)
    with pytest.raises(FederationError, match="client 2 could not be measured: num-examples = 0"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    strategy, grid = federation(lambda _, reply: None if reply.metadata.group_id == "probe-1" else reply)
    with pytest.raises(FederationError, match=r"clients \[0, 1, 2, 3, 4\] did not measure"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.2)


def _zero_examples(reply):
    if reply.metadata.group_id.startswith("probe"):
        reply.content[REPORT] = MetricRecord({**reply.content[REPORT], "num-examples": 0})
    return reply


def test_measured_rates_follow_the_uploads() -> None:
    cell = build_world(tiny_scenario(), 0).cell
    rates = MeasuredRates(cell)
    assert rates.rates_bps(3).shape == (5, 5)
    np.testing.assert_allclose(rates.rates_bps(0)[1], cell.round_rates_bps(0)[1].mean())
    rates.heard(1, 1000.0, 2.0)
    rates.heard(2, 1000.0, -3.0)
    np.testing.assert_allclose(rates.rates_bps(1)[1], 500.0)
    np.testing.assert_allclose(rates.rates_bps(1)[2], cell.round_rates_bps(0)[2].mean())
    rates.rates_bps(1)
    rates.heard(1, 1000.0, 1.0)
    # 0.3 of an upload at 1000 bit/s and 0.7 at 500: a bit takes 0.3 ms + 1.4 ms
    np.testing.assert_allclose(rates.rates_bps(2)[1], 1000.0 / 1.7)
    again = MeasuredRates(cell)
    again.restore(json.loads(json.dumps(rates.state())))
    np.testing.assert_array_equal(again.rates_bps(5), rates.rates_bps(5))
    first = cell.round_rates_bps(0)[1].mean()
    # three rounds without an upload: 0.95³ of what was measured, and the rest of what was assumed at first
    np.testing.assert_allclose(rates.rates_bps(5)[1], 1.0 / (0.95**3 * 1.7e-3 + (1.0 - 0.95**3) / first))
    rates.heard(1, 4000.0, 0.1)
    np.testing.assert_allclose(rates.rates_bps(6)[1], 8000.0, err_msg="too short to time: at least so fast")
    rates.heard(1, 1000.0, float("inf"))
    np.testing.assert_allclose(rates.rates_bps(6)[1], 8000.0)


def test_throttled_uploads_take_as_long_as_the_model_says() -> None:
    """The wall clock and the latency model, within a tenth. One client a round: these clients take turns."""
    seen = []

    class Recorder(MeasuredRates):
        def heard(self, client, num_bits, seconds):
            seen.append((num_bits, seconds))
            super().heard(client, num_bits, seconds)

    slow = ["radio.bandwidth_hz=1000", "radio.gain_db=-25", "radio.num_channels=1", "device.deadline_s=2"]
    settings = [*slow, "policy.name=channel-allocate"]
    strategy, grid = federation(lambda _, reply: reply, *settings, throttle=True, rates=Recorder)
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=60)
    clients = strategy.ledger.clients()
    on = clients["participated"]
    modelled_s = clients["payload_bits"][on] / clients["rate_bps"][on]
    assert len(modelled_s) == 2
    assert (modelled_s > 0.5).all()
    np.testing.assert_allclose([seconds for _, seconds in seen], modelled_s, rtol=0.1)
    np.testing.assert_array_equal([num_bits for num_bits, _ in seen], clients["payload_bits"][on])


def test_only_float32_can_be_quantized() -> None:
    counts = ArrayRecord({"count": Array(np.zeros(3, dtype=np.int64))})
    with pytest.raises(LayoutError, match="array 'count' is int64"):
        Layout.of(counts)
    layout = Layout.of(first_arrays())
    with pytest.raises(LayoutError, match=r"layer.weight\[10, 64\]"):
        layout.flatten(ArrayRecord({"layer.weight": Array(np.zeros((2, 2), dtype=np.float32))}))
    assert layout.sizes == [640, 10]


def test_a_mod_without_its_strategy_says_so() -> None:
    grid = LoopGrid(own_app(), [0])
    message = Message(RecordDict({"arrays": first_arrays()}), next(iter(grid.numbers)), MessageType.TRAIN)
    with pytest.raises(Exception, match="is the server's strategy QccfStrategy"):
        grid.push_messages([message])


def test_codec_and_bits_are_what_was_decided() -> None:
    payloads = []

    def meddle(client, reply):
        if is_training(reply):
            payloads.append((client, reply.content[UPLOAD]["payload"].data))
        return reply

    strategy, grid = federation(meddle)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    codec = build_codec("update+entropy", 650, [640, 10])
    bits = strategy.ledger.clients()["num_bits"]
    for client, payload in payloads:
        assert codec.decode(payload, int(bits[client])).shape == (650,)
    assert len(payloads) == strategy.ledger.last["participants"]
