"""Nodes that state their device: the server decides with its constants, and checks what it is told."""

import json
import logging
import math

import numpy as np
import pandas as pd
import pytest
import tomli_w
from flwr.app import ConfigRecord

from qccf.core.errors import ConfigError
from qccf.devices.profiles.registry import find_profile
from qccf.flower import QccfStrategy
from qccf.rounds.ledger import MEASURED
from qccf.rounds.run_folder import read_run
from qccf.runtimes.flower import roster
from qccf.runtimes.flower.devices import batteries_after
from qccf.runtimes.flower.messages import PROFILE, profile_record
from qccf.settings.loading import load_scenario, run_digest
from tests.helpers.loop_grid import LoopGrid
from tests.helpers.own_federation import ROUNDS, first_arrays, own_app
from tests.helpers.tiny import tiny_scenario

FLOPS = 7.6e6
SETTINGS = ("device.deadline_s=2", f"learning.flops_per_sample={FLOPS}")
BOARD, PHONE = "raspberry-pi-4", "pixel-2"


def federation(profiles, *settings, meddle=lambda _, reply: reply, **options):
    """Five clients; `profiles` is what the node config of some of them names."""
    configs = {client: {"profile": name} for client, name in profiles.items()}
    grid = LoopGrid(own_app(), range(5), meddle=meddle, node_configs=configs)
    return QccfStrategy(tiny_scenario(*SETTINGS, *settings), join_timeout_s=0.5, **options), grid


def column(strategy, name, rounds=ROUNDS):
    return strategy.ledger.tables()["clients"][name].reshape(rounds, 5)


def changed_profile(change):
    """What node 1 states instead."""

    def meddle(client, reply):
        if client == 1 and PROFILE in reply.content:
            stated = change(dict(reply.content[PROFILE]))
            reply.content[PROFILE] = ConfigRecord(stated)
        return reply

    return meddle


def test_each_client_has_the_constants_of_its_own_device() -> None:
    """By hand: cycles are the operations over those per cycle, in two epochs of 60 samples."""
    strategy, grid = federation({1: BOARD, 3: PHONE})
    strategy.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    assert column(strategy, "device").tolist() == [["paper", BOARD, "paper", PHONE, "paper"]] * ROUNDS
    board, phone = find_profile(BOARD), find_profile(PHONE)
    hertz, spent_j = column(strategy, "frequency_hz"), column(strategy, "compute_energy_j")
    assert column(strategy, "arrived").all()
    cycles = 2 * 60 * FLOPS / board.flops_per_cycle
    np.testing.assert_allclose(spent_j[:, 1], board.energy_coefficient * cycles * hertz[:, 1] ** 2)
    cycles = 2 * 60 * FLOPS / phone.flops_per_cycle
    powers_w = np.array([dict(phone.steps)[one] for one in hertz[:, 3]])
    np.testing.assert_allclose(spent_j[:, 3], powers_w * cycles / hertz[:, 3])
    np.testing.assert_allclose(spent_j[:, 0], 1e-26 * 2 * 60 * 2e4 * hertz[:, 0] ** 2)
    sent_s = column(strategy, "payload_bits") / column(strategy, "rate_bps")
    power_w = board.transmit_power_w + board.circuit_power_w
    np.testing.assert_allclose(column(strategy, "upload_energy_j")[:, 1], power_w * sent_s[:, 1])


def test_decisions_are_those_of_a_table_of_the_same_devices(tmp_path) -> None:
    table = tmp_path / "clients.csv"
    table.write_text(f"profile\npaper\n{BOARD}\npaper\n{PHONE}\nlaptop\n")
    stated, grid = federation({1: BOARD, 3: PHONE, 4: "laptop"})
    stated.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    listed, grid = federation({}, f"devices.table={table}")
    listed.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    for name, values in listed.ledger.tables()["clients"].items():
        if name not in MEASURED:
            np.testing.assert_array_equal(stated.ledger.tables()["clients"][name], values, err_msg=name)


def test_without_the_key_nothing_changes(tmp_path) -> None:
    strategy, grid = federation({}, out=tmp_path)
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert "device" not in strategy.ledger.tables()["clients"]
    assert "nodes" not in (tmp_path / "scenario.toml").read_text()
    plain = load_scenario("femnist")
    assert "nodes" not in plain.model_dump()["devices"]
    assert run_digest(plain) == run_digest(plain.replaced(devices={"nodes": {}}))


def test_a_profile_of_the_nodes_own_is_a_file_on_the_node(tmp_path) -> None:
    tree = find_profile(BOARD).to_dict() | {"flops_per_cycle": 3.25}
    (tmp_path / "my gateway.toml").write_text(tomli_w.dumps(tree))
    strategy, grid = federation({2: str(tmp_path / "my gateway.toml")})
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert column(strategy, "device", 1)[0, 2] == "my gateway"
    spent_j, hertz = column(strategy, "compute_energy_j", 1)[0, 2], column(strategy, "frequency_hz", 1)[0, 2]
    assert spent_j == pytest.approx(find_profile(BOARD).energy_coefficient * 2 * 60 * FLOPS / 3.25 * hertz**2)


def test_a_profile_that_a_node_cannot_read_is_a_warning_on_both_sides(caplog) -> None:
    strategy, grid = federation({1: "rasberry-pi-4", 2: "/none/x.toml"})
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert "this node's device is not stated: profile 'rasberry-pi-4' is not one of" in caplog.text
    assert "the device that client 1 states is not used, but that of the settings: profile 'rasb" in caplog.text
    assert "client 2 states is not used, but that of the settings: profile '/none/x.toml' cannot be read" in caplog.text
    assert column(strategy, "arrived", 1).all()
    assert "device" not in strategy.ledger.tables()["clients"]


HOSTILE = {
    "power": (lambda stated: stated | {"transmit_power_w": 1e9}, "transmit_power_w = 1e+09 is out of range"),
    "frequency": (lambda stated: stated | {"frequency_max_hz": 0.0}, "frequency_max_hz = 0 is out of range"),
    "kilowatts": (lambda stated: stated | {"energy_coefficient": 1e-20}, "above 1000 W"),
    "not a number": (lambda stated: stated | {"flops_per_cycle": math.nan}, "flops_per_cycle = nan is not a number"),
    "text": (lambda stated: stated | {"flops_per_cycle": "x" * 10_000}, "flops_per_cycle = 'xxx"),
    "bytes": (lambda stated: stated | {"idle_power_w": b"\x1b[31m"}, "is not a number"),
    "list": (lambda stated: stated | {"battery_j": [1.0, 2.0]}, "is not a number"),
    "truth": (lambda stated: stated | {"cycles_per_sample": True}, "is not a number"),
    "cycles": (lambda stated: stated | {"cycles_per_sample": "automatic"}, "is not a number"),
    "empty": (lambda _: {}, "name is not 1 to 64 letters"),
    "no figures": (lambda _: {"name": "x"}, "is missing"),
    "name": (lambda stated: stated | {"name": "<b>\n\x1b[31m"}, "name is not 1 to 64 letters"),
    "long name": (lambda stated: stated | {"name": "x" * 65}, "name is not 1 to 64 letters"),
    "number as name": (lambda stated: stated | {"name": 7}, "name is not 1 to 64 letters"),
    "unknown": (lambda stated: stated | {"y" * 5000: 1.0}, "is not a figure of a profile"),
    "title": (lambda stated: stated | {"title": "x"}, "'title' is not a figure of a profile"),
    "contradiction": (lambda stated: stated | {"steps": [1e9, 1.0]}, "contradicts steps"),
    "odd steps": (lambda stated: stated | {"steps": [1e9, 1.0, 2e9]}, "steps is not a list of pairs"),
    "steps": (lambda stated: stated | {"steps": "fast"}, "steps is not a list of pairs"),
    "many steps": (lambda stated: stated | {"steps": [1e9] * 100_000}, "steps has 50000 entries"),
    "words": (lambda stated: stated | {"steps": ["a", "b"]}, "steps[0] has 'a'"),
    "problem": (lambda _: {"problem": "none\n\x1b[31mred" + "x" * 10_000}, "?[31mredxx"),
    "odd problem": (lambda _: {"problem": [1, 2]}, "[1, 2]"),
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_a_statement_that_no_profile_may_hold_is_refused_and_the_client_goes_on(kind, caplog) -> None:
    change, reason = HOSTILE[kind]
    strategy, grid = federation({1: BOARD, 2: PHONE}, meddle=changed_profile(change))
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    said = [
        record.getMessage() for record in caplog.records if "the device that client 1 states" in record.getMessage()
    ]
    assert len(said) == 1
    assert reason in said[0]
    assert len(said[0]) < 400
    assert said[0].isprintable()
    assert column(strategy, "device", 1)[0].tolist() == ["paper", "paper", PHONE, "paper", "paper"]
    assert column(strategy, "arrived", 1).all()


def test_operations_that_nobody_knows_are_asked_for_and_the_settings_device_is_used(caplog) -> None:
    """Tiny is counted for a dataset of the package only."""
    strategy, grid = federation({1: BOARD}, "learning.flops_per_sample=0", "data.dataset=own:data")
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert "client 1 states is not used" in caplog.text
    assert "set learning.flops_per_sample" in caplog.text
    assert column(strategy, "arrived", 1).all()


def test_steps_are_refused_where_the_controller_needs_a_range(caplog) -> None:
    form = ("control.form=paper", "control.inner=closed-form")
    strategy, grid = federation({1: PHONE, 2: BOARD}, *form)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(grid, first_arrays(), num_rounds=1, timeout=5)
    assert "client 1 states is not used, but that of the settings: it has steps of frequency, and control.inner" in (
        caplog.text
    )
    assert column(strategy, "device", 1)[0].tolist() == ["paper", "paper", BOARD, "paper", "paper"]


def test_a_node_that_takes_the_place_of_another_brings_its_own_device(monkeypatch, tmp_path) -> None:
    """Client 2 is a board, then a phone, then a node that states nothing; client 4 states a device when it comes."""
    monkeypatch.setattr(roster, "AGAIN_S", 0.0)
    strategy, grid = federation({2: BOARD, 4: "laptop"}, out=tmp_path)
    nodes = {number: node for node, number in grid.numbers.items()}
    del grid.numbers[nodes[4]]
    strategy.start(grid, first_arrays(), num_rounds=1, timeout=1)
    for node, config in ((77, {"profile": PHONE}), (78, {})):
        grid.numbers = {one: number for one, number in grid.numbers.items() if number != 2} | {node: 2, 79: 4}
        grid.node_configs[2] = config
        strategy.start(grid, first_arrays(), num_rounds=len(strategy.ledger) + 1, timeout=1)
    names = column(strategy, "device", 3)
    assert names[:, 2].tolist() == [BOARD, PHONE, "paper"]
    assert names[:, 4].tolist() == ["paper", "laptop", "laptop"]
    assert names[:, 0].tolist() == ["paper"] * 3
    run = read_run(tmp_path)
    assert sorted(run.scenario.devices.nodes) == ["4"]
    assert run.summary["devices"] == "profile paper and the profiles stated by 1 node"
    assert run.summary["floor_j"] <= run.summary["energy_j"]


def test_a_device_that_is_first_stated_later_has_its_column_from_the_beginning(tmp_path) -> None:
    """Also that of batteries: infinite before."""
    strategy, grid = federation({4: BOARD}, "devices.charge=0.5", out=tmp_path)
    nodes = {number: node for node, number in grid.numbers.items()}
    del grid.numbers[nodes[4]]
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=1)
    assert "device" not in strategy.ledger.tables()["clients"]
    grid.numbers[6] = 4
    grid.meddle = lambda client, reply: with_battery(reply) if client == 4 else reply
    strategy.start(grid, first_arrays(), num_rounds=4, timeout=1)
    assert column(strategy, "device").tolist() == [["paper"] * 5] * 2 + [["paper"] * 4 + [BOARD]] * 2
    left_j, spent_j = column(strategy, "battery_j"), column(strategy, "compute_energy_j")
    spent_j = spent_j + column(strategy, "upload_energy_j")
    assert np.isinf(left_j[:2]).all()
    assert np.isinf(left_j[2:, :4]).all()
    np.testing.assert_allclose(left_j[2:, 4], 50.0 - np.cumsum(spent_j[2:, 4]))
    table = pd.read_parquet(tmp_path / "clients.parquet")
    assert table["device"].tolist() == column(strategy, "device").ravel().tolist()


def with_battery(reply):
    if PROFILE in reply.content:
        reply.content[PROFILE] = ConfigRecord({**reply.content[PROFILE], "battery_j": 100.0})
    return reply


def test_a_new_device_begins_with_its_first_charge() -> None:
    assert batteries_after(None, None, [1], 3) == (None, None)
    full_j, left_j = batteries_after(np.array([5.0, np.inf, 7.0]), None, [0], 3)
    assert full_j.tolist() == [5.0, np.inf, 7.0]
    assert left_j.tolist() == [5.0, np.inf, np.inf]
    full_j, left_j = batteries_after(np.array([5.0, 6.0, 7.0]), np.array([1.0, 2.0, 0.0]), [1], 3)
    assert left_j.tolist() == [1.0, 6.0, 0.0]
    full_j, left_j = batteries_after(None, np.array([1.0, np.inf]), [0], 2)
    assert full_j.tolist() == left_j.tolist() == [np.inf, np.inf]


def test_a_server_that_is_started_again_knows_the_devices(tmp_path) -> None:
    """The result equals that without the interruption, also while the node of a board with a battery is away."""

    def batteries(client, reply):
        return with_battery(reply) if client == 1 else reply

    settings = ({1: BOARD, 3: PHONE}, "codec.name=update+entropy")
    whole, grid = federation(*settings, meddle=batteries)
    whole.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    first, grid = federation(*settings, meddle=batteries, out=tmp_path)
    first.start(grid, first_arrays(), num_rounds=2, timeout=5)
    second, grid = federation(*settings, meddle=batteries, out=tmp_path)
    grid.numbers = {node + 1: number for node, number in grid.numbers.items()}
    second.start(grid, first_arrays(), num_rounds=ROUNDS, timeout=5)
    for name, values in whole.ledger.tables()["clients"].items():
        if name not in MEASURED:
            np.testing.assert_array_equal(second.ledger.tables()["clients"][name], values, err_msg=name)
    third, grid = federation(*settings, meddle=batteries, out=tmp_path)
    grid.numbers = {node: number for node, number in grid.numbers.items() if number != 1}
    third.start(grid, first_arrays(), num_rounds=ROUNDS + 1, timeout=1)
    assert column(third, "device", ROUNDS + 1)[-1].tolist() == ["paper", BOARD, "paper", PHONE, "paper"]
    left_j = column(third, "battery_j", ROUNDS + 1)[:, 1]
    assert left_j[-1] == left_j[-2] < 100.0
    assert json.loads((tmp_path / "summary.json").read_text())["devices"].endswith("the profiles stated by 2 nodes")


def test_measured_rates_survive_a_change_of_device() -> None:
    weaker = changed_profile(lambda stated: stated | {"transmit_power_w": 0.05})
    strategy, grid = federation({}, rates="measured", meddle=weaker)
    strategy.start(grid, first_arrays(), num_rounds=2, timeout=5)
    before = strategy._rates.state()
    nodes = {number: node for node, number in grid.numbers.items()}
    grid.numbers = {node: number for node, number in grid.numbers.items() if number != 1} | {77: 1}
    assert nodes[1] != 77
    grid.node_configs[1] = {"profile": BOARD}
    strategy.roster.refresh(grid)
    strategy._take_devices()
    assert strategy._rates.state() == before
    assert strategy._rules.device_names[1] == BOARD
    assert strategy._cell.radio.transmit_power_w.tolist() == [0.2, 0.05, 0.2, 0.2, 0.2]


@pytest.mark.parametrize("name", ["paper", BOARD, PHONE, "laptop", "jetson-nano"])
def test_what_a_node_states_is_its_profile(name) -> None:
    record, profile = profile_record(name), find_profile(name)
    stated = dict(record)
    assert stated.pop("name") == name
    steps = stated.pop("steps", [])
    assert [tuple(steps[k : k + 2]) for k in range(0, len(steps), 2)] == list(profile.steps)
    for key, value in stated.items():
        assert value == getattr(profile, key)
    assert ("battery_j" in stated) == math.isfinite(profile.battery_j)


def test_settings_hold_what_nodes_state() -> None:
    board = load_scenario("femnist", {"devices.nodes": {"3": {"name": "x", **STATED}}, "device.deadline_s": 60.0})
    names = board.fleet().names
    assert names[3] == "x"
    assert set(names[:3] + names[4:]) == {"paper"}
    again = load_scenario(board, {"devices.profile": "laptop"})
    assert set(again.fleet().names) == {"laptop"}, "another profile for all takes their place"


STATED = {
    "cycles_per_sample": "auto", "flops_per_cycle": 7.0, "energy_coefficient": 1e-27, "frequency_min_hz": 6e8,
    "frequency_max_hz": 1.5e9, "transmit_power_w": 0.2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"three": {"name": "x", **STATED}}, "not the number of a client"),
        ({"3": {"name": "x"}}, r"nodes\.3: .* is missing"),
        ({"10": {"name": "x", **STATED}}, "names client 10, but there are clients 0 to 9"),
    ],
)
def test_wrong_statements_in_settings_are_refused(nodes, words) -> None:
    with pytest.raises(ConfigError, match=words):
        load_scenario("femnist", {"devices.nodes": nodes})
