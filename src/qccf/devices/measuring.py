"""What work costs on this machine: seconds per sample and watts at each CPU frequency, and the profile that follows.

The work is any function, so this module needs no PyTorch. Each finding that could not be measured is a sentence that
says why, and what was assumed instead.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from qccf.core.errors import ConfigError, FrequencyError, MeterError
from qccf.devices.cpufreq import Cpufreq, stated_hz
from qccf.devices.meters.protocol import CheckedMeter
from qccf.devices.profile import FIGURES, MAX_COMPUTE_POWER_W

Work = Callable[[], int]
"""Does one step of the work and returns its number of samples."""

Progress = Callable[[str, float, float], None]
"""Called with what is measured, the seconds so far, and the seconds that it takes."""

FEWEST_STEPS = 3
"""Of a measurement, however short it is."""
MOST_FREQUENCIES = 8
PAUSE_S = 0.05
"""Between two readings of the meter while the machine rests."""
LEAST_BUSY = 0.9
"""Work that has less than this share of one core was held up by other programs."""
LEAST_ADDED_W = 0.01
"""No processor that trains takes less; a meter that shows less does not show the work."""
SAME = 0.01
"""Frequencies that differ by at most this share are one."""
TOLERANCE = 0.05
"""A CPU that runs at another frequency than the one set by more than this share is reported."""


@dataclass(frozen=True)
class Trial:
    """The work at one frequency. `power_w` is what it adds to the machine at rest; None without a meter. `busy_cores`
    is the mean number of cores at work."""

    frequency_hz: float
    seconds_per_sample: float
    power_w: float | None
    samples: int
    busy_cores: float

    @property
    def cycles_per_sample(self) -> float:
        return self.frequency_hz * self.seconds_per_sample


@dataclass(frozen=True)
class Measurement:
    """All trials, lowest frequency first. `limits_hz` is what the CPU offers, also where it could not be set."""

    trials: tuple[Trial, ...]
    limits_hz: tuple[float, float]
    meter: str
    idle_power_w: float | None
    notes: tuple[str, ...]


@dataclass
class Machine:
    """How a machine is measured: its meter, its frequencies, and the clock by which seconds are counted."""

    meter: CheckedMeter | None
    cpufreq: Cpufreq | None
    stated_hz: float | None = None
    """The frequency where the machine lists none."""
    clock: Callable[[], float] = time.perf_counter
    cpu_clock: Callable[[], float] = time.process_time
    sleep: Callable[[float], None] = time.sleep
    notes: list[str] = field(default_factory=list)

    def drop_meter(self, why: str) -> None:
        self.notes.append(f"the energy was not measured: {why}")
        self.meter = None

    def joules(self) -> float | None:
        """The meter's count. A meter that fails is dropped."""
        try:
            return None if self.meter is None else self.meter.energy_j()
        except MeterError as error:
            self.drop_meter(str(error))
            return None

    def frequency_hz(self, set_hz: float | None = None) -> float:
        """The frequency that runs now. A machine that does not tell it runs at the one that was set or stated."""
        try:
            told_hz = None if self.cpufreq is None else self.cpufreq.current_hz()
        except FrequencyError as error:
            told_hz = None
            if set_hz is not None:
                self.note(f"{error} The profile takes the frequencies that were set.")
        found = told_hz or set_hz or self.stated_hz
        if not found:
            raise ConfigError("this machine does not tell the frequency of its CPU: give it with --frequency HERTZ.")
        return found

    def require_frequency(self) -> None:
        """Refuse a machine that tells no frequency and lets none be set."""
        try:
            highest_hz = None if self.cpufreq is None else self.cpufreq.steps_hz()[-1]
            with nullcontext() if self.cpufreq is None or highest_hz is None else self.cpufreq.held(highest_hz):
                self.frequency_hz(highest_hz)
        except FrequencyError:
            self.frequency_hz()

    def note(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self.notes:
            self.notes.append(sentence)


def this_machine(root: Path, meter: CheckedMeter | None, frequency_hz: float | None = None) -> Machine:
    """The machine whose kernel files are below `root`; `frequency_hz` is taken where the machine tells none."""
    try:
        return Machine(meter, Cpufreq(root), frequency_hz or stated_hz())
    except FrequencyError as error:
        machine = Machine(meter, None, frequency_hz or stated_hz())
        machine.notes.append(f"one frequency was measured, because none can be set: {error}")
        return machine


def measure(work: Work, machine: Machine, *, seconds: float, show: Progress) -> Measurement:
    """Rest for `seconds`, then do the work for `seconds` at each frequency that this process may set."""
    machine.require_frequency()  # before anything takes time
    show("warming up", 0.0, seconds)
    _repeat(work, machine, 0.0, lambda _done_s: None)  # the first steps compile and allocate
    idle_w = _idle_power_w(machine, seconds, show)
    trials = _trials(_Trials(work, machine, seconds, idle_w, show))
    trials = _joined(sorted(trials, key=lambda trial: trial.frequency_hz), machine)
    highest_hz = trials[-1].frequency_hz
    limits = machine.cpufreq.limits_hz() if machine.cpufreq is not None else (highest_hz, highest_hz)
    name = machine.meter.name if machine.meter is not None else ""
    return Measurement(tuple(trials), limits, name, idle_w if name else None, tuple(machine.notes))


@dataclass(frozen=True)
class _Trials:
    """What all trials share."""

    work: Work
    machine: Machine
    seconds: float
    idle_w: float | None
    show: Progress


def _trials(shared: _Trials) -> list[Trial]:
    """One trial at each frequency, highest first; one at whatever frequency runs where none can be set."""
    machine, trials = shared.machine, list[Trial]()
    cpufreq = machine.cpufreq
    for step_hz in [] if cpufreq is None else reversed(_chosen(cpufreq.steps_hz())):
        try:
            with cpufreq.held(step_hz):  # type: ignore[union-attr]
                trials.append(_trial(shared, step_hz))
        except FrequencyError as error:
            if not trials:
                machine.notes.append(f"one frequency was measured, because none can be set: {error}")
                break
            machine.notes.append(f"{step_hz / 1e6:.0f} MHz was left out: {error}")
    return trials or [_trial(shared, None)]


def _joined(trials: list[Trial], machine: Machine) -> list[Trial]:
    """Trials that ran at the same frequency as one, in rising order: some drivers adapt the frequency themselves."""
    groups: list[list[Trial]] = []
    for trial in trials:
        if groups and trial.frequency_hz <= groups[-1][0].frequency_hz * (1.0 + SAME):
            groups[-1].append(trial)
        else:
            groups.append([trial])
    for group in groups:
        if len(group) > 1:
            mhz = group[0].frequency_hz / 1e6
            machine.note(f"{len(group)} of the frequencies that were set ran at {mhz:.0f} MHz and count as one.")
    return [group[0] if len(group) == 1 else _mean_trial(group) for group in groups]


def _mean_trial(trials: list[Trial]) -> Trial:
    """The mean over time."""
    samples = sum(trial.samples for trial in trials)
    seconds = [trial.seconds_per_sample * trial.samples for trial in trials]
    shares = [one / sum(seconds) for one in seconds]

    def mean(values: list[float]) -> float:
        return sum(share * value for share, value in zip(shares, values, strict=True))

    powers_w = [trial.power_w for trial in trials if trial.power_w is not None]
    return Trial(
        mean([trial.frequency_hz for trial in trials]),
        sum(seconds) / samples,
        mean(powers_w) if len(powers_w) == len(trials) else None,
        samples,
        mean([trial.busy_cores for trial in trials]),
    )


def _chosen(steps_hz: Sequence[float]) -> list[float]:
    """At most so many, evenly, with the lowest and the highest."""
    if len(steps_hz) <= MOST_FREQUENCIES:
        return list(steps_hz)
    last = len(steps_hz) - 1
    return [steps_hz[round(last * k / (MOST_FREQUENCIES - 1))] for k in range(MOST_FREQUENCIES)]


def _idle_power_w(machine: Machine, seconds: float, show: Progress) -> float | None:
    start_s, start_j = machine.clock(), machine.joules()
    spent_s, now_j = 0.0, start_j
    while now_j is not None and spent_s < seconds:
        show("resting", spent_s, seconds)
        machine.sleep(PAUSE_S)
        now_j, spent_s = machine.joules(), machine.clock() - start_s
    if start_j is None or now_j is None:
        return None
    idle_w, most_w = (now_j - start_j) / spent_s, FIGURES["idle_power_w"].most
    if idle_w > most_w:
        name = machine.meter.name if machine.meter is not None else ""
        machine.drop_meter(f"meter {name!r} shows {idle_w:.3g} W at rest, above {most_w:g} W: does it count joules?")
        return None
    return idle_w


def _trial(shared: _Trials, step_hz: float | None) -> Trial:
    """The work at the frequency that is set now; `step_hz` is None where none was set."""
    machine, seconds = shared.machine, shared.seconds
    seen_hz: list[float] = []
    label = f"training at {(step_hz or machine.frequency_hz()) / 1e6:.0f} MHz"

    def between(done_s: float) -> None:
        seen_hz.append(machine.frequency_hz(step_hz))
        machine.joules()
        shared.show(label, min(done_s, seconds), seconds)

    start_j, start_cpu_s = machine.joules(), machine.cpu_clock()
    samples, spent_s = _repeat(shared.work, machine, seconds, between)
    busy_cores = (machine.cpu_clock() - start_cpu_s) / spent_s
    end_j = machine.joules()
    frequency_hz = sum(seen_hz) / len(seen_hz)
    if step_hz is not None and abs(frequency_hz - step_hz) > TOLERANCE * step_hz:
        machine.notes.append(
            f"the CPU ran at {frequency_hz / 1e6:.0f} MHz although {step_hz / 1e6:.0f} MHz was set; it may have been "
            "too hot, or the driver adapts the frequency itself."
        )
    if busy_cores < LEAST_BUSY:
        machine.notes.append(
            f"the work had only {busy_cores:.0%} of one core at {frequency_hz / 1e6:.0f} MHz, so it seems slower than "
            "this machine is: stop other programs and measure again."
        )
    power_w = None
    if start_j is not None and end_j is not None and shared.idle_w is not None:
        power_w = _added_power_w(machine, end_j - start_j, spent_s, shared.idle_w)
    return Trial(frequency_hz, spent_s / samples, power_w, samples, busy_cores)


def _repeat(work: Work, machine: Machine, seconds: float, between: Callable[[float], None]) -> tuple[int, float]:
    """Work for at least so long; the samples and the seconds."""
    start_s, samples, steps = machine.clock(), 0, 0
    spent_s = 0.0
    while steps < FEWEST_STEPS or spent_s < seconds:
        samples += work()
        steps += 1
        spent_s = machine.clock() - start_s
        between(spent_s)
    return samples, spent_s


def _added_power_w(machine: Machine, joules: float, seconds: float, idle_w: float) -> float | None:
    """What the work adds to the power at rest. A meter that shows nothing of the work is dropped."""
    name = machine.meter.name if machine.meter is not None else ""
    if joules <= 0.0:
        machine.drop_meter(f"meter {name!r} did not advance during {seconds:.1f} s of work.")
        return None
    added_w = joules / seconds - idle_w
    if added_w > MAX_COMPUTE_POWER_W:
        machine.drop_meter(
            f"by meter {name!r} the work adds {added_w:.3g} W, above {MAX_COMPUTE_POWER_W:g} W: does it count joules?"
        )
        return None
    if added_w < LEAST_ADDED_W:
        machine.drop_meter(
            f"by meter {name!r} the machine takes {joules / seconds:.3g} W at work and {idle_w:.3g} W at rest: stop "
            "other programs, or measure for longer."
        )
        return None
    return added_w
