"""A run without training as a job, with its time and memory."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qccf._version import __version__
from qccf.core.files import write_text_whole, write_whole
from qccf.jobs.names import run_name
from qccf.jobs.queue import Job, OnStep
from qccf.rounds.world import build_world
from qccf.runtimes.planner import PlannedRun, StatisticsModel, bits_size_correlation, plan_run
from qccf.settings.loading import Scenario, load_scenario
from qccf.settings.schema import PAPERS_CODEC


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
        run = plan_run(world, self.scenario.policy.name, StatisticsModel(self.scenario), on_step)
        after = peak_memory_bytes() if self.measured else 0
        rounds, summary = round_columns(run), run_summary(run)
        if self.measured:
            rounds["decision_s"] = run.decision_s
            summary |= {
                "decision_s": float(np.median(run.decision_s)),
                "decision_max_s": float(run.decision_s.max()),
                "start_memory_bytes": before,
                "peak_memory_bytes": after,
            }
        import pandas as pd  # after the measurement, which must not include its memory

        write_whole(folder / "rounds.parquet", lambda path: pd.DataFrame(rounds).to_parquet(path, index=False))
        write_text_whole(folder / "summary.json", json.dumps(summary, indent=2) + "\n")


def plan_job(scenario: Scenario, runs: Path, *, measured: bool = False) -> PlanJob:
    """The job of a scenario in a folder below `runs`."""
    clients, channels = scenario.federation.num_clients, scenario.radio.num_channels
    return PlanJob(
        label=(
            f"{scenario.policy.name}, {clients} clients, {channels} channels, "
            f"β {scenario.data.dataset_size_std:g}, V {scenario.control.energy_weight:g}, "
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
    kept = {name: getattr(scenario, name) for name in ("policy", "control", "principle", "no_quantization")}
    small = load_scenario("quick", ["federation.rounds=1", f"codec.name={PAPERS_CODEC}"]).model_copy(update=kept)
    plan_run(build_world(small, 0), small.policy.name, StatisticsModel(small))


def round_columns(run: PlannedRun) -> dict[str, Any]:
    """One row a round, under the names that a training run's ledger has."""
    uploads = run.participated.sum(axis=1)
    energy_j = run.energy_j.sum(axis=1)
    return {
        "round": np.arange(len(uploads)),
        "energy_j": energy_j,
        "compute_energy_j": run.compute_energy_j.sum(axis=1),
        "cumulative_energy_j": np.cumsum(energy_j),
        "latency_s": run.latency_s.max(axis=1),
        "participants": uploads,
        "missed": run.missed.sum(axis=1),
        "mean_bits": np.where(uploads > 0, run.num_bits.sum(axis=1) / np.maximum(uploads, 1), np.nan),
        "participation_queue": run.queues[:, 0],
        "quantization_queue": run.queues[:, 1],
    }


def run_summary(run: PlannedRun) -> dict[str, Any]:
    """The run in a few numbers; the names are those of the summary of a training run."""
    on = run.participated
    correlation = bits_size_correlation(run)
    return {
        "energy_j": float(run.energy_j.sum()),
        "compute_energy_j": float(run.compute_energy_j.sum()),
        "mean_latency_s": float(run.latency_s.max(axis=1).mean()),
        "mean_bits": float(run.num_bits[on].mean()) if on.any() else None,
        "participation": float(on.mean()),
        "missed": float(run.missed.sum() / max(on.sum(), 1)),
        "bits_size_correlation": correlation if np.isfinite(correlation) else None,
        "version": __version__,
    }


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
