"""What a federation costs in its cell, with no training: many rounds of decisions, settled in joules and seconds.

The statistics that training would supply come from a stated model: constants, or a trace.
"""

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from qccf.core.contracts import BoolArray, FloatArray, IntArray, Statistics
from qccf.core.correlation import relation_within_rounds
from qccf.core.errors import ConfigError
from qccf.core.streams import stream
from qccf.devices.cost import settle
from qccf.policies.checks import checked_decision, checked_state
from qccf.policies.registry import build_policy
from qccf.rounds.world import World, build_world
from qccf.settings.loading import Scenario
from qccf.settings.schema import PAPERS_CODEC

TRACE_COLUMNS = ("gradient_norm_sq", "gradient_variance", "weight_range", "loss")
TRACE_LIMIT = 1e6
BUNDLED_TRACES = ("growing-weights",)


@dataclass(frozen=True)
class PlannedRun:
    """One policy in one world. Arrays are [round, client]; `energy_j` is all that a client spent in the round."""

    policy: str
    world: World
    energy_j: FloatArray
    compute_energy_j: FloatArray
    latency_s: FloatArray
    num_bits: IntArray
    participated: BoolArray
    missed: BoolArray
    queues: FloatArray
    """λ1 and λ2 at the start of each round [round, 2]; NaN for a policy that keeps none."""
    decision_s: FloatArray
    """How long the policy took to decide each round, by the clock."""


def plan(
    scenario: Scenario,
    policies: Sequence[str],
    num_seeds: int,
    on_progress: Callable[[str, int], None] | None = None,
) -> list[PlannedRun]:
    """Every policy in the same worlds: same places, sizes and fading, seed by seed.

    Uploads cost what the paper's quantizer makes of them: of other codecs nothing is known without training.
    """
    scenario = scenario.with_codec(PAPERS_CODEC)
    model = StatisticsModel(scenario)
    first = scenario.federation.seed
    worlds = [build_world(scenario, first + k) for k in range(num_seeds)]
    runs = []
    for name in dict.fromkeys(policies):
        for world in worlds:
            if on_progress is not None:
                on_progress(name, world.seed)
            runs.append(plan_run(world, name, model))
    return runs


def plan_run(
    world: World,
    policy_name: str,
    model: "StatisticsModel",
    on_round: Callable[[int], None] = lambda _: None,
) -> PlannedRun:
    """One policy through all rounds of one world; `on_round` hears how many are done."""
    scenario = world.scenario
    rounds, clients = scenario.federation.rounds, scenario.federation.num_clients
    constants = scenario.constants()
    policy = build_policy(policy_name, scenario)
    record = PlannedRun(
        policy=policy_name,
        world=world,
        energy_j=np.zeros((rounds, clients)),
        compute_energy_j=np.zeros((rounds, clients)),
        latency_s=np.zeros((rounds, clients)),
        num_bits=np.zeros((rounds, clients), dtype=np.int64),
        participated=np.zeros((rounds, clients), dtype=bool),
        missed=np.zeros((rounds, clients), dtype=bool),
        queues=np.full((rounds, 2), np.nan),
        decision_s=np.zeros(rounds),
    )
    statistics, _ = model.at(0, world.dataset_sizes)
    state = checked_state(policy.init(statistics), policy_name)
    for n in range(rounds):
        statistics, losses = model.at(n, world.dataset_sizes)
        observation = world.observe(n, statistics)
        rng = stream(world.seed, "policy", policy_name, n)
        started = time.perf_counter()
        made = policy.decide(state, observation, rng)
        record.decision_s[n] = time.perf_counter() - started
        decision = checked_decision(made, observation, constants, policy_name)
        outcome = settle(decision, observation, constants, losses=losses)
        record.queues[n] = state.get("participation_queue", np.nan), state.get("quantization_queue", np.nan)
        state = checked_state(policy.update(state, decision, outcome), policy_name)
        record.energy_j[n] = outcome.energy_j
        record.compute_energy_j[n] = outcome.compute_energy_j
        record.latency_s[n] = outcome.latency_s
        record.num_bits[n] = decision.num_bits
        record.participated[n] = decision.participates
        record.missed[n] = outcome.missed
        on_round(n + 1)
    return record


class StatisticsModel:
    """G², σ², θ_max and loss for every round: constants from the config, or a trace file.

    A trace is CSV with a `round` column, any of `gradient_norm_sq`, `gradient_variance`, `weight_range` and `loss`, and
    optionally `client`. Between its rounds values are interpolated, beyond them held; a column it lacks is constant.
    """

    def __init__(self, scenario: Scenario) -> None:
        s = scenario.statistics
        self._constants = {name: getattr(s, name) for name in TRACE_COLUMNS}
        self._num_clients = scenario.federation.num_clients
        self._series = _read_trace(s.trace, self._num_clients) if s.model == "trace" else {}

    def at(self, round_index: int, dataset_sizes: FloatArray) -> tuple[Statistics, FloatArray]:
        """The statistics and the losses of one round."""
        values = {name: np.full(self._num_clients, value) for name, value in self._constants.items()}
        for (name, client), (rounds, series) in self._series.items():
            value = np.interp(round_index, rounds, series)
            values[name][slice(None) if client is None else client] = value
        statistics = Statistics(
            dataset_sizes=dataset_sizes,
            gradient_norms_sq=values["gradient_norm_sq"],
            gradient_variances=values["gradient_variance"],
            weight_ranges=values["weight_range"],
        )
        return statistics, values["loss"]


_Series = dict[tuple[str, int | None], tuple[FloatArray, FloatArray]]


def _read_trace(name: str, num_clients: int) -> _Series:
    try:
        if name in BUNDLED_TRACES:
            text = (
                resources.files("qccf.settings")
                .joinpath("presets", "traces", f"{name}.csv")
                .read_text(encoding="utf-8")
            )
        else:
            text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(
            f"statistics.trace = {name!r} cannot be read: {reason}; bundled traces: {', '.join(BUNDLED_TRACES)}."
        ) from None
    reader = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    columns = set(reader.fieldnames or [])
    unknown = columns - {"round", "client", *TRACE_COLUMNS}
    if "round" not in columns or unknown:
        problem = f"has the unknown column {sorted(unknown)[0]!r}" if unknown else "has no column 'round'"
        raise ConfigError(
            f"statistics.trace = {name!r} {problem}: it has round, any of {', '.join(TRACE_COLUMNS)}, perhaps client."
        )
    points: dict[tuple[str, int | None], list[tuple[float, float]]] = {}
    if len(columns) < len(reader.fieldnames or []):
        raise ConfigError(f"statistics.trace = {name!r} has a column twice.")
    for line, row in enumerate(reader, start=1):
        if None in row:
            raise ConfigError(f"statistics.trace = {name!r}: row {line} has more cells than there are columns.")
        try:
            client = int(row["client"]) if "client" in columns else None
            cells = {column: float(row[column]) for column in columns - {"client"}}
        except (TypeError, ValueError):
            raise ConfigError(f"statistics.trace = {name!r}: row {line} is not all numbers: {dict(row)}.") from None
        if client is not None and not 0 <= client < num_clients:
            raise ConfigError(
                f"statistics.trace = {name!r}: row {line} names client {client}, but there are clients 0 to "
                f"{num_clients - 1}."
            )
        if not all(0.0 <= value <= TRACE_LIMIT for value in cells.values()):
            raise ConfigError(
                f"statistics.trace = {name!r}: row {line} has a value that is not between 0 and {TRACE_LIMIT:g}."
            )
        for column in columns & set(TRACE_COLUMNS):
            points.setdefault((column, client), []).append((cells["round"], cells[column]))
    if not points:
        raise ConfigError(f"statistics.trace = {name!r} holds no values.")
    if any(len({n for n, _ in series}) < len(series) for series in points.values()):
        raise ConfigError(f"statistics.trace = {name!r} gives a round twice.")
    return {key: (np.array(sorted(p))[:, 0], np.array(sorted(p))[:, 1]) for key, p in points.items()}


def summarise(runs: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    """One row a policy: means over seeds, with the spread beside them."""
    names = list(dict.fromkeys(run.policy for run in runs))
    return [_summary([run for run in runs if run.policy == name]) for name in names]


def _summary(runs: list[PlannedRun]) -> dict[str, Any]:
    totals_j = np.array([run.energy_j.sum() for run in runs])
    spent_j = np.concatenate([run.energy_j[run.participated] for run in runs])
    latencies_s = np.concatenate([run.latency_s.max(axis=1)[run.participated.any(axis=1)] for run in runs])
    bits = np.concatenate([run.num_bits[run.participated] for run in runs])
    tenth = max(1, runs[0].num_bits.shape[0] // 10)
    correlations = [c for c in (bits_size_correlation(run) for run in runs) if np.isfinite(c)]
    invited = sum(int(run.participated.sum()) for run in runs)
    return {
        "policy": runs[0].policy,
        "seeds": len(runs),
        "energy_j": _spread(totals_j),
        "compute_energy_share": float(sum(r.compute_energy_j.sum() for r in runs) / max(totals_j.sum(), 1e-300)),
        "energy_per_upload_j": _spread(spent_j),
        "round_latency_s": _spread(latencies_s),
        "participation": _spread(np.concatenate([run.participated.mean(axis=1) for run in runs])),
        "missed": float(sum(run.missed.sum() for run in runs) / max(invited, 1)),
        "bits": _spread(bits),
        "bits_first_tenth": _mean_bits(runs, slice(None, tenth)),
        "bits_last_tenth": _mean_bits(runs, slice(-tenth, None)),
        "bits_size_correlation": _spread(np.array(correlations)),
    }


def bits_size_correlation(run: PlannedRun) -> float:
    """Rank correlation of bits with dataset size within a round, mean over rounds; NaN if either never varies."""
    rounds, clients = np.nonzero(run.participated)
    bits, sizes = run.num_bits[rounds, clients].astype(float), run.world.dataset_sizes[clients]
    if len(bits) < 2 or np.ptp(bits) == 0 or np.ptp(sizes) == 0:
        return float("nan")
    return relation_within_rounds(rounds, sizes, bits)


def _mean_bits(runs: list[PlannedRun], part: slice) -> float | None:
    values = np.concatenate([run.num_bits[part][run.participated[part]] for run in runs])
    return float(values.mean()) if len(values) else None


def _spread(values: FloatArray | IntArray) -> dict[str, float] | None:
    if len(values) == 0:
        return None
    return {
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        "p05": float(np.quantile(values, 0.05)),
        "p95": float(np.quantile(values, 0.95)),
    }


def plan_to_json(scenario: Scenario, runs: Sequence[PlannedRun]) -> dict[str, Any]:
    """The plan as plain values: settings, summary, and each run round by round and client by client."""
    return {
        "scenario": scenario.model_dump(),
        "summary": summarise(runs),
        "runs": [_run_to_json(run) for run in runs],
    }


def _run_to_json(run: PlannedRun) -> dict[str, Any]:
    on = run.participated
    uploads = on.sum(axis=0)
    rounds_on = on.sum(axis=1)
    return {
        "policy": run.policy,
        "seed": run.world.seed,
        "rounds": {
            "energy_j": run.energy_j.sum(axis=1).tolist(),
            "latency_s": run.latency_s.max(axis=1).tolist(),
            "participants": rounds_on.tolist(),
            "missed": run.missed.sum(axis=1).tolist(),
            "mean_bits": _ratio(run.num_bits.sum(axis=1), rounds_on),
            "participation_queue": _finite(run.queues[:, 0]),
            "quantization_queue": _finite(run.queues[:, 1]),
        },
        "clients": {
            "position_m": run.world.cell.positions_m.tolist(),
            "dataset_size": run.world.dataset_sizes.tolist(),
            "uploads": uploads.tolist(),
            "missed": run.missed.sum(axis=0).tolist(),
            "energy_j": run.energy_j.sum(axis=0).tolist(),
            "mean_latency_s": _ratio(run.latency_s.sum(axis=0), uploads),
            "mean_bits": _ratio(run.num_bits.sum(axis=0), uploads),
        },
    }


def _finite(values: FloatArray) -> list[float] | None:
    return values.tolist() if np.isfinite(values).all() else None


def _ratio(sums: IntArray | FloatArray, counts: IntArray) -> list[float | None]:
    return [float(total / count) if count else None for total, count in zip(sums, counts, strict=True)]
