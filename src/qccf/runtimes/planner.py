"""The energy and latency of a federation without training: many rounds of decisions, settled in joules and seconds.

The statistics that training would measure come from a source: a recording, constants, a trace, or a recorded run.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray, IntArray
from qccf.core.errors import ConfigError
from qccf.policies.registry import codes
from qccf.rounds.health import Service
from qccf.rounds.ledger import Ledger
from qccf.rounds.round import RoundRules, UploadSource, first_state, run_round
from qccf.rounds.run import Run, bits_size_correlation, finished_run
from qccf.rounds.setup import build_rules, scenario_codec, with_counted_parameters
from qccf.rounds.sources import RecordedStatistics, check_statistics, statistics_source
from qccf.rounds.world import World, build_world
from qccf.settings.schema import Scenario


def plan(
    scenario: Scenario,
    policies: Sequence[str],
    num_seeds: int,
    on_progress: Callable[[str, int], None] | None = None,
    *,
    codecs: Sequence[str] | None = None,
    statistics_from: Run | None = None,
) -> list[Run]:
    """Every policy with every codec in the same worlds: the same positions, dataset sizes and fading for each seed.

    By default the codec is the scenario's. Sizes and errors of uploads are those of the scenario's statistics. With
    `statistics_from` they are what training measured with the recorded run's codec, and every world has the recorded
    dataset sizes.
    """
    first = scenario.federation.seed
    runs = []
    scenarios = planned_scenarios(scenario, codecs, statistics_from)
    for planned in scenarios:
        worlds = {seed: planned_world(planned, seed, statistics_from) for seed in range(first, first + num_seeds)}
        for policy in dict.fromkeys(policies):
            if planned is not scenarios[0] and not codes(policy):
                continue  # it uploads the same raw floats with every codec
            for seed, world in worlds.items():
                if on_progress is not None:
                    on_progress(policy, seed)
                runs.append(plan_run(world, policy, statistics_from))
    return runs


def planned_scenarios(
    scenario: Scenario, codecs: Sequence[str] | None = None, statistics_from: Run | None = None
) -> list[Scenario]:
    """One scenario per codec, with the number of parameters; refuses what does not fit or has no price."""
    if statistics_from is not None:
        planned = planned_scenario(scenario, statistics_from)
        for codec in codecs or ():
            if codec != planned.codec.name:
                raise ConfigError(
                    f"codec {codec!r} cannot be planned from the run in {statistics_from.folder}, which was trained "
                    f"with {planned.codec.name!r}: train one with it, or leave out --statistics-from."
                )
        return [planned]
    named = [scenario.codec.name] if codecs is None else dict.fromkeys(codecs)
    return [planned_scenario(scenario.replaced(codec={"name": name})) for name in named]


def planned_scenario(scenario: Scenario, statistics_from: Run | None = None) -> Scenario:
    """The scenario with the number of parameters, and the codec of the recorded run; refuses what does not fit."""
    scenario = with_counted_parameters(scenario)
    if statistics_from is None:
        check_statistics(scenario, scenario_codec(scenario))
        return scenario
    recorded = statistics_from.scenario
    for key, ours, theirs in (
        ("federation.num_clients", scenario.federation.num_clients, recorded.federation.num_clients),
        ("learning.num_parameters", scenario.learning.num_parameters, recorded.learning.num_parameters),
    ):
        if ours != theirs:
            raise ConfigError(
                f"{key} = {ours:,}, but the run in {statistics_from.folder} was recorded with {theirs:,}: its "
                "statistics do not fit; use the same value."
            )
    return scenario.replaced(codec=recorded.codec.model_dump())


def planned_world(scenario: Scenario, seed: int, statistics_from: Run | None = None) -> World:
    """The world of a plan; a recorded run states its dataset sizes."""
    return build_world(scenario, seed, None if statistics_from is None else statistics_from.dataset_sizes)


def plan_run(
    world: World, policy: str, statistics_from: Run | None = None, on_round: Callable[[int], None] = lambda _: None
) -> Run:
    """One policy through all rounds of one world. `on_round` gets the number of completed rounds."""
    scenario = planned_scenario(world.scenario, statistics_from)
    scenario = scenario.replaced(policy={"name": policy}, federation={"seed": world.seed})
    source: UploadSource
    if statistics_from is None:
        source = statistics_source(scenario, world.dataset_sizes)
    else:
        source = RecordedStatistics(statistics_from)
    return run_rounds(world, planned_rules(scenario), source, scenario, on_round)


def planned_rules(scenario: Scenario) -> RoundRules:
    """The rules of a run without training: its statistics include the codec's safety margin already.

    They are stated by the user or were trusted in the run that recorded them, so none of them is a claim.
    """
    return replace(build_rules(scenario, scenario_codec(scenario)), safety_margin=0.0, claims=None)


def run_rounds(
    world: World,
    rules: RoundRules,
    source: UploadSource,
    scenario: Scenario,
    on_round: Callable[[int], None] = lambda _: None,
) -> Run:
    """All rounds without training."""
    ledger = Ledger()
    state = first_state(rules, source)
    while state.round_index < scenario.federation.rounds:
        state = run_round(state, rules, world, source, ledger)
        on_round(state.round_index)
    return finished_run(scenario, ledger, kind="plan")


def plan_summary(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per policy and codec: means over seeds, with the spread beside them."""
    kinds = dict.fromkeys((run.policy, run.codec) for run in runs)
    return [_summary([run for run in runs if (run.policy, run.codec) == kind]) for kind in kinds]


def _summary(runs: list[Run]) -> dict[str, Any]:
    totals_j = np.array([run.energy_j[-1] for run in runs])
    on = np.concatenate([run.client_columns["participated"] for run in runs])
    computing_j, missed, bits = (
        np.concatenate([run.client_columns[name] for run in runs])
        for name in ("compute_energy_j", "missed", "num_bits")
    )
    spent_j = np.concatenate([run.client_energy_j() for run in runs])
    latencies_s, participants = (
        np.concatenate([run.round_columns[name] for run in runs]) for name in ("latency_s", "participants")
    )
    tenth = max(1, runs[0].num_rounds // 10)
    correlations = np.array([bits_size_correlation(run.client_columns) for run in runs])
    return {
        "policy": runs[0].policy,
        "codec": runs[0].codec,
        "seeds": len(runs),
        "energy_j": _spread(totals_j),
        "charged": runs[0].scenario.accounts.charged,
        **({} if runs[0].scenario.devices.is_papers else {"devices": runs[0].scenario.devices.described()}),
        "compute_energy_share": float(computing_j.sum() / max(totals_j.sum(), 1e-300)),
        "energy_per_upload_j": _spread(spent_j[on]),
        "round_latency_s": _spread(latencies_s[participants > 0]),
        "participation": _spread(np.concatenate([run.by_round("participated").mean(axis=1) for run in runs])),
        "missed": float(missed.sum() / max(on.sum(), 1)),
        "bits": _spread(bits[on]),
        "bits_first_tenth": _mean_bits(runs, slice(None, tenth)),
        "bits_last_tenth": _mean_bits(runs, slice(-tenth, None)),
        "bits_size_correlation": _spread(correlations[np.isfinite(correlations)]),
        **{name: _mean_known([run.summary[name] for run in runs]) for name in Service._fields},
    }


def _mean_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _mean_bits(runs: list[Run], part: slice) -> float | None:
    values = np.concatenate([run.by_round("num_bits")[part][run.by_round("participated")[part]] for run in runs])
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


def plan_to_json(scenario: Scenario, runs: Sequence[Run]) -> dict[str, Any]:
    """The plan as plain values: settings, summary, and each run per round and per client."""
    return {
        "scenario": scenario.model_dump(),
        "summary": plan_summary(runs),
        "runs": [_run_to_json(run) for run in runs],
    }


def _run_to_json(run: Run) -> dict[str, Any]:
    uploads = run.by_round("participated").sum(axis=0)
    energy_j = run.client_energy_j().reshape(run.num_rounds, -1)
    columns = run.round_columns
    world = build_world(run.scenario, run.seed, run.dataset_sizes)
    return {
        "policy": run.policy,
        "codec": run.codec,
        "seed": run.seed,
        "rounds": {
            **{name: columns[name].tolist() for name in ("energy_j", "latency_s", "participants", "missed")},
            "mean_bits": _or_none(columns["mean_bits"]),
            "participation_queue": _finite(columns["participation_queue"]),
            "quantization_queue": _finite(columns["quantization_queue"]),
            "error_price": _finite(columns["error_price"]),
            "aggregate_error": _or_none(columns["aggregate_error"]),
            "error_budget": _or_none(columns["error_budget"]),
        },
        "clients": {
            "position_m": world.cell.positions_m.tolist(),
            "dataset_size": run.dataset_sizes.tolist(),
            **({"device": run.by_round("device")[0].tolist()} if "device" in run.client_columns else {}),
            **_batteries(run),
            "turns": run.by_round("turn").sum(axis=0).tolist(),
            "uploads": uploads.tolist(),
            "missed": run.by_round("missed").sum(axis=0).tolist(),
            "energy_j": energy_j.sum(axis=0).tolist(),
            "mean_latency_s": _ratio(run.by_round("latency_s").sum(axis=0), uploads),
            "mean_bits": _ratio(run.by_round("num_bits").sum(axis=0), uploads),
        },
        "health": run.summary["health"],
    }


def _batteries(run: Run) -> dict[str, Any]:
    """What is left in the batteries, None on mains; nothing where nobody has one."""
    return {"battery_j": _or_none(run.by_round("battery_j")[-1])} if "battery_j" in run.client_columns else {}


def _or_none(values: FloatArray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _finite(values: FloatArray) -> list[float] | None:
    return values.tolist() if np.isfinite(values).all() else None


def _ratio(sums: IntArray | FloatArray, counts: IntArray) -> list[float | None]:
    return [float(total / count) if count else None for total, count in zip(sums, counts, strict=True)]
