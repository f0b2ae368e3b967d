"""A decision-only run as a job of a batch, and what it costs in time and memory."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qccf._version import __version__
from qccf.core.files import write_text_whole, write_whole
from qccf.rounds.world import build_world
from qccf.runtimes.planner import PlannedRun, StatisticsModel, bits_size_correlation, plan_run
from qccf.settings.loading import Scenario, load_scenario, settings_key
from qccf.settings.schema import PAPERS_CODEC


@dataclass(frozen=True)
class PlanJob:
    """One policy in one world. With `measured` its time and memory are recorded: give it a process of its own."""

    scenario: Scenario
    runs: Path
    measured: bool = False

    @property
    def label(self) -> str:
        s = self.scenario
        return (
            f"{s.policy.name}, {s.federation.num_clients} clients, {s.radio.num_channels} channels, "
            f"β {s.data.dataset_size_std:g}, V {s.control.energy_weight:g}, seed {s.federation.seed}"
        )

    @property
    def folder(self) -> Path:
        policy, seed = self.scenario.policy.name, self.scenario.federation.seed
        kind = "measure" if self.measured else "plan"
        key = settings_key(self.scenario, policy, seed)[:12]
        return self.runs / f"{kind}-{policy.replace(':', '-').replace('.', '-')}-seed{seed}-{key}"

    @property
    def steps(self) -> int:
        return self.scenario.federation.rounds

    @property
    def pace(self) -> str:
        return f"{self.scenario.policy.name} {self.scenario.federation.num_clients} {self.scenario.radio.num_channels}"

    @property
    def cores(self) -> int:
        return 1

    def is_finished(self) -> bool:
        return (self.folder / "summary.json").exists()

    def run(self, folder: Path, tell: Callable[[int], None]) -> None:
        if self.measured:
            _warm_up(self.scenario)
        before = peak_memory_bytes() if self.measured else 0
        world = build_world(self.scenario, self.scenario.federation.seed)
        run = plan_run(world, self.scenario.policy.name, StatisticsModel(self.scenario), tell)
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
        import pandas as pd  # only now: its memory is not the run's

        write_whole(folder / "rounds.parquet", lambda path: pd.DataFrame(rounds).to_parquet(path, index=False))
        write_text_whole(folder / "summary.json", json.dumps(summary, indent=2) + "\n")


def _warm_up(scenario: Scenario) -> None:
    """A round of ten clients with the same policy: libraries are loaded on first use, which is not the run's cost."""
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
    """The run in a few numbers, under the names that a training run's summary has."""
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
    """The most memory that this process has had at once.

    Linux hands a parent's peak down in `getrusage`, so that the kernel's own count for this program comes first.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
