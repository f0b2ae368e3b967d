"""The coded downlink: what clients must receive, that they hold the server's bits, and that nothing is left out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qccf.core.errors import ConfigError
from qccf.quantization.registry import build_codec
from qccf.rounds.downlink import CodedDownlink, applied
from qccf.rounds.setup import build_downlink
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan_run
from qccf.runtimes.simulator import simulate
from tests.helpers.tiny import tiny_dataset, tiny_scenario
from tests.runtimes.test_resume import assert_same, run_to_the_end, stopped_after

SETTINGS = ("codec.name=update+entropy", "server.downlink=update+entropy", "accounts.receive_power_w=0.1")


class Recorder:
    """A codec that keeps what it has encoded."""

    def __init__(self, codec) -> None:
        self.codec = codec
        self.sent: list[tuple[bytes, int]] = []

    def __getattr__(self, name):
        return getattr(self.codec, name)

    def encode(self, vector, num_bits, key):
        payload = self.codec.encode(vector, num_bits, key)
        self.sent.append((payload, num_bits))
        return payload


def downlink(count: int, *, buffers: int = 0, most_error: float = 0.1, codec: str = "update+entropy") -> CodedDownlink:
    made = Recorder(build_codec(codec, count, [count]))
    return CodedDownlink(made, most_error, count, buffers, num_clients=4, seed=3)


def test_a_client_needs_every_change_since_its_model_or_the_whole_model() -> None:
    """32·100 = 3200 bits are the whole model; the last changes took 500, 300 and 2600 bits."""
    one = downlink(100)
    state = {**one.init(), "sizes_bits": np.array([500.0, 300.0, 2600.0]), "versions": np.array([-1.0, 3.0, 2.0, 0.0])}
    assert one.needed_bits(state).tolist() == [3200.0, 0.0, 2600.0, 3200.0]
    assert one.needed_bits({**state, "versions": np.array([1.0, 1.0, 3.0, 2.0])}).tolist() == [2900, 2900, 0, 2600]
    assert one.needed_share(state).tolist() == [1.0, 0.0, 2600 / 3200, 1.0]
    assert one.needed_bits(one.init()).tolist() == [3200.0] * 4
    assert one.init()["versions"].tolist() == [-1.0] * 4
    assert downlink(100, buffers=5).needed_bits(one.init()).tolist() == [32.0 * 105] * 4, "with its buffers"


def test_participants_hold_the_current_model_if_their_upload_arrived() -> None:
    one = downlink(100)
    state = {**one.init(), "sizes_bits": np.array([500.0, 300.0]), "versions": np.array([0.0, 1.0, -1.0, 1.0])}
    after = one.received(state, np.array([True, True, True, False]), np.array([True, False, True, False]))
    assert after["versions"].tolist() == [2.0, -1.0, 2.0, 1.0]


@pytest.mark.parametrize("codec", ["update", "update+entropy", "sparse"])
def test_clients_that_add_what_was_sent_hold_the_servers_bits(codec: str) -> None:
    rng = np.random.default_rng(1)
    one = downlink(500, buffers=2, codec=codec)
    held = rng.normal(size=502).astype(np.float32)
    client, state = held[:500].copy(), one.init()
    for _ in range(5):
        wanted = held + 0.01 * rng.normal(size=502).astype(np.float32)
        held, state = one.broadcast(state, held, wanted)
        payload, num_bits = one.codec.sent[-1]
        client = applied(client, one.codec.decode(payload, num_bits))
        assert client.tobytes() == held[:500].tobytes()
        assert held[500:].tobytes() == wanted[500:].tobytes(), "buffers are sent whole"
        assert state["sizes_bits"][-1] == one.codec.size_bits(payload) + 64
    assert len(state["sizes_bits"]) == 5


def test_the_fewest_bits_within_the_error_are_used() -> None:
    rng = np.random.default_rng(2)
    held = np.zeros(2000, dtype=np.float32)
    wanted = rng.normal(size=2000).astype(np.float32)
    used = []
    for most_error in (1.0, 0.1, 0.01):
        one = downlink(2000, most_error=most_error)
        after, _ = one.broadcast(one.init(), held, wanted)
        num_bits = one.codec.sent[-1][1]
        errors, length_sq = one.codec.forecast(wanted).errors, float(np.dot(wanted, wanted))
        assert errors[num_bits - 1] <= most_error * length_sq
        assert num_bits == 1 or errors[num_bits - 2] > most_error * length_sq
        assert float(np.square(after - wanted).sum()) <= 1.3 * most_error * length_sq
        used.append(num_bits)
    assert used == sorted(set(used))


def test_what_a_code_leaves_out_is_sent_later() -> None:
    """The model plus what is still left out is where the server wanted to be; without new changes it gets there."""
    rng = np.random.default_rng(4)
    one = downlink(300, most_error=0.5)
    held, state = np.zeros(300, dtype=np.float32), one.init()
    goal = np.zeros(300)
    for _ in range(20):
        change = 0.1 * rng.normal(size=300)
        goal += change
        held, state = one.broadcast(state, held, (held + change).astype(np.float32))
        np.testing.assert_allclose(held + state["residual"], goal, atol=1e-5)
    for _ in range(60):
        held, state = one.broadcast(state, held, held)
    np.testing.assert_allclose(held, goal, atol=1e-3)


def test_a_model_that_does_not_change_is_sent_as_nothing() -> None:
    one = downlink(300)
    held = np.ones(300, dtype=np.float32)
    after, state = one.broadcast(one.init(), held, held)
    assert after.tobytes() == held.tobytes()
    assert not state["residual"].any()


def test_a_run_charges_what_is_received() -> None:
    """Receiving is charged by bits, everything else follows from training on the model that was sent."""
    scenario = tiny_scenario(*SETTINGS, "control.share=0.6", "federation.rounds=6")
    run = simulate(scenario, dataset=tiny_dataset())
    whole_j = 0.1 * 32 * 650 / scenario.accounts.receive_rate_bps
    spent_j = run.client_columns["receive_energy_j"].reshape(6, -1)
    on = run.client_columns["participated"].reshape(6, -1)
    assert (spent_j[~on] == 0.0).all()
    first = on & (np.cumsum(on, axis=0) == 1)
    np.testing.assert_allclose(spent_j[first], whole_j)
    later = on & ~first
    assert later.any()
    assert (spent_j[later] < 0.5 * whole_j).all()
    whole = simulate(tiny_scenario(*SETTINGS[::2], "control.share=0.6", "federation.rounds=6"), dataset=tiny_dataset())
    np.testing.assert_allclose(whole.client_columns["receive_energy_j"].reshape(6, -1)[on], whole_j)


def test_a_run_resumes_with_its_downlink(tmp_path: Path) -> None:
    stopped_after(4, tmp_path, *SETTINGS)
    assert_same(run_to_the_end("qccf", tmp_path, *SETTINGS), run_to_the_end("qccf", None, *SETTINGS))


def test_whole_models_are_the_default_and_codecs_of_models_are_refused() -> None:
    scenario = tiny_scenario()
    assert build_downlink(scenario) is None
    with pytest.raises(ConfigError, match="codes whole models"):
        build_downlink(tiny_scenario("server.downlink=model+entropy"))


def test_a_plan_refuses_it() -> None:
    with pytest.raises(ConfigError, match="nothing is trained here"):
        plan_run(build_world(tiny_scenario(*SETTINGS), 0), "qccf")


def test_flower_refuses_it() -> None:
    from qccf.flower import QccfStrategy

    with pytest.raises(ConfigError, match="Flower sends whole models"):
        QccfStrategy(tiny_scenario(*SETTINGS))


def test_errors_without_a_forecast_follow_the_bound() -> None:
    """c/(2^q - 1)² ≤ 0.1·‖v‖² with c = ‖v‖²: 3 bits, because 1/49 is the first below 0.1 (1/9 is not)."""
    one = downlink(100)
    bounded = one.codec.codec
    rng = np.random.default_rng(5)
    wanted = rng.normal(size=100).astype(np.float32)
    length_sq = float(np.dot(wanted.astype(np.float64), wanted.astype(np.float64)))

    class Bounded(Recorder):
        def forecast(self, vector):
            return replace(bounded.forecast(vector), error_scale=length_sq, errors=None)

    made = replace(one, codec=Bounded(bounded))
    made.broadcast(made.init(), np.zeros(100, dtype=np.float32), wanted)
    assert made.codec.sent[-1][1] == 3


@pytest.mark.parametrize(
    ("errors", "num_bits"), [([9.0, 1.0, 0.5], 2), ([9.0, 1.1, 0.5], 3), ([1.0, 1.0, 1.0], 1), ([9.0, 9.0, 9.0], 3)]
)
def test_an_error_of_exactly_the_limit_is_enough_and_otherwise_the_most_bits_are_used(errors, num_bits: int) -> None:
    """The change (3, 1) has the squared norm 10, of which a tenth may be left out."""
    one = downlink(2)

    class Stated(Recorder):
        def forecast(self, vector):
            return replace(self.codec.forecast(vector), errors=np.array(errors))

    made = replace(one, codec=Stated(one.codec.codec))
    made.broadcast(made.init(), np.zeros(2, dtype=np.float32), np.array([3.0, 1.0], dtype=np.float32))
    assert made.codec.sent[-1][1] == num_bits
