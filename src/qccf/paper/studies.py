"""Two questions that decisions alone answer: what the paper's own solvers cost, and what the savings hang on.

Nothing is trained; the statistics come from the model in the scenario, as in `qccf plan`.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from qccf.core.contracts import Decision, Observation, State
from qccf.core.files import write_text_whole
from qccf.core.streams import stream
from qccf.devices.cost import settle
from qccf.jobs.queue import Job, OnStep
from qccf.policies.qccf import Qccf
from qccf.policies.registry import build_policy
from qccf.rounds.world import build_world
from qccf.runtimes.planner import PlannedRun, StatisticsModel, plan_run
from qccf.settings.loading import Scenario, load_scenario
from qccf.settings.schema import PAPERS_CODEC

RESULT = "study.json"
PART = "part.json"
"""The cells that a study has got through, until it has its result."""

Cell = dict[str, dict[str, Any]]
"""Quantity → policy or solver → value."""

# The paper's own pair first. Its closed form takes one Taylor step from a client's last bits in Case 5.
SOLVERS: dict[str, tuple[str, str]] = {
    "genetic, closed form": ("genetic", "closed-form-taylor"),
    "genetic, exact bits": ("genetic", "exact"),
    "assignment, closed form": ("assignment", "closed-form-taylor"),
}
CELL_SIZES = ((10, 10), (10, 5), (30, 15), (60, 30))


@dataclass(frozen=True)
class Factor:
    """A setting that the paper leaves open, and the values to try; the default is among them."""

    name: str
    key: str
    values: tuple[float | str, ...]
    unit: str
    log: bool = True


FACTORS = (
    Factor("bandwidth", "radio.bandwidth_hz", (6e6, 8e6, 10e6, 15e6, 20e6, 40e6), "Hz"),
    Factor("channel gain", "radio.gain_db", (-5.0, 0.0, 5.0, 10.0, 20.0), "dB", log=False),
    Factor("ε2", "control.quantization_budget", (0.003, 0.01, 0.03, 0.1, 0.3), ""),
    Factor("λ2⁰ - ε2", "control.quantization_margin", (0.1, 0.25, 0.5, 1.0, 2.0), ""),
    Factor("L", "learning.smoothness", (0.005, 0.015, 0.05, 0.15, 0.5), ""),
    Factor("rounds between rises of principle's bits", "principle.patience", (5, 10, 20, 50, 100), ""),
    Factor("who pays for a missed deadline", "principle", ("client", "nobody", "late"), "", log=False),
)
PAYERS = {
    "client": ("principle", "the client, until the deadline; the upload is lost"),
    "nobody": ("qccf.paper.studies:SparedPrinciple", "nobody: who would be late is left out beforehand"),
    "late": ("qccf.paper.studies:PatientPrinciple", "the client, to the end; the late upload counts"),
}


class _Principle:
    """Principle with another rule for uploads that would be late."""

    def __init__(self, constants: Any, *, rounds: int, **options: Any) -> None:
        from qccf.policies.principle import Principle

        self.constants = constants
        self._rule = Principle(constants, rounds=rounds, **options)

    def init(self, statistics: Any) -> State:
        return self._rule.init(statistics)

    def update(self, state: State, decision: Decision, outcome: Any) -> State:
        return self._rule.update(state, decision, outcome)


class SparedPrinciple(_Principle):
    """Who cannot make the deadline is not invited, and spends nothing."""

    def decide(self, state: State, observation: Observation, rng: np.random.Generator) -> Decision:
        decision = self._rule.decide(state, observation, rng)
        late = settle(decision, observation, self.constants).missed
        return Decision(
            np.where(late, -1, decision.channels),
            np.where(late, 0, decision.num_bits),
            np.where(late, 0.0, decision.frequencies_hz),
        )


class PatientPrinciple(_Principle):
    """The server waits: a late client computes at full speed and uploads to the end."""

    def decide(self, state: State, observation: Observation, rng: np.random.Generator) -> Decision:
        return replace(self._rule.decide(state, observation, rng), deadline_exempt=True)


@dataclass(frozen=True, kw_only=True)
class SavingsStudy(Job):
    """QCCF's savings against two baselines with one setting changed, one cell per step."""

    scenario: Scenario
    factor: str
    value: float | str
    result: ClassVar[str] = RESULT

    def run(self, folder: Path, on_step: OnStep) -> None:
        model = StatisticsModel(self.scenario)
        principle = PAYERS[str(self.value)][0] if self.factor == FACTORS[-1].name else "principle"
        policies = {"qccf": "qccf", "principle": principle, "same-size": "same-size"}

        def cell(seed: int) -> Cell:
            world = build_world(self.scenario, seed)
            runs = {name: plan_run(world, policy, model) for name, policy in policies.items()}
            return {
                "energy_j": {name: float(run.energy_j.sum()) for name, run in runs.items()},
                "missed": {
                    name: float(run.missed.sum() / max(run.participated.sum(), 1)) for name, run in runs.items()
                },
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
        model = StatisticsModel(self.scenario)

        def cell(seed: int) -> Cell:
            runs = {name: plan_run(build_world(self._with(name), seed), "qccf", model) for name in ("exact", *SOLVERS)}
            return {
                "energy_j": {name: float(run.energy_j.sum()) for name, run in runs.items()},
                "mean_bits": {name: _mean_bits(run) for name, run in runs.items()},
                "participation": {name: float(run.participated.mean()) for name, run in runs.items()},
                "gap_j": self._gaps_j(seed, model),
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
        control = self.scenario.control.model_copy(update={"solver": solver, "inner": inner})
        return self.scenario.model_copy(update={"control": control})

    def _gaps_j(self, seed: int, model: StatisticsModel) -> dict[str, float]:
        """What each pair leaves on the table a round, (J - J of the exact decision)/V, on the exact one's rounds."""
        world = build_world(self.scenario, seed)
        exact = build_policy("qccf", self.scenario)
        others = {name: build_policy("qccf", self._with(name)) for name in SOLVERS}
        assert isinstance(exact, Qccf)
        statistics, _ = model.at(0, world.dataset_sizes)
        state = exact.init(statistics)
        totals = dict.fromkeys(SOLVERS, 0.0)
        rounds = self.scenario.federation.rounds
        for n in range(rounds):
            statistics, losses = model.at(n, world.dataset_sizes)
            observation = world.observe(n, statistics)
            rng = stream(seed, "policy", "qccf", n)
            decision = exact.decide(state, observation, rng)
            for name, other in others.items():
                totals[name] += _objective(other.decide(state, observation, rng)) - _objective(decision)
            outcome = settle(decision, observation, self.scenario.constants(), losses=losses)
            state = exact.update(state, decision, outcome)
        return {name: total / rounds / self.scenario.control.energy_weight for name, total in totals.items()}


def study_jobs(seeds: int, rounds: int, studies: Path, *, brief: bool) -> list[SavingsStudy | SolverStudy]:
    """Both studies on the first task with all its data, θ_max growing as in training; `brief` for a smoke test."""
    base = [
        f"federation.rounds={rounds}",
        "statistics.model=trace",
        "statistics.trace=growing-weights",
        f"codec.name={PAPERS_CODEC}",
    ]
    jobs: list[SavingsStudy | SolverStudy] = []
    for clients, channels in CELL_SIZES[: 2 if brief else None]:
        size = [f"federation.num_clients={clients}", f"radio.num_channels={channels}"]
        scenario, cells = load_scenario("femnist", [*base, *size]), min(seeds, 10)
        label = f"solvers, {clients} × {channels}"
        folder = studies / f"solvers-{_key(scenario, cells)}"
        jobs.append(SolverStudy(label=label, folder=folder, steps=cells, step_kind=label, scenario=scenario))
    for factor in FACTORS:
        for value in factor.values[:: 2 if brief and len(factor.values) > 3 else 1]:
            change = [] if factor.key == "principle" else [f"{factor.key}={value!r}"]
            scenario = load_scenario("femnist", [*base, "data.dataset_size_std=300", *change])
            jobs.append(
                SavingsStudy(
                    label=f"savings, {factor.name} = {value}",
                    folder=studies / f"savings-{_key(scenario, factor.name, value, seeds)}",
                    steps=seeds,
                    step_kind="savings",
                    scenario=scenario,
                    factor=factor.name,
                    value=value,
                )
            )
    return jobs


def _cell_by_cell(
    folder: Path, scenario: Scenario, seeds: int, measure: Callable[[int], Cell], on_step: OnStep
) -> dict[str, dict[str, list[Any]]]:
    """What is measured in each cell, as lists over cells. Goes on after the last cell of an interrupted study."""
    part = folder / PART
    cells: list[Cell] = json.loads(part.read_text(encoding="utf-8")) if part.exists() else []
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


def _mean_bits(run: PlannedRun) -> list[float | None]:
    uploads = run.participated.sum(axis=1)
    sums: Sequence[int] = run.num_bits.sum(axis=1)
    return [float(total / count) if count else None for total, count in zip(sums, uploads, strict=True)]


def _key(scenario: Scenario, *rest: Any) -> str:
    text = json.dumps([scenario.model_dump(), *rest], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _write(folder: Path, **result: Any) -> None:
    write_text_whole(folder / RESULT, json.dumps(result) + "\n")
    (folder / PART).unlink()
