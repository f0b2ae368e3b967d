"""Clients that are lost, late or refused, and servers that are started again."""

import json
import logging
import shutil
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Error, Message

from qccf.core.contracts import Decision
from qccf.core.errors import AbsentError, QccfError
from qccf.core.files import alone_in
from qccf.flower import FederationError, QccfStrategy, SimulatedRates
from qccf.policies.qccf import Qccf
from qccf.rounds.ledger import MEASURED
from qccf.runtimes.flower import exchange, roster
from qccf.runtimes.flower import strategy as strategy_module
from qccf.runtimes.flower.server import saved_num_clients
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.own_federation import ROUNDS, answering, federation, first_arrays, is_training
from tests.helpers.tiny import tiny_scenario


def test_a_lost_client_is_missed_and_may_come_back() -> None:
    """The node of client 1 does not answer in round 2. It gets a "hello" in round 3 before it works again."""
    gone = []

    def meddle(client, reply):
        lost = client == 1 and reply.metadata.group_id == "train-2"
        gone.append(client) if lost else None
        return None if lost else reply

    strategy, grid = federation(meddle)
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=0.3)
    on = strategy.ledger.tables()["clients"]["participated"].reshape(ROUNDS, 5)[:, 1]
    assert gone == [1]
    assert strategy.ledger.tables()["rounds"]["missed"].tolist() == [0, 1, 0, 0]
    assert on.tolist() == [True, True, True, True]


@pytest.mark.parametrize("stays", [False, True])
def test_a_round_does_not_wait_for_a_node_that_is_gone(stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was killed while it sent its reply held a round up until its time was over."""
    monkeypatch.setattr(exchange, "SILENCE_S", 0.1)

    def meddle(client, reply):
        if client != 1 or reply.metadata.group_id != "train-2":
            return reply
        if not stays:
            del grid.numbers[next(node for node, number in grid.numbers.items() if number == 1)]
        return None

    strategy, grid = federation(meddle)
    began = time.monotonic()
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=2.0 if stays else 600.0)
    assert strategy.ledger.tables()["rounds"]["arrived"].tolist() == [5, 4]
    took_s = time.monotonic() - began
    assert took_s > 2.0 if stays else took_s < 600.0, "a node that is online has all of its time, and another has not"


def test_an_absent_client_is_not_scheduled() -> None:
    strategy, grid = federation()
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    node = next(node for node, number in grid.numbers.items() if number == 2)
    del grid.numbers[node]
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=1)
    grid.numbers[77] = 2
    strategy.start(grid, first_arrays(), num_rounds=3, timeout=1)
    on = strategy.ledger.tables()["clients"]["participated"].reshape(3, 5)
    assert on[:, 2].tolist() == [True, False, True]
    assert on[:, [0, 1, 3, 4]].all()
    assert strategy.roster.nodes[2] == 77


def test_a_node_whose_hello_failed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "AGAIN_S", 0.0)
    failed = []

    def meddle(client, reply):
        if client == 3 and not failed:
            failed.append(client)
            return Message(Error(0, "Error: Node Unavailable"), reply_to=answering(reply))
        return reply

    strategy, grid = federation(meddle)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    assert failed == [3]
    assert sorted(strategy.roster.nodes) == [0, 1, 2, 3, 4]


def test_a_node_that_is_refused_may_take_the_place_of_one_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without a key has another id after a restart, while the old id seems online for a minute."""
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
    """Replies to "hello" take a while."""

    def pull_messages(self, message_ids):
        asked = [message for _, message in self.sent if message.metadata.message_id in message_ids]
        if any(not one.metadata.group_id and time.time() < one.metadata.created_at + 1.5 for one in asked):
            return []
        return super().pull_messages(message_ids)


@pytest.mark.parametrize("kind", [LoopGrid, SlowGrid])
def test_it_gives_up_when_nothing_comes_back(kind) -> None:
    """Clients that did not answer must answer "hello" first, which may take a while; no round passes meanwhile."""
    strategy, grid = federation(lambda _, reply: None if is_training(reply) else reply, patience=2)
    grid.__class__ = kind
    strategy.join_timeout_s = 20.0
    with pytest.raises(FederationError, match="no client sent a usable upload in 2 rounds"):
        strategy.start(grid, first_arrays(), num_rounds=9, timeout=0.3)
    assert len(strategy.ledger) == 2


class Idle(Qccf):
    """Schedules no client."""

    def decide(self, state, observation, rng):
        nobody = np.zeros(len(observation.rates_bps))
        return Decision(nobody.astype(int) - 1, nobody.astype(int), nobody)


def test_rounds_in_which_nobody_was_to_train_are_no_reason_to_give_up() -> None:
    settings = "policy.name=tests.runtimes.flower.test_coming_and_going:Idle"
    strategy, grid = federation(lambda _, reply: reply, settings, patience=1)
    strategy.start(grid, first_arrays(), num_rounds=3, timeout=0.3)
    assert strategy.ledger.tables()["rounds"]["participants"].tolist() == [0, 0, 0]


def test_without_clients_it_waits_and_then_fails(tmp_path) -> None:
    strategy, grid = federation(out=tmp_path)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    grid.numbers = {}
    with pytest.raises(AbsentError, match="0 of 5 clients came"):
        strategy.start(grid, first_arrays(), num_rounds=9, timeout=1)
    assert len(strategy.ledger) == 1, "no round passes without a client"


def test_the_error_names_missing_clients(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = federation(least_clients=5)
    grid.numbers = {node: number for node, number in grid.numbers.items() if number != 3} | {5: 1, 6: 99}
    with caplog.at_level(logging.WARNING, logger="flwr"), pytest.raises(AbsentError, match=r"4 of 5 .* missing: 3.*At"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
    assert "it states client number 1, which node" in caplog.text
    assert "it states client number 99, and the 5 clients are numbered from 0" in caplog.text


def test_a_federation_starts_without_a_client_and_takes_it_in_when_it_comes(tmp_path, caplog) -> None:
    """Two nodes state number 1 and none states 3, so that all five numbers would never be there."""
    strategy, grid = federation(out=tmp_path)
    grid.numbers = {node: number for node, number in grid.numbers.items() if number != 3} | {2005: 1}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=2, timeout=1)
    assert caplog.text.count("4 of 5 clients came within 0.5 s; missing: 3") == 1, "it is waited for once"
    assert "clients 3 start with the median of the others" in caplog.text
    assert caplog.text.count("node 2005 gets no work: it states client number 1") == 1, "said once"
    grid.numbers[6] = 3
    again, _ = federation(out=tmp_path)
    again.start(grid, first_arrays(), num_rounds=4, timeout=1)
    on = again.ledger.tables()["clients"]["participated"].reshape(4, 5)
    assert on[:, [0, 1, 2, 4]].all()
    assert on[:, 3].tolist() == [False, False, True, True]
    sizes = again.ledger.tables()["clients"]["dataset_size"].reshape(4, 5)
    assert (sizes == 60).all()


def test_a_second_node_gets_a_number_whose_node_does_not_answer(monkeypatch, caplog) -> None:
    """Both nodes of client 2 are online, and the one that has the number does not answer the probe."""
    monkeypatch.setattr(roster, "AGAIN_S", 0.0)
    silent = []

    def meddle(client, reply):
        first = client == 2 and reply.metadata.src_node_id == silent[0]
        return None if first and reply.metadata.group_id else reply

    strategy, grid = federation(meddle)
    silent.append(next(node for node, number in grid.numbers.items() if number == 2))
    grid.numbers[2077] = 2
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=4, timeout=0.5)
    assert strategy.roster.nodes[2] == 2077
    assert strategy.ledger.tables()["clients"]["arrived"].reshape(4, 5)[-1].all()


def test_a_client_that_did_not_answer_the_probe_is_greeted_again() -> None:
    strategy, grid = federation(
        lambda client, reply: None if client == 2 and reply.metadata.group_id == "probe-1" else reply
    )
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
    greeted = [client for client, message in grid.sent if not message.metadata.group_id]
    assert sorted(greeted) == [0, 1, 2, 2, 3, 4]


@pytest.mark.parametrize(("least", "present", "starts"), [(0, 3, True), (0, 2, False), (2, 2, True), (1, 1, True)])
def test_half_of_the_clients_are_enough_unless_another_number_is_stated(least, present, starts) -> None:
    strategy, grid = federation(least_clients=least)
    grid.numbers = {node: number for node, number in grid.numbers.items() if number < present}
    with nullcontext() if starts else pytest.raises(AbsentError, match="At least 3 must be there"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
    assert len(strategy.ledger) == starts


@pytest.mark.parametrize(("count", "least"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 3), (6, 3), (7, 4), (8, 4), (9, 5)])
def test_a_run_begins_with_half_of_the_clients_and_three_that_can_tell_who_lies(count: int, least: int) -> None:
    assert QccfStrategy(tiny_scenario(f"federation.num_clients={count}")).least_clients == least


@pytest.mark.parametrize("fails", [False, True])
def test_the_roster_is_closed_in_any_case(fails: bool) -> None:
    strategy, grid = federation(lambda _, reply: None if fails and is_training(reply) else reply, patience=1)
    closed = []
    strategy.roster.close = lambda: closed.append(True)
    with pytest.raises(FederationError) if fails else nullcontext():
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.1)
    assert closed == [True]


def test_an_empty_round_says_why(caplog: pytest.LogCaptureFixture) -> None:
    settings = "policy.name=tests.runtimes.flower.test_coming_and_going:Idle"
    strategy, grid = federation(lambda _, reply: reply, settings)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
    assert "nobody trains in round 1: policy" in caplog.text
    assert "schedules nobody, although clients 0, 1, 2, 3, 4 could upload" in caplog.text
    weak = SimpleNamespace(rates_bps=lambda _: np.full((5, 5), 1.0), state=dict)
    strategy, grid = federation(rates=lambda _: weak)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
    assert "none of the clients that are online (0, 1, 2, 3, 4) can upload within the deadline" in caplog.text


class GoneLink(LoopGrid):
    """From a moment on the SuperLink refuses or does not answer, as after a kill and a restart."""

    gone = ""

    def get_node_ids(self):
        if self.gone == "silent":
            threading.Event().wait()
        if self.gone == "refuses":
            raise PermissionError("unknown token")
        return super().get_node_ids()

    def pull_messages(self, message_ids):
        self.get_node_ids()
        return super().pull_messages(message_ids)


@pytest.mark.parametrize(("how", "reason"), [("silent", "has not answered for 0.2 s"), ("refuses", "unknown token")])
def test_a_server_whose_link_is_gone_releases_its_folder(how, reason, tmp_path, monkeypatch) -> None:
    """A new server waits for the folder and takes over from the checkpoint; the orphan would wait for an hour."""
    monkeypatch.setattr(exchange, "LINK_S", 0.2)
    monkeypatch.setattr(exchange, "SILENCE_S", 0.1)
    killed = threading.Event()

    def meddle(_, reply):
        if reply.metadata.group_id == "train-2":
            orphans.gone = how
            killed.set()
        return reply

    orphan, orphans = federation(meddle, out=tmp_path)
    orphans.__class__ = GoneLink
    errors = []

    def run() -> None:
        try:
            orphan.start(orphans, first_arrays(), num_rounds=ROUNDS, timeout=3600)
        except FederationError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert killed.wait(60.0)
    new, grid = federation(out=tmp_path)
    new.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    thread.join(10.0)
    assert errors
    assert reason in errors[0]
    assert len(new.ledger) == ROUNDS


class SlowLink(LoopGrid):
    """A SuperLink that takes messages only after it was asked whether it is there."""

    asked = 0

    def get_node_ids(self):
        self.asked += 1
        return super().get_node_ids()

    def push_messages(self, messages):
        before = self.asked
        while self.asked == before:
            time.sleep(0.01)
        return super().push_messages(messages)


def test_a_busy_link_that_takes_messages_slowly_is_waited_for(monkeypatch) -> None:
    """Thirty messages took longer than a short request may, and the federation ended."""
    monkeypatch.setattr(exchange, "LINK_S", 0.5)
    strategy, grid = federation()
    grid.__class__ = SlowLink
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=5)
    assert strategy.ledger.tables()["rounds"]["arrived"].tolist() == [5, 5]


def test_a_link_that_goes_while_messages_are_sent_ends_the_server(monkeypatch) -> None:
    monkeypatch.setattr(exchange, "LINK_S", 0.5)
    strategy, grid = federation()
    grid.__class__ = GoneLink

    def push_messages(_):
        grid.gone = "silent"
        threading.Event().wait()

    grid.push_messages = push_messages
    with pytest.raises(FederationError, match=r"has not answered for 0\.5 s"):
        strategy.start(grid, first_arrays(), num_rounds=2, timeout=5)


def test_a_server_that_is_started_again_resumes(tmp_path) -> None:
    whole, grid = federation()
    whole.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    first, grid = federation(out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=2, timeout=5)
    second, grid = federation(out=tmp_path)
    grid.numbers = {node + 1: number for node, number in grid.numbers.items()}
    second.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert not [message for _, message in grid.sent if message.metadata.group_id.startswith("probe")]
    np.testing.assert_array_equal(second.weights, whole.weights)
    for name, column in whole.ledger.tables()["clients"].items():
        if name not in MEASURED:  # the clock's own
            np.testing.assert_array_equal(second.ledger.tables()["clients"][name], column, err_msg=name)
    assert json.loads((tmp_path / "summary.json").read_text())["rounds"] == ROUNDS
    assert (tmp_path / "rounds.parquet").exists()
    assert (tmp_path / "scenario.toml").exists()


def test_a_server_that_is_started_again_knows_the_rates_so_far(tmp_path) -> None:
    restored = []

    class Kept(SimulatedRates):
        def state(self):
            return {"uploads": 5}

        def restore(self, state):
            restored.append(state)

    for _ in range(2):
        strategy, grid = federation(out=tmp_path, rates=Kept)
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert restored == [{"uploads": 5}]


def test_a_folder_whose_checkpoints_are_gone_is_refused_and_left_as_it_is(tmp_path) -> None:
    first, grid = federation(out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=2, timeout=5)
    shutil.rmtree(tmp_path / "checkpoints")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    second, grid = federation(out=tmp_path)
    with pytest.raises(FederationError, match=r"cannot be resumed \(its checkpoints are gone\).*another folder"):
        second.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_server_removes_what_a_killed_one_had_half_written(tmp_path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".part-round-000001-x.npz").write_text("half")
    strategy, grid = federation(out=tmp_path)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["round-000001.npz"]


def test_the_settings_of_a_run_are_in_its_folder_while_it_runs(tmp_path) -> None:
    there = []

    def meddle(_, reply):
        if is_training(reply):
            there.append((tmp_path / "scenario.toml").exists())
        return reply

    strategy, grid = federation(meddle, out=tmp_path)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert there == [True] * 5


def test_a_resumed_server_needs_only_one_client(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    settings = (lambda _, reply: reply, "policy.name=channel-allocate")
    first, grid = federation(*settings, out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=1, timeout=5)
    second, grid = federation(*settings, out=tmp_path, rates="measured")
    grid.numbers = {node: number for node, number in grid.numbers.items() if number in (0, 4)}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        second.start(grid, first_arrays(), num_rounds=3, timeout=5)
    assert caplog.text.count("2 of 5 clients came") == 1, "the others are waited for once"
    assert second.ledger.tables()["clients"]["participated"].reshape(3, 5)[1].tolist() == [
        True,
        False,
        False,
        False,
        True,
    ]
    third, grid = federation(*settings, out=tmp_path)
    grid.numbers = {}
    third.start(grid, first_arrays(), num_rounds=3, timeout=5)  # a finished run does not wait for clients


def test_a_folder_of_another_run_is_left_alone(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, grid = federation(out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=1, timeout=5)
    there = sorted(tmp_path.rglob("*.npz"))
    other, grid = federation(lambda _, reply: reply, "control.energy_weight=7", out=tmp_path)
    with pytest.raises(FederationError, match=r"cannot be resumed \(.* belongs to another"):
        other.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert sorted(tmp_path.rglob("*.npz")) == there
    monkeypatch.setattr(strategy_module, "ORPHAN_S", 0.1)
    with alone_in(tmp_path), pytest.raises(QccfError, match="another process works in"):
        first.start(grid, first_arrays(), num_rounds=2, timeout=5)


def test_a_resumed_run_has_as_many_clients_as_before(tmp_path) -> None:
    """The number does not depend on the nodes that are online by then."""
    assert saved_num_clients(None) == saved_num_clients(tmp_path) == 0
    strategy, grid = federation(out=tmp_path)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert saved_num_clients(tmp_path) == 5
