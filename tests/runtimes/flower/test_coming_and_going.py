"""Clients that are lost, late or refused, and servers that are started again."""

import json
import logging
import time

import numpy as np
import pytest
from flwr.app import Error, Message

from qccf.core.contracts import Decision
from qccf.core.errors import AbsentError, QccfError
from qccf.core.files import alone_in
from qccf.flower import FederationError
from qccf.policies.qccf import Qccf
from qccf.runtimes.flower import roster
from qccf.runtimes.flower.server import saved_num_clients
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.own_federation import ROUNDS, answering, federation, first_arrays, is_training


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
    strategy, grid = federation()
    grid.numbers = {node: number for node, number in grid.numbers.items() if number != 3} | {5: 1, 6: 99}
    with caplog.at_level(logging.WARNING, logger="flwr"), pytest.raises(AbsentError, match=r"4 of 5 .* missing: 3"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=0.3)
    assert "it states client number 1, which node" in caplog.text
    assert "it states client number 99, and the 5 clients are numbered from 0" in caplog.text


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
        np.testing.assert_array_equal(second.ledger.tables()["clients"][name], column, err_msg=name)
    assert json.loads((tmp_path / "summary.json").read_text())["rounds"] == ROUNDS
    assert (tmp_path / "rounds.parquet").exists()
    assert (tmp_path / "scenario.toml").exists()


def test_a_resumed_server_needs_only_one_client(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    settings = (lambda _, reply: reply, "policy.name=channel-allocate")
    first, grid = federation(*settings, out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=1, timeout=5)
    second, grid = federation(*settings, out=tmp_path, rates="measured")
    grid.numbers = {node: number for node, number in grid.numbers.items() if number in (0, 4)}
    with caplog.at_level(logging.WARNING, logger="flwr"):
        second.start(grid, first_arrays(), num_rounds=2, timeout=5)
    assert "2 of 5 clients came" in caplog.text
    assert second.ledger.tables()["clients"]["participated"].reshape(2, 5)[1].tolist() == [
        True,
        False,
        False,
        False,
        True,
    ]
    third, grid = federation(*settings, out=tmp_path)
    grid.numbers = {}
    third.start(grid, first_arrays(), num_rounds=2, timeout=5)  # a finished run does not wait for clients


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


def test_a_resumed_run_has_as_many_clients_as_before(tmp_path) -> None:
    """The number does not depend on the nodes that are online by then."""
    assert saved_num_clients(None) == saved_num_clients(tmp_path) == 0
    strategy, grid = federation(out=tmp_path)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert saved_num_clients(tmp_path) == 5
