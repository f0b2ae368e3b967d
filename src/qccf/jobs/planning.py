"""A run without training as a job, with its time and memory."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qccf.core.contracts import Decision, Observation, Outcome, Policy, PolicyState, Statistics
from qccf.jobs.names import run_name
from qccf.jobs.queue import Job, OnStep
from qccf.rounds.run_folder import write_run
from qccf.rounds.sources import statistics_source
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan_run, planned_rules, run_rounds
from qccf.settings.loading import Scenario, load_scenario


@dataclass(frozen=True, kw_only=True)
class PlanJob(Job):
    """Plans the rounds of one scenario. `measured` also records time and memory and needs a process per job."""

    scenario: Scenario
    measured: bool = False

    def run(self, folder: Path, on_step: OnStep) -> None:
        if self.measured:
            _warm_up(self.scenario)
        before = peak_memory_bytes() if self.measured else 0
        world = build_world(self.scenario, self.scenario.federation.seed)
        rules = planned_rules(self.scenario)
        timed = _TimedPolicy(rules.policy)
        source = statistics_source(self.scenario, world.dataset_sizes)
        run = run_rounds(world, replace(rules, policy=timed), source, self.scenario, on_step)
        if self.measured:
            run.round_columns["decision_s"] = np.array(timed.seconds)
            run.summary.update(
                decision_s=float(np.median(timed.seconds)),
                decision_max_s=max(timed.seconds),
                start_memory_bytes=before,
                peak_memory_bytes=peak_memory_bytes(),
            )
        write_run(folder, run)


class _TimedPolicy:
    """A policy that records the time of each of its decisions."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seconds: list[float] = []

    def init(self, statistics: Statistics) -> PolicyState:
        return self._policy.init(statistics)

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        started = time.perf_counter()
        decision = self._policy.decide(state, observation, rng)
        self.seconds.append(time.perf_counter() - started)
        return decision

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        return self._policy.update(state, decision, outcome)


def plan_job(scenario: Scenario, runs: Path, *, measured: bool = False) -> PlanJob:
    """The job of a scenario in a folder below `runs`."""
    clients, channels = scenario.federation.num_clients, scenario.radio.num_channels
    return PlanJob(
        label=(
            f"{scenario.policy.name}, codec {scenario.codec.name}, {clients} clients, {channels} channels, "
            f"β {scenario.data.dataset_size_std:g}, {scenario.weight_label}, "
            f"seed {scenario.federation.seed}"
        ),
        folder=runs / f"{'measure' if measured else 'plan'}-{run_name(scenario)}",
        steps=scenario.federation.rounds,
        step_kind=f"{scenario.policy.name} {clients} {channels}",
        scenario=scenario,
        measured=measured,
    )


def _warm_up(scenario: Scenario) -> None:
    """Decide a round of ten clients with the same policy, so that libraries are loaded before the measurement."""
    sections = ("policy", "codec", "statistics", "control", "principle", "no_quantization")
    kept = {name: getattr(scenario, name) for name in sections}
    small = load_scenario("quick", ["federation.rounds=1"]).model_copy(update=kept)
    plan_run(build_world(small, 0), small.policy.name)


def peak_memory_bytes() -> int:
    """The peak memory of this process.

    On Linux `getrusage` includes the peak of the parent process, so the kernel's count for this program is read first.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
