"""What training takes on a node: seconds, joules, and a CPU frequency that is set back."""

import logging
import math
import threading
import time

import numpy as np
import pytest

from qccf.devices.meters.protocol import CheckedMeter
from qccf.runtimes.flower import machine
from qccf.runtimes.flower.machine import measured
from tests.helpers import made_sysfs
from tests.helpers.made_sysfs import add_cpufreq, add_package, write
from tests.helpers.own_federation import ROUNDS, federation, first_arrays


def limits(group) -> list[str]:
    return [(group / name).read_text().strip() for name in ("scaling_min_freq", "scaling_max_freq")]


def test_seconds_and_joules_of_a_block(tmp_path) -> None:
    zone = add_package(tmp_path, 0, energy_uj=1_000_000)
    with measured({}, 0.0, tmp_path) as taken:
        time.sleep(0.05)
        write(zone / "energy_uj", 3_500_000)
    assert taken.joules == pytest.approx(2.5)
    assert 0.05 <= taken.seconds < 5.0


def test_a_counter_that_starts_again_twice_is_followed(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: from 0 to 900 000, over the end to 100 000, to 900 000 and over the end to 0: 2.000002 J."""
    reads, read = threading.Semaphore(0), CheckedMeter.energy_j

    def counted(meter: CheckedMeter) -> float:
        joules = read(meter)
        reads.release()
        return joules

    def wait_for_reads(count: int) -> None:
        while reads.acquire(blocking=False):
            pass
        for _ in range(count):  # the first may have begun before
            reads.acquire()

    monkeypatch.setattr(CheckedMeter, "energy_j", counted)
    zone = add_package(tmp_path, 0, energy_uj=0, range_uj=1_000_000)
    with measured({}, 0.0, tmp_path) as taken:
        for count in (900_000, 100_000, 900_000, 0):
            write(zone / "energy_uj", count)
            wait_for_reads(2)
    assert taken.joules == pytest.approx(2.000002)


@pytest.mark.parametrize("config", [{"meter": "none"}, {"meter": "battery"}])
def test_without_a_meter_joules_are_unknown(tmp_path, config) -> None:
    add_package(tmp_path, 0, energy_uj=0)
    with measured(config, 0.0, tmp_path) as taken:
        pass
    assert math.isnan(taken.joules)
    assert taken.seconds >= 0.0


def test_a_meter_that_stalls_or_fails_is_no_joules(tmp_path) -> None:
    zone = add_package(tmp_path, 0, energy_uj=0)
    with measured({}, 0.0, tmp_path) as stalled:
        pass
    with measured({}, 0.0, tmp_path) as failed:
        write(zone / "energy_uj", "nothing")
        time.sleep(0.3)
    assert math.isnan(stalled.joules)
    assert math.isnan(failed.joules)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nosuch:Thing", "meter 'nosuch:Thing' cannot be loaded: there is no module nosuch"),
        ("tests.helpers.made_sysfs:Thing", "has no Thing"),
        ("powercup", "meter 'powercup' is not one of powercap, battery (did you mean 'powercap'?)"),
        ("tests.helpers.made_sysfs:AbsentMeter", "meter 'tests.helpers.made_sysfs:AbsentMeter': OSError: no such port"),
    ],
)
def test_a_meter_that_cannot_be_opened_is_a_warning(tmp_path, caplog, name: str, reason: str) -> None:
    with caplog.at_level(logging.WARNING, logger="flwr"), measured({"meter": name}, 0.0, tmp_path) as taken:
        pass
    assert "the energy is not measured" in caplog.text
    assert reason in caplog.text
    assert math.isnan(taken.joules)
    assert taken.seconds >= 0.0


def test_a_users_meter_that_fails_on_the_way_tells_no_joules(tmp_path, monkeypatch) -> None:
    """It is read when it is opened, at the start and once more; the joules until then are not those of all training."""
    monkeypatch.setattr(machine, "READ_EVERY_S", 0.01)
    failed = threading.Event()
    monkeypatch.setattr(machine, "log", lambda level, *_: failed.set() if level == logging.WARNING else None)
    with measured({"meter": "tests.helpers.made_sysfs:UnpluggedMeter"}, 0.0, tmp_path) as taken:
        assert failed.wait(60.0)
    assert math.isnan(taken.joules)


def test_the_last_reading_counts(tmp_path, monkeypatch) -> None:
    """The same meter fails at the reading after the block."""
    monkeypatch.setattr(machine, "READ_EVERY_S", 3600.0)
    monkeypatch.setattr(made_sysfs.UnpluggedMeter, "__init__", lambda self: setattr(self, "reads", 1))
    with measured({"meter": "tests.helpers.made_sysfs:UnpluggedMeter"}, 0.0, tmp_path) as taken:
        pass
    assert math.isnan(taken.joules)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_frequency_is_set_only_where_the_node_allows_it_and_set_back(tmp_path, allowed: bool) -> None:
    group = add_cpufreq(tmp_path)
    before = limits(group)

    def fails() -> None:
        with measured({"set-frequency": allowed}, 1e9, tmp_path):
            assert limits(group) == (["1000000", "1000000"] if allowed else before)
            raise RuntimeError("training fails")

    with pytest.raises(RuntimeError, match="training fails"):
        fails()
    assert limits(group) == before


def test_training_goes_on_where_no_frequency_can_be_set(tmp_path) -> None:
    with measured({"set-frequency": True}, 1e9, tmp_path) as taken:
        pass
    assert math.isfinite(taken.seconds)


def test_the_ledger_has_what_clients_measured() -> None:
    strategy, grid = federation()
    run = strategy.start(grid, first_arrays(), num_rounds=ROUNDS)
    assert run is not None
    clients = strategy.ledger.tables()["clients"]
    on = clients["participated"]
    assert len(on) == ROUNDS * 5
    assert (clients["measured_s"][on] > 0.0).all()
    assert np.isnan(clients["measured_s"][~on]).all()
    assert np.isnan(clients["measured_j"]).all() or (clients["measured_j"][on] > 0.0).any()
