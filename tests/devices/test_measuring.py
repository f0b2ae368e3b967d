"""CPU frequencies and trials against a made-up machine whose clock runs with its work."""

import itertools
import math
import tomllib
from dataclasses import replace

import pytest
import tomli_w

from qccf.core.errors import ConfigError, FrequencyError, MeterError
from qccf.devices import cpufreq as module
from qccf.devices.cpufreq import Cpufreq, stated_hz
from qccf.devices.measured_profile import profile_of
from qccf.devices.measuring import (
    Machine,
    Measurement,
    Trial,
    _added_power_w,
    _idle_power_w,
    _joined,
    measure,
    this_machine,
)
from qccf.devices.meters.protocol import CheckedMeter
from qccf.devices.profile import profile_from_dict
from tests.helpers.made_sysfs import add_cpufreq, write

SAMPLES = 10
CYCLES = 3e7  # per sample
IDLE_W = 2.0
ALPHA = 1e-27


class MadeMachine:
    """Work takes 3e7 cycles per sample; power is 2 W at rest and 1e-27·f³ more at work."""

    def __init__(self, root, *, obeys: bool = True) -> None:
        self.root, self.now_s, self.joules, self.obeys = root, 0.0, 0.0, obeys

    def frequency_hz(self) -> float:
        return 1e3 * int((self.group() / "scaling_max_freq").read_text())

    def group(self):
        return self.root / "devices" / "system" / "cpu" / "cpufreq" / "policy0"

    def work(self) -> int:
        if self.obeys:
            write(self.group() / "scaling_cur_freq", int(self.frequency_hz() / 1e3))
        seconds = SAMPLES * CYCLES / self.frequency_hz()
        self.now_s += seconds
        self.joules += (IDLE_W + ALPHA * self.frequency_hz() ** 3) * seconds
        return SAMPLES

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.joules += IDLE_W * seconds

    def energy_j(self) -> float:
        return self.joules

    def machine(self, meter=None, stated_hz: float | None = None) -> Machine:
        return Machine(
            CheckedMeter("made", meter or self),
            Cpufreq(self.root),
            stated_hz,
            clock=lambda: self.now_s,
            cpu_clock=lambda: 2.0 * self.now_s,
            sleep=self.sleep,
        )


def quiet(*_: object) -> None:
    pass


def held(group) -> list[str]:
    return [(group / name).read_text().strip() for name in ("scaling_min_freq", "scaling_max_freq", "scaling_setspeed")]


def test_each_frequency_is_measured_and_set_back(tmp_path) -> None:
    group = add_cpufreq(tmp_path)
    before = held(group)
    made = MadeMachine(tmp_path)
    seen = []
    measured = measure(
        made.work, made.machine(), seconds=2.0, show=lambda what, done, total: seen.append((what, done, total))
    )
    assert held(group) == before
    assert [round(trial.frequency_hz) for trial in measured.trials] == pytest.approx([6e8, 1e9, 1.5e9])
    slowest = measured.trials[0]
    assert slowest.seconds_per_sample == pytest.approx(CYCLES / 6e8)
    assert slowest.power_w == pytest.approx(ALPHA * 6e8**3)
    assert slowest.busy_cores == pytest.approx(2.0)
    assert measured.trials[-1].cycles_per_sample == pytest.approx(CYCLES)
    assert measured.idle_power_w == pytest.approx(IDLE_W)
    assert measured.limits_hz == (6e8, 1.5e9)
    assert not measured.notes
    assert {what for what, _, _ in seen} >= {"warming up", "resting", "training at 1500 MHz"}
    assert seen[0] == ("warming up", 0.0, 2.0)
    assert all(done <= total for _, done, total in seen)


def test_the_profile_of_a_measurement_is_read_back(tmp_path) -> None:
    add_cpufreq(tmp_path)
    made = MadeMachine(tmp_path)
    measured = measure(made.work, made.machine(), seconds=2.0, show=quiet)
    profile, notes = profile_of(
        measured, name="mine", title="mine", work="training", flops_per_sample=6e7, battery_j=1e5
    )
    assert profile.flops_per_cycle == pytest.approx(2.0)
    assert profile.cycles(6e7) == pytest.approx(CYCLES)
    assert [step[1] for step in profile.steps] == pytest.approx([ALPHA * f**3 for f in (6e8, 1e9, 1.5e9)])
    assert profile.idle_power_w == pytest.approx(IDLE_W)
    assert profile.battery_j == 1e5
    assert (profile.transmit_power_w, profile.circuit_power_w) == (0.2, 1.8)
    assert len(notes) == 1
    assert notes[0].startswith("the radio was not measured")
    assert profile_from_dict(tomllib.loads(tomli_w.dumps(profile.to_dict())), "mine") == profile


@pytest.mark.parametrize("stop_at", ["work", "sleep"])
def test_ctrl_c_sets_frequencies_back(tmp_path, stop_at: str) -> None:
    group = add_cpufreq(tmp_path)
    before = held(group)
    made = MadeMachine(tmp_path)
    calls = []

    def interrupted() -> int:
        calls.append(held(group))
        if stop_at == "work" and made.now_s > 3.0:
            raise KeyboardInterrupt
        return made.work()

    machine = made.machine()
    if stop_at == "sleep":
        machine.sleep = lambda _seconds: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        measure(interrupted, machine, seconds=2.0, show=quiet)
    assert held(group) == before
    assert stop_at == "sleep" or calls[-1] != before
    assert stop_at == "work" or len(calls) == 3, "the first steps compile and allocate; then the machine rests"


def test_a_governor_of_the_user_is_set_by_its_speed(tmp_path) -> None:
    group = add_cpufreq(tmp_path, governor="userspace")
    with Cpufreq(tmp_path).held(1e9):
        assert held(group) == ["600000", "1500000", "1000000"]
    assert held(group) == ["600000", "1500000", "1500000"]


def test_the_lower_limit_is_never_above_the_upper_one(tmp_path, monkeypatch) -> None:
    """The kernel refuses that, also while one of the two files is written."""
    group = add_cpufreq(tmp_path)
    write(group / "scaling_max_freq", 1_000_000)
    real = module._write

    def like_the_kernel(path, khz):
        real(path, khz)
        low, high = (int(text) for text in held(group)[:2])
        assert low <= high

    monkeypatch.setattr(module, "_write", like_the_kernel)
    for step_hz in (6e8, 1.5e9):
        with Cpufreq(tmp_path).held(step_hz):
            assert held(group)[0] == held(group)[1] == f"{step_hz / 1e3:.0f}"
        assert held(group)[:2] == ["600000", "1000000"]


def test_slow_cores_are_held_within_their_limits(tmp_path) -> None:
    slow = add_cpufreq(tmp_path, 0, steps_khz=(300_000, 800_000))
    fast = add_cpufreq(tmp_path, 4, steps_khz=(500_000, 2_000_000))
    cpufreq = Cpufreq(tmp_path)
    assert cpufreq.steps_hz() == [5e8, 2e9]
    with cpufreq.held(2e9):
        assert held(slow)[:2] == ["800000", "800000"]
        assert held(fast)[:2] == ["2000000", "2000000"]
    assert held(slow)[:2] == ["300000", "800000"]


def test_steps_without_a_list_are_even(tmp_path) -> None:
    group = add_cpufreq(tmp_path, steps_khz=(800_000, 3_200_000))
    (group / "scaling_available_frequencies").unlink()
    assert Cpufreq(tmp_path).steps_hz() == [8e8, 1.6e9, 2.4e9, 3.2e9]


def test_many_steps_are_thinned(tmp_path) -> None:
    add_cpufreq(tmp_path, steps_khz=range(600_000, 2_600_000, 100_000))
    made = MadeMachine(tmp_path)
    measured = measure(made.work, made.machine(), seconds=0.1, show=quiet)
    found_mhz = [round(trial.frequency_hz / 1e6) for trial in measured.trials]
    assert found_mhz == [600, 900, 1100, 1400, 1700, 2000, 2200, 2500]  # eight of twenty


def test_without_permission_one_frequency_is_measured(tmp_path, monkeypatch) -> None:
    group = add_cpufreq(tmp_path)
    before = held(group)

    def refused(path, _khz):
        raise FrequencyError(f"{path} cannot be written: Permission denied; root may set CPU frequencies.")

    monkeypatch.setattr(module, "_write", refused)
    made = MadeMachine(tmp_path)
    measured = measure(made.work, made.machine(), seconds=1.0, show=quiet)
    assert held(group) == before
    assert len(measured.trials) == 1
    assert "one frequency was measured, because none can be set" in measured.notes[0]
    profile, notes = profile_of(measured, name="x", title="x", work="w", flops_per_sample=6e7, battery_j=None)
    assert profile.energy_coefficient == pytest.approx(ALPHA)
    assert (profile.frequency_min_hz, profile.frequency_max_hz) == (6e8, 1.5e9)
    assert any("cube of the frequency" in note for note in notes)


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path) -> None:
    with pytest.raises(FrequencyError, match="cannot be written: Is a directory; root may set"):
        module._write(tmp_path, 1)


def test_a_driver_that_takes_another_value_is_noticed(tmp_path, monkeypatch) -> None:
    group = add_cpufreq(tmp_path)
    real = module._write
    monkeypatch.setattr(module, "_write", lambda path, khz: real(path, khz if khz != 1_000_000 else 1_100_000))
    made = MadeMachine(tmp_path)
    measured = measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert held(group)[:2] == ["600000", "1500000"]
    assert len(measured.trials) == 2
    assert any(note.startswith("1000 MHz was left out") and "1100000" in note for note in measured.notes)


def test_a_cpu_that_runs_slower_than_set_is_reported(tmp_path) -> None:
    add_cpufreq(tmp_path)
    made = MadeMachine(tmp_path, obeys=False)
    write(made.group() / "scaling_cur_freq", 900_000)
    measured = measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert any("ran at 900 MHz although 1500 MHz was set" in note for note in measured.notes)


@pytest.mark.parametrize(
    ("khz", "reported"), [(949_000, True), (950_000, False), (1_050_000, False), (1_051_000, True)]
)
def test_a_frequency_that_differs_by_more_than_a_twentieth_is_reported(tmp_path, khz: int, reported: bool) -> None:
    add_cpufreq(tmp_path, steps_khz=(1_000_000,))
    made = MadeMachine(tmp_path, obeys=False)
    write(made.group() / "scaling_cur_freq", khz)
    measured = measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert any("although 1000 MHz was set" in note for note in measured.notes) == reported


@pytest.mark.parametrize(("cores", "reported"), [(0.89, True), (0.91, False), (1.0, False)])
def test_work_with_less_than_nine_tenths_of_a_core_is_reported(tmp_path, cores: float, reported: bool) -> None:
    add_cpufreq(tmp_path)
    made = MadeMachine(tmp_path)
    machine = made.machine()
    machine.cpu_clock = lambda: cores * made.now_s
    measured = measure(made.work, machine, seconds=0.5, show=quiet)
    assert any("of one core" in note for note in measured.notes) == reported


@pytest.mark.parametrize(
    ("joules", "idle_w", "added_w"),
    [
        (0.0, 0.0, None), (0.01, 0.0, 0.01), (0.0099, 0.0, None), (2.5, 2.0, 0.5), (2.0, 2.0, None),
        (1000.0, 0.0, 1000.0), (1001.0, 0.0, None), (1001.0, 1.0, 1000.0),
    ],
)  # fmt: skip
def test_work_adds_from_a_hundredth_of_a_watt_to_a_kilowatt(joules: float, idle_w: float, added_w) -> None:
    machine = Machine(CheckedMeter("made", Stalled()), None, 1e9)
    assert _added_power_w(machine, joules, 1.0, idle_w) == added_w
    assert (machine.meter is None) == (added_w is None)


@pytest.mark.parametrize(("watts", "idle_w"), [(2.0, 2.0), (1000.0, 1000.0), (1000.5, None)])
def test_a_machine_rests_for_the_whole_time_with_at_most_a_kilowatt(watts: float, idle_w: float | None) -> None:
    slept: list[float] = []

    class Even:
        def energy_j(self) -> float:
            return watts * 0.5 * len(slept)

    machine = Machine(CheckedMeter("made", Even()), None, 1e9, clock=lambda: 0.5 * len(slept), sleep=slept.append)
    assert _idle_power_w(machine, 2.0, quiet) == idle_w
    assert slept == [0.05] * 4
    assert (machine.meter is None) == (idle_w is None)


def test_the_meter_is_read_after_each_step_of_the_work(tmp_path) -> None:
    """Counters start again from 0, and powers have to be added up over time."""
    add_cpufreq(tmp_path, steps_khz=(1_000_000,))
    made = MadeMachine(tmp_path)
    read_s: list[float] = []

    class Noting:
        def energy_j(self) -> float:
            read_s.append(made.now_s)
            return made.joules

    measure(made.work, made.machine(Noting()), seconds=2.0, show=quiet)
    step_s = SAMPLES * CYCLES / 1e9
    gaps_s = [after - before for before, after in itertools.pairwise(read_s)]
    assert max(gaps_s) == pytest.approx(step_s)


def profile_and_notes(measured: Measurement):
    return profile_of(measured, name="x", title="x", work="w", flops_per_sample=6e7, battery_j=None)


def test_a_frequency_that_never_changes_is_one_frequency(tmp_path) -> None:
    """A driver that adapts the frequency itself. By hand: three steps of ten samples take 1.5, 0.9 and 0.6 s at the
    three settings and add 0.216, 1 and 3.375 W, so 30 samples per second and 3.249 J in 3 s."""
    add_cpufreq(tmp_path)
    made = MadeMachine(tmp_path, obeys=False)  # scaling_cur_freq stays at 1.5 GHz
    measured = measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert len(measured.trials) == 1
    joined = measured.trials[0]
    assert joined.frequency_hz == pytest.approx(1.5e9)
    assert joined.samples == 90
    assert joined.seconds_per_sample == pytest.approx(1.0 / 30.0)
    assert joined.power_w == pytest.approx(3.249 / 3.0)
    assert joined.busy_cores == pytest.approx(2.0)
    assert sum("3 of the frequencies that were set ran at 1500 MHz and count as one" in n for n in measured.notes) == 1
    profile, notes = profile_and_notes(measured)
    assert (profile.frequency_min_hz, profile.frequency_max_hz) == pytest.approx((6e8, 1.5e9))
    assert any("cube of the frequency" in note for note in notes)


def test_frequencies_within_a_percent_of_the_lowest_count_as_one() -> None:
    machine = Machine(None, None, 1e9)
    trials = [Trial(hertz, 0.1, None, SAMPLES, 1.0) for hertz in (1e9, 1.01e9, 1.012e9, 1.5e9)]
    joined = _joined(trials, machine)
    assert [trial.frequency_hz for trial in joined] == pytest.approx([1.005e9, 1.012e9, 1.5e9])
    assert machine.notes == ["2 of the frequencies that were set ran at 1000 MHz and count as one."]


@pytest.mark.parametrize("content", [None, "<unknown>", "0"])
def test_without_a_current_frequency_the_one_that_was_set_is_taken(tmp_path, content: str | None) -> None:
    group = add_cpufreq(tmp_path)
    made = MadeMachine(tmp_path, obeys=False)
    (group / "scaling_cur_freq").unlink() if content is None else write(group / "scaling_cur_freq", content)
    measured = measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert [trial.frequency_hz for trial in measured.trials] == [6e8, 1e9, 1.5e9]
    assert sum("takes the frequencies that were set" in note for note in measured.notes) == 1
    profile, _ = profile_and_notes(measured)
    assert [step[0] for step in profile.steps] == [6e8, 1e9, 1.5e9]


def test_without_a_current_frequency_and_permission_it_is_asked_for_at_once(tmp_path, monkeypatch) -> None:
    group = add_cpufreq(tmp_path)
    (group / "scaling_cur_freq").unlink()

    def refused(path, _khz):
        raise FrequencyError(f"{path} cannot be written: Permission denied.")

    monkeypatch.setattr(module, "_write", refused)
    made = MadeMachine(tmp_path, obeys=False)
    with pytest.raises(ConfigError, match="--frequency"):
        measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert made.now_s == 0.0, "before any work"
    measured = measure(made.work, made.machine(stated_hz=1.2e9), seconds=0.5, show=quiet)
    assert [trial.frequency_hz for trial in measured.trials] == [1.2e9]
    assert this_machine(tmp_path, None, 1.2e9).frequency_hz() == 1.2e9


def test_a_cpu_with_one_frequency_is_measured_at_it(tmp_path) -> None:
    add_cpufreq(tmp_path, steps_khz=(800_000,))
    made = MadeMachine(tmp_path)
    measured = measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert [trial.frequency_hz for trial in measured.trials] == [8e8]
    assert measured.limits_hz == (8e8, 8e8)
    assert not measured.notes


class Workstation(MadeMachine):
    """150 W at rest, by its meter."""

    def energy_j(self) -> float:
        return self.joules + 148.0 * self.now_s


class Milli(MadeMachine):
    """Its author forgot to divide by a thousand."""

    def energy_j(self) -> float:
        return 1e3 * self.joules


def test_a_workstation_rests_with_150_w(tmp_path) -> None:
    add_cpufreq(tmp_path)
    made = Workstation(tmp_path)
    profile, _ = profile_and_notes(measure(made.work, made.machine(), seconds=0.5, show=quiet))
    assert profile.idle_power_w == pytest.approx(150.0)
    assert profile.steps[-1][1] == pytest.approx(ALPHA * 1.5e9**3)


def test_a_meter_with_the_wrong_unit_is_not_used(tmp_path) -> None:
    add_cpufreq(tmp_path)
    made = Milli(tmp_path)
    measured = measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert measured.meter == ""
    assert any("meter 'made' shows 2e+03 W at rest, above 1000 W" in note for note in measured.notes)
    assert profile_and_notes(measured)[0].steps == ()


def test_whatever_was_measured_a_profile_is_written() -> None:
    """The corners of what a trial may hold, with one and with several frequencies."""
    written = 0
    for frequency_hz, seconds, power_w, idle_w, cores, limits, flops in itertools.product(
        (1.2e6, 2e9, 1e11), (1e-9, 1e-3, 1e4), (None, 1e-2, 1e3), (None, 0.0, 1e3), (0.0, 1024.0),
        ((0.0, 1e11), (2e9, 2e9)), (1.0, 1e15),
    ):  # fmt: skip
        one = Trial(frequency_hz, seconds, power_w, 100, cores)
        for trials in ((one,), (replace(one, frequency_hz=0.9 * frequency_hz), one)):
            meter = "" if power_w is None else "made"
            measured = Measurement(trials, limits, meter, idle_w, ())
            profile, notes = profile_of(measured, name="x", title="x", work="w", flops_per_sample=flops, battery_j=-1.0)
            assert notes
            cycles = one.cycles_per_sample
            assert profile.cycles(flops) == pytest.approx(
                cycles if 1e-4 <= flops / cycles <= 1e6 else min(max(cycles, 1.0), 1e12)
            )
            if power_w is not None and len(trials) == 1:
                law_w = profile.energy_coefficient * frequency_hz**3
                assert (profile.steps[0][1] if profile.steps else law_w) == pytest.approx(power_w)
            assert profile_from_dict(tomllib.loads(tomli_w.dumps(profile.to_dict())), "x") == profile
            written += 1
    assert written == 3 * 3 * 3 * 3 * 2 * 2 * 2 * 2


def test_a_source_says_what_was_measured_and_what_is_assumed() -> None:
    measured = Measurement((Trial(1e9, 0.1, 2.0, 100, 1.0),), (5e8, 1.5e9), "made", 1.0, ())
    source = profile_and_notes(measured)[0].sources["energy_coefficient"]
    assert source == "measured with made: 2 W above rest at 1000 MHz; the cubic law is assumed"
    later = profile_and_notes(replace(measured, meter=""))[0].sources["energy_coefficient"]
    assert later.startswith("measured with a meter that failed later: 2 W")
    without = replace(measured, meter="", trials=(replace(measured.trials[0], power_w=None),))
    source = profile_and_notes(without)[0].sources["energy_coefficient"]
    assert source == "assumed: 1 nJ per cycle and core at the highest frequency; no meter"


@pytest.mark.parametrize(
    ("limits_hz", "source"),
    [((5e8, 1.5e9), "cpufreq"), ((1e9, 1e9), "measured; the machine lists no other frequency")],
)
def test_the_source_of_the_frequencies(limits_hz, source: str) -> None:
    measured = Measurement((Trial(1e9, 0.1, 2.0, 100, 1.0),), limits_hz, "made", 1.0, ())
    profile = profile_and_notes(measured)[0]
    assert (profile.frequency_min_hz, profile.frequency_max_hz) == limits_hz
    assert profile.sources["frequency_min_hz"] == profile.sources["frequency_max_hz"] == source


def test_two_frequencies_are_steps() -> None:
    trials = (Trial(1e9, 0.1, 2.0, 100, 1.0), Trial(1.5e9, 0.07, 5.0, 100, 1.0))
    profile = profile_and_notes(Measurement(trials, (1e9, 1.5e9), "made", 1.0, ()))[0]
    assert profile.steps == ((1e9, 2.0), (1.5e9, 5.0))


def test_where_the_meter_failed_between_two_frequencies_the_law_follows_from_the_fastest() -> None:
    trials = (Trial(1e9, 0.1, None, 100, 1.0), Trial(2e9, 0.05, 8.0, 100, 1.0))
    profile = profile_and_notes(Measurement(trials, (1e9, 2e9), "", None, ()))[0]
    assert not profile.steps
    assert profile.energy_coefficient * 1e9**3 == pytest.approx(1.0)


@pytest.mark.parametrize(("cores", "counted"), [(0.0, 1.0), (0.94, 1.0), (1.0, 1.0), (1.26, 1.3), (7.0, 7.0)])
def test_without_a_meter_each_busy_core_takes_a_nanojoule_per_cycle(cores: float, counted: float) -> None:
    """At least one core, to a tenth: at 1 GHz a watt for each."""
    measured = Measurement((Trial(1e9, 0.1, None, 100, cores),), (1e9, 1e9), "", None, ())
    assert profile_and_notes(measured)[0].energy_coefficient * 1e9**3 == pytest.approx(counted)


@pytest.mark.parametrize(("told_j", "battery_j"), [(None, math.inf), (9e-7, math.inf), (1e-6, 1e-6), (5e4, 5e4)])
def test_a_battery_that_a_profile_cannot_hold_is_left_out(told_j: float | None, battery_j: float) -> None:
    measured = Measurement((Trial(1e9, 0.1, 2.0, 100, 1.0),), (1e9, 1e9), "made", 1.0, ())
    profile, _ = profile_of(measured, name="x", title="x", work="w", flops_per_sample=6e7, battery_j=told_j)
    assert profile.battery_j == battery_j


@pytest.mark.parametrize("frequency_hz", [1e3 * khz for khz in range(1_000_000, 2_000_000, 100_000)])
def test_the_most_power_is_plausible_at_any_frequency(frequency_hz: float) -> None:
    """1000 W over the cube of a frequency, and times this cube again, can be a little more than 1000 W by rounding."""
    trial = Trial(frequency_hz, 1e-3, None, 100, 1024.0)
    profile, _ = profile_and_notes(Measurement((trial,), (frequency_hz, frequency_hz), "", None, ()))
    assert not profile.steps
    assert profile.energy_coefficient * frequency_hz**3 == pytest.approx(1000.0, rel=1e-12)


class Stalled:
    def energy_j(self) -> float:
        return 7.0


class Backwards:
    def __init__(self, made) -> None:
        self.made = made

    def energy_j(self) -> float:
        return self.made.joules if self.made.now_s < 4.0 else 0.0


class Vanishing(Backwards):
    def energy_j(self) -> float:
        if self.made.now_s > 1.0:
            raise MeterError("the meter was unplugged.")
        return self.made.joules


class Failing(Backwards):
    """A meter of a user's own fails in its own way."""

    def energy_j(self) -> float:
        if self.made.now_s > 1.0:
            raise OSError("no answer")
        return self.made.joules


class Resting(Backwards):
    """Shows no more at work than at rest."""

    def energy_j(self) -> float:
        return 3.0 * self.made.now_s


class Extreme(Backwards):
    """Shows the right power at rest, and 400 times what the work adds."""

    def energy_j(self) -> float:
        rest_j = IDLE_W * self.made.now_s
        return rest_j + 400.0 * (self.made.joules - rest_j)


@pytest.mark.parametrize(
    ("meter", "says"),
    [
        (lambda _made: Stalled(), "did not advance during"),
        (Backwards, "goes backwards"),
        (Vanishing, "unplugged"),
        (Failing, "meter 'made' fails: OSError: no answer"),
        (Resting, "3 W at work and 3 W at rest"),
        (Extreme, "by meter 'made' the work adds 1.35e+03 W, above 1000 W"),
    ],
)
def test_a_meter_that_cannot_be_used_is_said_and_the_energy_assumed(tmp_path, meter, says: str) -> None:
    add_cpufreq(tmp_path)
    made = MadeMachine(tmp_path)
    measured = measure(made.work, made.machine(meter(made)), seconds=2.0, show=quiet)
    assert measured.meter == ""
    assert measured.idle_power_w is None
    assert sum(says in note for note in measured.notes) == 1
    assert measured.trials[-1].seconds_per_sample == pytest.approx(CYCLES / 1.5e9)
    profile, notes = profile_of(measured, name="x", title="x", work="w", flops_per_sample=6e7, battery_j=None)
    assert profile.energy_coefficient * 1.5e9**3 == pytest.approx(2 * 1.5)  # two busy cores, 1 nJ per cycle
    assert any("assumed 1 nJ per cycle and core, so 3 W at 1500 MHz" in note for note in notes)
    assert any("power at rest was not measured" in note for note in notes)


def test_a_machine_without_frequencies(tmp_path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    write(cpuinfo, "processor : 0\ncpu MHz\t\t: 2400.5\nprocessor : 1\ncpu MHz : 800\ncpu MHz : fast")
    assert stated_hz(cpuinfo) == 2400.5e6
    assert stated_hz(tmp_path / "none") is None
    write(cpuinfo, "cpu MHz : 0")
    assert stated_hz(cpuinfo) is None
    machine = this_machine(tmp_path, None, 1e9)
    assert machine.frequency_hz() == 1e9
    assert "one frequency was measured, because none can be set" in machine.notes[0]
    measured = measure(lambda: 1, Machine(None, None, 1e9, cpu_clock=lambda: 0.0), seconds=0.01, show=quiet)
    assert measured.limits_hz == (1e9, 1e9)
    assert any("only 0% of one core" in note for note in measured.notes)
    shown: list[str] = []
    with pytest.raises(ConfigError, match="--frequency"):
        measure(lambda: 1, Machine(None, None), seconds=0.01, show=lambda what, *_: shown.append(what))
    assert not shown, "before anything takes time"


@pytest.mark.parametrize(("khz", "hertz"), [(999, None), (1_000, 1e6), (100_000_000, 1e11), (100_000_001, None)])
def test_a_cpu_runs_with_a_megahertz_to_100_gigahertz(tmp_path, khz: int, hertz: float | None) -> None:
    write(add_cpufreq(tmp_path) / "scaling_cur_freq", khz)
    if hertz is not None:
        assert Cpufreq(tmp_path).current_hz() == hertz
    else:
        with pytest.raises(FrequencyError, match=f"holds {khz}, which is no frequency in kHz"):
            Cpufreq(tmp_path).current_hz()


@pytest.mark.parametrize(
    ("name", "governor"),
    [("scaling_min_freq", "ondemand"), ("scaling_max_freq", "ondemand"), ("scaling_setspeed", "userspace")],
)
def test_a_frequency_that_a_driver_does_not_take_is_an_error(tmp_path, monkeypatch, name: str, governor: str) -> None:
    group = add_cpufreq(tmp_path, governor=governor)
    real = module._write
    monkeypatch.setattr(module, "_write", lambda path, khz: None if path.name == name else real(path, khz))
    with pytest.raises(FrequencyError, match=f"{name} was set to 1000000 kHz"), Cpufreq(tmp_path).held(1e9):
        pass
    assert held(group)[:2] == ["600000", "1500000"]


def test_little_energy_is_energy(tmp_path) -> None:
    class Frugal(MadeMachine):
        def energy_j(self) -> float:
            return 0.1 * self.joules

    add_cpufreq(tmp_path)
    made = Frugal(tmp_path)
    measured = measure(made.work, made.machine(), seconds=0.5, show=quiet)
    assert measured.meter == "made"
    assert measured.idle_power_w == pytest.approx(0.1 * IDLE_W)
    assert [trial.power_w for trial in measured.trials] == pytest.approx(
        [0.1 * ALPHA * trial.frequency_hz**3 for trial in measured.trials]
    )
