"""The strategy, the mod and the meter with clients that do what they should."""

import inspect
import json
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.superlink.grid import http_grid
from torch.nn import functional

from qccf.core.errors import ConfigError, FederationError, InfeasibleError, LayoutError
from qccf.core.streams import stream
from qccf.devices.profiles.registry import find_profile
from qccf.flower import MeasuredRates, Meter, QccfStrategy, SimulatedRates, client_app, server_app
from qccf.learning.training import FlatModel, local_update
from qccf.quantization.entropy import EntropyCodec
from qccf.quantization.registry import build_codec
from qccf.rounds.world import build_world
from qccf.runtimes.flower import mod, run_config
from qccf.runtimes.flower import strategy as strategy_module
from qccf.runtimes.flower.layout import Layout
from qccf.runtimes.flower.messages import UPLOAD, Instruction
from qccf.settings.loading import load_scenario
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.own_federation import ROUNDS, federation, first_arrays, is_training, own_app
from tests.helpers.own_models import Normed
from tests.helpers.tiny import SETTINGS, Tiny, tiny_dataset, tiny_scenario


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
    rounds = strategy.ledger.tables()["rounds"]
    assert rounds["arrived"].min() > 0
    assert rounds["test_loss"].tolist() == [1.0, 0.5, 1 / 3, 0.25]
    assert result.train_metrics_clientapp[2]["energy_j"] == pytest.approx(rounds["energy_j"][1])
    assert result.evaluate_metrics_serverapp[4]["loss"] == 0.25
    losses = strategy.ledger.tables()["clients"]["loss"].reshape(ROUNDS, 5)
    assert np.nanmean(losses[-1]) < np.nanmean(losses[0])


def test_the_average_of_models_is_delivered() -> None:
    strategy, grid = federation(lambda _, reply: reply, "server.averaging=0.6")
    result = strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    delivered = Layout.of(result.arrays).flatten(result.arrays)
    np.testing.assert_array_equal(delivered, strategy.delivered)
    assert not np.array_equal(delivered, strategy.weights)


def test_a_round_waits_for_an_hour_unless_start_says_otherwise() -> None:
    strategy, grid = federation()
    messages = strategy.configure_train(1, first_arrays(), ConfigRecord(), grid)
    assert {message.metadata.ttl for message in messages} == {3600.0}
    assert inspect.signature(strategy.start).parameters["timeout"].default == 3600.0, "the same as Flower's"


def test_nobody_but_the_scheduled_clients_gets_work() -> None:
    strategy, grid = federation(lambda _, reply: reply, "radio.num_channels=2")
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    worked = [client for client, message in grid.sent if message.metadata.group_id.startswith("train")]
    on = strategy.ledger.tables()["clients"]["participated"].reshape(ROUNDS, 5)
    assert len(worked) == on.sum() <= 2 * ROUNDS
    assert worked == [int(client) for row in on for client in np.flatnonzero(row)]


def test_the_operations_of_an_own_model_are_asked_for() -> None:
    """The scenario is that of another network, whose cycles must not be taken for those of this one."""
    settings = ["devices.profile=raspberry-pi-4", "device.deadline_s=30", "federation.num_clients=5"]
    grid = LoopGrid(own_app(), range(5))
    strategy = QccfStrategy(load_scenario("femnist", settings), join_timeout_s=0.5)
    with pytest.raises(ConfigError, match=r"650 parameters and is not .*'femnist-cnn'.*set learning\.flops_per_sample"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert not grid.sent, "before any client is asked"
    stated = load_scenario("femnist", [*settings, "learning.flops_per_sample=7.6e6"])
    strategy = QccfStrategy(stated, join_timeout_s=0.5)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    clients = strategy.ledger.tables()["clients"]
    board = find_profile("raspberry-pi-4")
    cycles = 2 * (7.6e6 / board.flops_per_cycle) * 60
    expected_j = board.energy_coefficient * cycles * clients["frequency_hz"] ** 2
    np.testing.assert_allclose(clients["compute_energy_j"], expected_j)


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
    ).statistics
    theirs = Tiny()
    FlatModel(theirs, device="cpu", precision="fp32").load(start)
    order = np.array_split(stream(0, "batches").permutation(90), 3)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    meter = Meter(optimizer)
    for batch in order:
        optimizer.zero_grad()
        functional.cross_entropy(theirs(images[batch].float() / 255.0), labels[batch]).backward()
        optimizer.step()
    metrics = meter.metrics(num_examples=90, loss=1.0)
    assert metrics["gradient-norm-sq"] == pytest.approx(ours.gradient_norm_sq, rel=1e-4)
    assert metrics["gradient-variance"] == pytest.approx(ours.gradient_variance, rel=1e-4)
    assert (metrics["num-examples"], metrics["loss"]) == (90, 1.0)


def test_measured_rates_follow_the_uploads() -> None:
    cell = build_world(tiny_scenario(), 0).cell
    rates = MeasuredRates(cell)
    assert rates.rates_bps(3).shape == (5, 5)
    np.testing.assert_allclose(rates.rates_bps(0)[1], cell.round_rates_bps(0)[1].mean())
    rates.record_upload(1, 1000.0, 2.0)
    rates.record_upload(2, 1000.0, -3.0)
    np.testing.assert_allclose(rates.rates_bps(1)[1], 500.0)
    np.testing.assert_allclose(rates.rates_bps(1)[2], cell.round_rates_bps(0)[2].mean())
    rates.rates_bps(1)
    rates.record_upload(1, 1000.0, 1.0)
    # 0.3 of an upload at 1000 bit/s and 0.7 at 500: a bit takes 0.3 ms + 1.4 ms
    np.testing.assert_allclose(rates.rates_bps(2)[1], 1000.0 / 1.7)
    again = MeasuredRates(cell)
    again.restore(json.loads(json.dumps(rates.state())))
    np.testing.assert_array_equal(again.rates_bps(5), rates.rates_bps(5))
    first = cell.round_rates_bps(0)[1].mean()
    # three rounds without an upload: 0.95³ of what was measured, and the rest of the first estimate
    np.testing.assert_allclose(rates.rates_bps(5)[1], 1.0 / (0.95**3 * 1.7e-3 + (1.0 - 0.95**3) / first))
    rates.record_upload(1, 4000.0, 0.1)
    np.testing.assert_allclose(rates.rates_bps(6)[1], 8000.0, err_msg="a short upload gives a lower bound")
    rates.record_upload(1, 1000.0, float("inf"))
    np.testing.assert_allclose(rates.rates_bps(6)[1], 8000.0)


def test_throttled_uploads_take_as_long_as_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A throttled client sleeps for the upload time of the model, and the server measures the time of the reply.

    No one really sleeps: each reply looks 10,000 times as old, so that the time of this machine does not matter.
    """
    seen, slept = [], []
    monkeypatch.setattr(mod, "time", SimpleNamespace(sleep=slept.append))

    def meddle(_, reply):
        if is_training(reply):
            reply.metadata.created_at -= 1e4 * slept[-1]
        return reply

    class Recorder(SimulatedRates):
        def record_upload(self, client, num_bits, seconds):
            seen.append((num_bits, seconds))
            super().record_upload(client, num_bits, seconds)

    slow = ["radio.bandwidth_hz=1000", "radio.gain_db=-25", "radio.num_channels=1", "device.deadline_s=2"]
    settings = [*slow, "policy.name=channel-allocate"]
    strategy, grid = federation(meddle, *settings, throttle=True, rates=Recorder)
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=60)
    clients = strategy.ledger.tables()["clients"]
    on = clients["participated"]
    modelled_s = clients["payload_bits"][on] / clients["rate_bps"][on]
    assert len(modelled_s) == 2
    assert (modelled_s > 0.5).all()
    np.testing.assert_allclose(slept, modelled_s)
    np.testing.assert_allclose([seconds / 1e4 for _, seconds in seen], modelled_s, rtol=0.01)
    np.testing.assert_array_equal([num_bits for num_bits, _ in seen], clients["payload_bits"][on])


def test_instructions_hold_the_power_and_the_rate_of_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    slept, sent = [], []
    monkeypatch.setattr(mod, "time", SimpleNamespace(sleep=slept.append))
    written = Instruction.record
    monkeypatch.setattr(Instruction, "record", lambda self: sent.append(self) or written(self))
    strategy, grid = federation(lambda _, reply: reply, "control.power=adapted", throttle=True)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=60)
    clients = strategy.ledger.tables()["clients"]
    on = clients["participated"]
    trained = sorted((one for one in sent if one.act == "train"), key=lambda one: one.client)
    assert [one.client for one in trained] == clients["client"][on].tolist()
    np.testing.assert_allclose([one.power_w for one in trained], clients["power_w"][on])
    np.testing.assert_allclose([one.rate_bps for one in trained], clients["rate_bps"][on])
    assert (clients["power_w"][on] < 0.2).any()
    np.testing.assert_allclose(sorted(slept), sorted(clients["payload_bits"][on] / clients["rate_bps"][on]))


def test_flower_is_left_as_it_was() -> None:
    """Flower's private function is replaced only while a strategy with measured rates runs."""
    before = http_grid.pull_objects
    during = []

    def meddle(_, reply):
        during.append(http_grid.pull_objects is not before)
        if fails and is_training(reply):
            raise RuntimeError("the network is down")
        return reply

    for rates, fails in (("simulated", False), ("measured", False), ("measured", True)):
        during.clear()
        strategy, grid = federation(meddle, rates=rates)
        with pytest.raises(FederationError, match="is down") if fails else nullcontext():
            strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
        assert during[-1] == (rates == "measured")
        assert http_grid.pull_objects is before


class CountingCodec(EntropyCodec):
    """Counts how often it decodes."""

    decoded = 0

    def __init__(self, num_parameters, layer_sizes):
        super().__init__(num_parameters, layer_sizes, codec_id=99, relative=True)

    def _opened(self, payload, num_bits):
        CountingCodec.decoded += 1
        return super()._opened(payload, num_bits)


def test_an_upload_is_decoded_once_unless_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one decoded vector the other four are decoded again, for their length and for the mean.

    The model is the same bit for bit.
    """
    counts, models = [], []
    for room in (5, 1):
        monkeypatch.setattr(strategy_module, "DECODED_BYTES", 4 * 650 * room)
        CountingCodec.decoded = 0
        settings = "codec.name=tests.runtimes.flower.test_strategy:CountingCodec"
        strategy, grid = federation(lambda _, reply: reply, settings)
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
        assert strategy.ledger.last["arrived"] == 5
        counts.append(CountingCodec.decoded)
        models.append(strategy.weights)
    assert counts == [5, 5 + 4 + 4]
    np.testing.assert_array_equal(*models)


def test_an_instruction_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ready app, too: the mod's part hands it on to the training."""
    parsed = []
    read = Instruction.read
    monkeypatch.setattr(Instruction, "read", lambda message: parsed.append(message) or read(message))
    monkeypatch.setattr(run_config, "config_dataset", lambda *_: tiny_dataset())
    run_config.cached_clients.cache_clear()
    config = {"scenario": "femnist", "set": " ".join([*SETTINGS, "federation.rounds=1"]), "num-clients": 5}
    grid = LoopGrid(client_app(), range(5), config)
    server_app()(grid, Context(1, 0, {}, RecordDict(), config))
    run_config.cached_clients.cache_clear()
    assert len(parsed) == len(grid.sent) > 10


def test_a_slow_hello_is_not_taken_off_the_time_of_uploads() -> None:
    """The reply to "probe" has no payload either, and the shortest time counts."""

    def meddle(_, reply):
        if not reply.metadata.group_id:  # a reply to "hello"
            reply.metadata.created_at -= 100.0
        return reply

    strategy, grid = federation(meddle)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert len(strategy.roster.delays_s) == 5
    assert max(strategy.roster.delays_s.values()) < 50.0


def test_only_float32_can_be_quantized() -> None:
    halves = ArrayRecord({"half": Array(np.zeros(3, dtype=np.float16))})
    with pytest.raises(LayoutError, match="array 'half' is float16"):
        Layout.of(halves)
    counts = ArrayRecord({"count": Array(np.zeros(3, dtype=np.int64))})
    with pytest.raises(LayoutError, match="no float32 arrays that are parameters"):
        Layout.of(counts)
    with pytest.raises(LayoutError, match="buffer 'scale' is not one of"):
        Layout.of(first_arrays(), ["scale"])
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
    bits = strategy.ledger.tables()["clients"]["num_bits"]
    for client, payload in payloads:
        assert codec.decode(payload, int(bits[client])).shape == (650,)
    assert len(payloads) == strategy.ledger.last["participants"]


def test_a_client_process_loads_neither_torch_nor_the_server() -> None:
    """A deployment starts one process per message, and the first message only asks for the client's number."""
    code = "import sys; from qccf.flower import client_app; client_app(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "qccf.runtimes.flower.client" in loaded
    assert not {"torch", "pandas", "qccf.runtimes.flower.strategy"} & set(loaded)


@pytest.mark.parametrize("policy", ["qccf", "no-quantization"])
def test_a_users_own_model_may_have_batchnorm(policy: str) -> None:
    """Running averages are averaged with the weights, and counters stay as the server has them."""
    torch.manual_seed(0)
    first = ArrayRecord(Normed().state_dict())
    replies = []

    def note(_, reply):
        if is_training(reply):
            replies.append(reply)
        return reply

    strategy = QccfStrategy(tiny_scenario("codec.name=update+entropy"), policy=policy, join_timeout_s=0.5)
    result = strategy.start(LoopGrid(own_app(Normed), range(5), meddle=note), first, num_rounds=2, timeout=5)
    assert replies
    assert list(result.arrays) == list(first)
    state = result.arrays.to_torch_state_dict()
    Normed().load_state_dict(state)
    assert state["norm.num_batches_tracked"] == 0
    assert not torch.equal(state["norm.running_mean"], torch.zeros(16))
    assert (state["norm.running_var"] > 0.0).all()
    assert strategy.scenario.learning.num_buffers == 32
    assert strategy.ledger.last["arrived"] > 0


def test_a_strategy_can_be_told_which_arrays_are_buffers() -> None:
    layout = Layout.of(first_arrays(), ["layer.bias"])
    assert (layout.num_parameters, layout.num_buffers, layout.buffers) == (640, 10, ("layer.bias",))
    strategy = QccfStrategy(tiny_scenario(), join_timeout_s=0.5, buffers=["layer.bias"])
    strategy.start(LoopGrid(own_app(), range(5)), first_arrays(), num_rounds=1, timeout=5)
    sizes = strategy.ledger.tables()["clients"]
    sent = sizes["arrived"]
    np.testing.assert_array_equal(sizes["payload_bits"][sent], 640 * (sizes["num_bits"][sent] + 1) + 32 + 320)


def test_the_time_of_an_empty_reply_is_taken_off_the_time_of_an_upload() -> None:
    """Every reply looks 1,000 s old, as if the clocks differed, and each upload another 5,000 s."""
    seen = []

    def meddle(_, reply):
        reply.metadata.created_at -= 6000.0 if is_training(reply) else 1000.0
        return reply

    class Recorder(SimulatedRates):
        def record_upload(self, client, num_bits, seconds):
            seen.append(seconds)

    strategy, grid = federation(meddle, rates=Recorder)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=60)
    np.testing.assert_allclose(seen, 5000.0, atol=400.0)
    assert len(seen) == 5


def test_a_reply_that_was_not_timed_is_timed_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round by hand, in which replies were made 7 s ago, and no empty reply was timed."""
    seen = []

    class Recorder(SimulatedRates):
        def record_upload(self, client, num_bits, seconds):
            seen.append(seconds)

    strategy, grid = federation(rates=Recorder)
    messages = list(strategy.configure_train(1, first_arrays(), ConfigRecord(), grid))
    replies = grid.send_and_receive(messages)
    monkeypatch.setattr(strategy_module, "time", SimpleNamespace(time=lambda: 2e9))
    strategy.roster.delays_s.clear()
    for reply in replies:
        reply.metadata.created_at = 2e9 - 7.0
    strategy.aggregate_train(1, replies)
    assert seen == [7.0] * 5


def test_measured_rates_are_the_truth_whatever_is_said_about_estimates() -> None:
    settings = ("radio.estimate_error_db=3", "radio.backoff_db=1")
    for rates, same in (("measured", True), ("simulated", False)):
        strategy, grid = federation(lambda _, reply: reply, *settings, rates=rates)
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
        clients = strategy.ledger.tables()["clients"]
        on = clients["participated"]
        assert on.any()
        assert np.array_equal(clients["rate_bps"][on], clients["estimated_rate_bps"][on]) == same


def test_what_cannot_work_is_refused_before_anybody_trains() -> None:
    private = tiny_scenario("privacy.clip_norm=0.5", "privacy.noise_multiplier=1")
    strategy, grid = QccfStrategy(private, join_timeout_s=0.5, buffers=["layer.bias"]), LoopGrid(own_app(), range(5))
    with pytest.raises(ConfigError, match="10 buffer values, such as running averages"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert not grid.sent
    strategy, grid = federation(lambda _, reply: reply, "radio.gain_db=-100")
    with pytest.raises(InfeasibleError):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert not any(is_training(message) for _, message in grid.sent)
