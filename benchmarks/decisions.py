"""Decisions alone, in many cells: what each policy spends where the statistics of real trainings are replayed.

Run: python -m benchmarks.decisions [--studies A,B] [--cells 50]
The statistics are those of the recordings in benchmarks/trainings (see benchmarks/record_statistics.py), which the
cells take in turn; positions, fading and dataset sizes differ from cell to cell. All runs use the paper's form of the
controller, and its codec unless a policy says otherwise.

Results are kept cell by cell in --record (committed); the same command computes only what is missing. Studies are done
ten cells at a time, so that a stopped command has the same cells for every point. Maps and the genetic algorithm have
fewer cells (`MOST_CELLS`). Several commands may fill one record at a time, each with its own studies.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from qccf.control.channels_genetic import GeneticSettings
from qccf.control.paper_form import PaperForm
from qccf.control.solve import solve_round
from qccf.core.contracts import Decision, Observation, Outcome, PolicyState, Statistics
from qccf.core.correlation import relation
from qccf.core.errors import QccfError
from qccf.core.files import write_text_whole
from qccf.policies.qccf import Qccf
from qccf.rounds.health import jain_index
from qccf.rounds.recordings import Recording, read_recording
from qccf.rounds.run import Run
from qccf.rounds.setup import build_policy
from qccf.rounds.sources import BundledStatistics
from qccf.rounds.world import build_world
from qccf.runtimes.planner import planned_rules, planned_scenario, run_rounds
from qccf.settings.loading import Scenario, digest, load_scenario

RECORD = Path("docs/results/decisions.json")
TRAININGS = Path("benchmarks/trainings")
NUM_TRAININGS = 8
"""So many trainings are replayed in turn, wherever nothing else is said."""
EACH_TRAINING = "emnist-?.npz"
BATCH = 10
MOST_CELLS = {"genetic": 10, "T_max × B": 20, "gain × B (bandwidth)": 20, "gain × B (deadline)": 20, "λ2⁰ × L": 20}
"""Of studies with many points."""
KEPT_IN_MAPS = ("energy_j", "participation", "late")
DIGITS = 5

POLICIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "qccf": ("qccf", ()),
    "same-size, CPU follows": ("same-size", ("same_size.cpu=follows",)),
    "same-size, joint": ("same-size", ("same_size.cpu=joint",)),
    "principle, paper": ("principle", ("principle.form=paper",)),
    "principle, published": ("principle", ("principle.form=published",)),
    "principle, published, updates": ("principle", ("principle.form=published", "codec.name=update")),
    "qccf, updates": ("qccf", ("codec.name=update",)),
    "channel-allocate": ("channel-allocate", ()),
    "no-quantization": ("no-quantization", ()),
} | {f"fixed-bits {bits}": ("fixed-bits", (f"fixed_bits.bits={bits}",)) for bits in range(1, 9)}
"""What is compared: both readings of same-size, both forms of principle, and every constant."""
CONSTANTS = tuple(name for name in POLICIES if name.startswith("fixed-bits"))
READINGS = ("qccf", "same-size, CPU follows", "same-size, joint", "principle, paper", "channel-allocate")

GENETIC = {
    f"{size} x {size}, p_c {crossed:g}, p_m {mutated:g}, ι {power:g}{', elitism 1' * elitism}": GeneticSettings(
        size, size, crossed, mutated, power, elitism
    )
    for size, crossed, mutated, power, elitism in product(
        (20, 50, 100), (0.6, 0.9), (0.01, 0.05, 0.2), (1.0, 4.0), (0, 1)
    )
}
"""Population x generations and the rest. The paper gives no hyperparameters, and keeps no elite."""
GENETIC_ROUNDS = 10


@dataclass(frozen=True)
class Point:
    """One setting of a study."""

    study: str
    label: str
    settings: tuple[str, ...]
    policies: tuple[str, ...] = READINGS
    genetic: bool = False
    kept: tuple[str, ...] = ()
    """The measures that are recorded; all of them if it is empty."""
    trainings: str = EACH_TRAINING
    """Which recordings its cells take in turn."""

    @property
    def key(self) -> str:
        return f"{self.study}: {self.label}"


def points() -> Iterator[Point]:
    """Every setting of every study, the most important first."""
    for beta in (300, 150):
        compared = tuple(name for name in POLICIES if name not in CONSTANTS)
        yield Point("policies", f"β = {beta}", (f"data.dataset_size_std={beta}",), compared)
    yield Point("constants", "β = 300", ("data.dataset_size_std=300",), CONSTANTS)
    for weight in (0.1, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000):
        yield Point("V", f"V = {weight}", (f"control.paper.energy_weight={weight}",), ("qccf",))
    compared = tuple(name for name in POLICIES if name not in CONSTANTS)
    yield Point("trained under principle", "β = 300", (), compared, trainings="emnist-0-principle.npz")
    for channels in (5, 10, 20):
        size = ("federation.num_clients=20", f"radio.num_channels={channels}")
        yield Point("channels", f"20 clients, {channels} channels", size, (*READINGS, "no-quantization"))
    for deadline, bandwidth in product((0.01, 0.02, 0.05, 0.1, 0.2), (1, 2, 5, 10, 20)):
        settings = (f"device.deadline_s={deadline}", f"radio.bandwidth_hz={bandwidth}e6")
        yield Point("T_max × B", f"T_max = {deadline:g} s, B = {bandwidth} MHz", settings, kept=KEPT_IN_MAPS)
    for repair, (deadline, bandwidths) in {"bandwidth": (0.02, (5, 10, 20)), "deadline": (0.15, (1, 2, 4))}.items():
        for gain, bandwidth in product((-10, 0, 10, 20), bandwidths):
            settings = (f"device.deadline_s={deadline}", f"radio.gain_db={gain}", f"radio.bandwidth_hz={bandwidth}e6")
            yield Point(f"gain × B ({repair})", f"gain {gain} dB, B = {bandwidth} MHz", settings, kept=KEPT_IN_MAPS)
    for margin, smoothness in product((0.1, 0.5, 2.0), (0.005, 0.015, 0.05, 0.15, 0.5)):
        settings = (f"control.paper.quantization_margin={margin}", f"learning.smoothness={smoothness}")
        yield Point("λ2⁰ × L", f"λ2⁰ - ε2 = {margin:g}, L = {smoothness:g}", settings, kept=KEPT_IN_MAPS)
    for clients, channels in ((10, 10), (10, 5), (20, 10)):
        size = (f"federation.num_clients={clients}", f"radio.num_channels={channels}")
        yield Point("genetic", f"{clients} clients, {channels} channels", size, genetic=True)


def scenario_of(point: Point, policy: str = "qccf", own: Sequence[str] = ()) -> Scenario:
    common = ("control.form=paper", "codec.name=model", "data.dataset_size_std=300", "federation.rounds=100")
    scenario = load_scenario("femnist", [*common, *point.settings, *own])
    return planned_scenario(scenario.replaced(policy={"name": policy}))


def recordings_of(point: Point, folder: Path) -> list[Recording]:
    """The trainings that the cells of a point take in turn."""
    found = [read_recording(file.read_bytes()) for file in sorted(folder.glob(point.trainings))]
    if not found:
        raise SystemExit(f"{folder} has no {point.trainings}: make it with benchmarks.record_statistics.")
    if point.trainings == EACH_TRAINING and len(found) != NUM_TRAININGS:
        raise SystemExit(f"{folder} has {len(found)} of {NUM_TRAININGS} trainings {point.trainings}: make the others.")
    return found


def measures(run: Run) -> dict[str, float]:
    """The figures of a run that are kept."""
    errors = np.asarray(run.round_columns["aggregate_error"], dtype=float)
    return {
        "energy_j": float(run.energy_j[-1]),
        "bits": run.mean_upload_bits(),
        "last_bits": run.final_bits(),
        "error": float(np.nanmean(errors)) if np.isfinite(errors).any() else float("nan"),
        "late": run.missed_share(),
        "participation": float(run.by_round("arrived").mean()),
        "fairness": jain_index(run.by_round("participated").sum(axis=0).astype(float)) or float("nan"),
        "round_s": float(run.round_columns["latency_s"].mean()),
        "bits_round": relation(np.asarray(run.round_columns["round"], dtype=float), run.mean_bits),
        "bits_size": float(run.summary["bits_size_correlation"] or 0.0),
    }


Cell = dict[str, dict[str, float]]
"""Policy, then measure."""


def policies_in_cell(point: Point, recording: Recording, seed: int) -> Cell:
    """The measures of every policy in one cell; unknown where no client can ever upload."""
    found: Cell = {}
    for label in point.policies:
        policy, settings = POLICIES[label]
        scenario = scenario_of(point, policy, settings).replaced(federation={"seed": seed})
        try:
            world = build_world(scenario, seed)
        except QccfError:
            return {name: {"energy_j": float("nan")} for name in point.policies}
        source = BundledStatistics(scenario, world.dataset_sizes, recording)
        every = measures(run_rounds(world, planned_rules(scenario), source, scenario))
        found[label] = {name: value for name, value in every.items() if name in (point.kept or every)}
    return found


class _GeneticGaps:
    """The exact policy, which also lets the genetic algorithm decide each of its rounds."""

    def __init__(self, policy: Qccf) -> None:
        self._policy = policy
        self.gaps: dict[str, list[float]] = {name: [] for name in GENETIC}
        self.lost_j: dict[str, list[float]] = {name: [] for name in GENETIC}

    def init(self, statistics: Statistics) -> PolicyState:
        return self._policy.init(statistics)

    def decide(self, state: PolicyState, observation: Observation, rng: np.random.Generator) -> Decision:
        assert isinstance(self._policy.form, PaperForm)
        problem = self._policy.form.problem(state, observation)
        best = solve_round(problem)
        assert best.certificate is not None
        gain = problem.empty_objective - best.certificate.objective
        for name, genetic in GENETIC.items():
            decision = solve_round(problem, solver="genetic", rng=rng, genetic=genetic)
            assert decision.certificate is not None
            if gain > 0.0:
                excess = decision.certificate.objective - best.certificate.objective
                self.gaps[name].append(excess / gain)
                self.lost_j[name].append(excess / problem.energy_price)
        return best

    def update(self, state: PolicyState, decision: Decision, outcome: Outcome) -> PolicyState:
        return self._policy.update(state, decision, outcome)


def genetic_in_cell(point: Point, recording: Recording, seed: int) -> Cell:
    """The mean gap of the genetic algorithm for each choice of settings: as a share of the gain of participation, and
    as the joules per round that would raise J as much."""
    scenario = scenario_of(point).replaced(federation={"seed": seed, "rounds": GENETIC_ROUNDS})
    world, rules = build_world(scenario, seed), planned_rules(scenario)
    policy = build_policy("qccf", scenario, rules.constants)
    assert isinstance(policy, Qccf)
    watched = _GeneticGaps(policy)
    source = BundledStatistics(scenario, world.dataset_sizes, recording)
    run_rounds(world, replace(rules, policy=watched), source, scenario)
    return {
        name: {"gap": float(np.mean(gaps)), "lost_j": float(np.mean(watched.lost_j[name]))}
        for name, gaps in watched.gaps.items()
        if gaps
    }


Columns = dict[str, dict[str, list[float | None]]]
"""Policy, measure, then one value per cell; None where the cell has none."""
Recorded = dict[str, Columns]


MADE_OF = "made of"


def fingerprint(trainings: Path) -> str:
    """What the cells of a record depend on besides their settings: the trainings and what is compared."""
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(trainings.glob("*.npz"))}
    return digest(files, list(POLICIES.items()), list(GENETIC))[:12]


def read_record(file: Path, made_of: str = "") -> Recorded:
    """The recorded points; with `made_of`, refuses a record of other trainings or policies."""
    tree = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {MADE_OF: made_of}
    if made_of and tree.get(MADE_OF) != made_of:
        raise SystemExit(f"{file} was computed from other trainings or policies: delete it, or give another --record.")
    return {key: columns for key, columns in tree.items() if key != MADE_OF}


def write_record(file: Path, recorded: Recorded, made_of: str) -> None:
    """One line per point and policy, so that a change is seen where it is."""
    parts = [f" {json.dumps(MADE_OF)}: {json.dumps(made_of)}"]
    for key, columns in recorded.items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in columns.items())
        parts.append(f" {json.dumps(key, ensure_ascii=False)}: {{\n{rows}\n }}")
    write_text_whole(file, "{\n" + ",\n".join(parts) + "\n}\n")


def cells_of(columns: Columns) -> int:
    return max((len(values) for measured in columns.values() for values in measured.values()), default=0)


def extended(columns: Columns, cell: Cell, before: int) -> Columns:
    """The columns with one cell more; values that the cell does not have are None."""
    names = {name: dict.fromkeys([*columns.get(name, {}), *cell.get(name, {})]) for name in [*columns, *cell]}
    return {
        name: {
            measure: [*columns.get(name, {}).get(measure, [None] * before), _kept(cell.get(name, {}).get(measure))]
            for measure in measured
        }
        for name, measured in names.items()
    }


def _kept(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.{DIGITS}g}")


def compute(chosen: Sequence[Point], cells: int, file: Path, trainings: Path) -> None:
    """Add the missing cells of every point, a batch of cells at a time.

    The record is read again before it is written, because another command may have added other studies to it.
    """
    made_of = fingerprint(trainings)
    recorded = read_record(file, made_of)
    for upto in range(BATCH, cells + BATCH, BATCH):
        for point in chosen:
            columns = recorded.get(point.key, {})
            missing = range(cells_of(columns), min(upto, cells, MOST_CELLS.get(point.study, cells)))
            if not missing:
                continue
            found = recordings_of(point, trainings)
            for seed in missing:
                in_cell = genetic_in_cell if point.genetic else policies_in_cell
                columns = extended(columns, in_cell(point, found[seed % len(found)], seed), seed)
            recorded = read_record(file, made_of) | {point.key: columns}
            write_record(file, recorded, made_of)
            print(f"{point.key}: {cells_of(columns)} cells", flush=True)


def main() -> None:
    every = list(points())
    names = list(dict.fromkeys(point.study for point in every))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", default=",".join(names), metavar="A,B,…", help=f"default {', '.join(names)}")
    parser.add_argument("--cells", type=int, default=50)
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE", help=f"default {RECORD}")
    parser.add_argument("--trainings", type=Path, default=TRAININGS, metavar="FOLDER", help=f"default {TRAININGS}")
    options = parser.parse_args()
    wanted = {name.strip() for name in options.studies.split(",")}
    if unknown := wanted - set(names):
        parser.error(f"--studies {sorted(unknown)[0]} is not one of {', '.join(names)}")
    compute([point for point in every if point.study in wanted], options.cells, options.record, options.trainings)


if __name__ == "__main__":
    main()
