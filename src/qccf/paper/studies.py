"""Two studies without training: what the paper's own solvers cost, and what the savings depend on.

The statistics come from the scenario, as in `qccf plan`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from qccf.core.contracts import Decision, Observation, Outcome, Policy, PolicyState, Statistics
from qccf.core.errors import RunFolderError
from qccf.core.files import write_text_whole
from qccf.devices.cost import settle
from qccf.jobs.queue import Job, OnStep
from qccf.policies.principle import Principle
from qccf.rounds.run import Run
from qccf.rounds.setup import build_policy, build_rules, scenario_codec
from qccf.rounds.sources import StatisticsModel
from qccf.rounds.world import build_world
from qccf.runtimes.planner import plan_run, run_rounds
from qccf.settings.loading import Scenario, digest, load_scenario
from qccf.settings.schema import PAPERS_CODEC

RESULT = "study.json"
PART = "part.json"
"""The cells that an unfinished study has completed."""

Measurements = dict[str, dict[str, Any]]
"""Quantity → policy or solver → value, in one cell."""

# The paper's own pair first. Its closed form takes one Taylor step from a client's last bits in Case 5.
SOLVERS: dict[str, tuple[str, str]] = {
    "genetic, closed form": ("genetic", "closed-form-taylor"),
    "genetic, exact bits": ("genetic", "exact"),
    "assignment, closed form": ("assignment", "closed-form-taylor"),
}
CELL_SIZES = ((10, 10), (10, 5), (30, 15), (60, 30))


@dataclass(frozen=True)
class Factor:
    """A setting that the paper does not state, and the values to try; the default is among them."""

    name: str
    key: str
    values: tuple[float | str, ...]
    unit: str
    log: bool = True


FACTORS = (
    Factor("bandwidth", "radio.bandwidth_hz", (6e6, 8e6, 10e6, 15e6, 20e6, 40e6), "Hz"),
    Factor("channel gain", "radio.gain_db", (-5.0, 0.0, 5.0, 10.0, 20.0), "dB", log=False),
    Factor("ε2", "control.paper.quantization_budget", (0.003, 0.01, 0.03, 0.1, 0.3), ""),
    Factor("λ2⁰ - ε2", "control.paper.quantization_margin", (0.1, 0.25, 0.5, 1.0, 2.0), ""),
    Factor("L", "learning.smoothness", (0.005, 0.015, 0.05, 0.15, 0.5), ""),
    Factor("rounds between rises of principle's bits", "principle.patience", (5, 10, 20, 50, 100), ""),
    Factor("who pays for a missed deadline", "principle", ("client", "nobody", "late"), "", log=False),
)
PAYERS = {
    "client": ("principle", "the client, until the deadline; the upload is lost"),
    "nobody": ("qccf.paper.studies:SparedPrinciple", "nobody: clients that would be late are left out in advance"),
    "late": ("qccf.paper.studies:PatientPrinciple", "the client, to the end; the late upload counts"),
}


class SparedPrinciple(Principle):
    """Clients that cannot meet the deadline are left out and spend nothing."""

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        decision = super().decide(state, observation, rng)
        late = settle(decision, observation, self.constants).missed
        return Decision(
            np.where(late, -1, decision.channels),
            np.where(late, 0, decision.num_bits),
            np.where(late, 0.0, decision.frequencies_hz),
        )


class PatientPrinciple(Principle):
    """The server waits: a late client computes at full speed and uploads to the end."""

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        return replace(super().decide(state, observation, rng), deadline_exempt=True)


@dataclass(frozen=True, kw_only=True)
class SavingsStudy(Job):
    """QCCF's savings against two baselines with one setting changed, one cell per step."""

    scenario: Scenario
    factor: str
    value: float | str
    result: ClassVar[str] = RESULT

    def run(self, folder: Path, on_step: OnStep) -> None:
        principle = PAYERS[str(self.value)][0] if self.factor == FACTORS[-1].name else "principle"
        policies = {"qccf": "qccf", "principle": principle, "same-size": "same-size"}

        def cell(seed: int) -> Measurements:
            world = build_world(self.scenario, seed)
            runs = {name: plan_run(world, policy) for name, policy in policies.items()}
            return {
                quantity: {name: run.summary[quantity] for name, run in runs.items()}
                for quantity in ("energy_j", "missed")
            }

        measured = _cell_by_cell(folder, self.scenario, self.steps, cell, on_step)
        rounds = self.scenario.federation.rounds
        _write(folder, study="savings", factor=self.factor, value=self.value, rounds=rounds, **measured)


@dataclass(frozen=True, kw_only=True)
class SolverStudy(Job):
    """The paper's pair of solvers against the exact one, on the same rounds and on rounds of their own."""

    scenario: Scenario
    result: ClassVar[str] = RESULT

    def run(self, folder: Path, on_step: OnStep) -> None:
        def cell(seed: int) -> Measurements:
            runs = {name: plan_run(build_world(self._with(name), seed), "qccf") for name in ("exact", *SOLVERS)}
            return {
                "energy_j": {name: run.summary["energy_j"] for name, run in runs.items()},
                "mean_bits": {name: _mean_bits(run) for name, run in runs.items()},
                "participation": {name: run.summary["participation"] for name, run in runs.items()},
                "gap_j": self._gaps_j(seed),
            }

        measured = _cell_by_cell(folder, self.scenario, self.steps, cell, on_step)
        _write(
            folder,
            study="solvers",
            clients=self.scenario.federation.num_clients,
            channels=self.scenario.radio.num_channels,
            rounds=self.scenario.federation.rounds,
            **measured,
        )

    def _with(self, name: str) -> Scenario:
        solver, inner = SOLVERS.get(name, ("assignment", "exact"))
        return self.scenario.replaced(control={"solver": solver, "inner": inner})

    def _gaps_j(self, seed: int) -> dict[str, float]:
        """Mean of (J - J of the exact decision)/V per round for each pair of solvers, in the exact policy's rounds."""
        world = build_world(self.scenario, seed)
        scenario = self.scenario.replaced(federation={"seed": seed})
        rules = build_rules(scenario, scenario_codec(scenario))
        others = {name: build_policy("qccf", self._with(name), rules.constants) for name in SOLVERS}
        watched = _WatchedPolicy(rules.policy, others)
        run_rounds(world, replace(rules, policy=watched), StatisticsModel(scenario, world.dataset_sizes), scenario)
        rounds, weight = scenario.federation.rounds, scenario.control.paper.energy_weight
        return {name: total / rounds / weight for name, total in watched.excess.items()}


class _WatchedPolicy:
    """A policy that also asks others for their decision, and sums by how much their J exceeds its own."""

    def __init__(self, policy: Policy, others: dict[str, Policy]) -> None:
        self._policy = policy
        self._others = others
        self.excess = dict.fromkeys(others, 0.0)

    def init(self, statistics: Statistics) -> PolicyState:
        return self._policy.init(statistics)

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        decision = self._policy.decide(state, observation, rng)
        for name, other in self._others.items():
            self.excess[name] += _objective(other.decide(state, observation, rng)) - _objective(decision)
        return decision

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        return self._policy.update(state, decision, outcome)


def study_jobs(seeds: int, rounds: int, studies: Path, *, brief: bool) -> list[SavingsStudy | SolverStudy]:
    """Both studies on the first task with all its data and the statistics of a training on EMNIST.

    `brief` is for a smoke test.
    """
    base = [
        f"federation.rounds={rounds}",
        "statistics.model=trace",
        "statistics.trace=emnist",
        "control.form=paper",
        f"codec.name={PAPERS_CODEC}",
    ]
    jobs: list[SavingsStudy | SolverStudy] = []
    for clients, channels in CELL_SIZES[: 2 if brief else None]:
        size = [f"federation.num_clients={clients}", f"radio.num_channels={channels}"]
        scenario, cells = load_scenario("femnist", [*base, *size]), min(seeds, 10)
        label = f"solvers, {clients} × {channels}"
        folder = studies / f"solvers-{digest(scenario.model_dump(), cells)[:12]}"
        jobs.append(SolverStudy(label=label, folder=folder, steps=cells, step_kind=label, scenario=scenario))
    for factor in FACTORS:
        for value in factor.values[:: 2 if brief and len(factor.values) > 3 else 1]:
            change = [] if factor.key == "principle" else [f"{factor.key}={value!r}"]
            scenario = load_scenario("femnist", [*base, "data.dataset_size_std=300", *change])
            jobs.append(
                SavingsStudy(
                    label=f"savings, {factor.name} = {value}",
                    folder=studies / f"savings-{digest(scenario.model_dump(), factor.name, value, seeds)[:12]}",
                    steps=seeds,
                    step_kind="savings",
                    scenario=scenario,
                    factor=factor.name,
                    value=value,
                )
            )
    return jobs


def _cell_by_cell(
    folder: Path, scenario: Scenario, seeds: int, measure: Callable[[int], Measurements], on_step: OnStep
) -> dict[str, dict[str, list[Any]]]:
    """The measurements of all cells, as lists over cells. Resumes after the last completed cell."""
    part = folder / PART
    try:
        cells: list[Measurements] = json.loads(part.read_text(encoding="utf-8")) if part.exists() else []
    except ValueError:
        raise RunFolderError(f"{part} is damaged: delete it, and this study starts again.") from None
    for k in range(len(cells), seeds):
        cells.append(measure(scenario.federation.seed + k))
        write_text_whole(part, json.dumps(cells))
        on_step(k + 1)
    return {
        quantity: {name: [cell[quantity][name] for cell in cells] for name in names}
        for quantity, names in cells[0].items()
    }


def _objective(decision: Decision) -> float:
    assert decision.certificate is not None
    return decision.certificate.objective


def _mean_bits(run: Run) -> list[float | None]:
    return [None if np.isnan(bits) else float(bits) for bits in run.mean_bits]


def _write(folder: Path, **result: Any) -> None:
    write_text_whole(folder / RESULT, json.dumps(result) + "\n")
    (folder / PART).unlink()
