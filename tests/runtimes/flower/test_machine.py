"""What training takes on a node: seconds, joules, and a CPU frequency that is set back."""

import math
import threading
import time

import numpy as np
import pytest

from qccf.devices.meters.protocol import CheckedMeter
from qccf.runtimes.flower.machine import measured
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
