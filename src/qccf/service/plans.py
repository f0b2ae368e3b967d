"""Plans for a request: the runs, their summary, and the figures and tables of the planner's page."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qccf.core.contracts import FloatArray
from qccf.core.intervals import estimate
from qccf.core.words import counted
from qccf.policies.registry import PAPERS_POLICIES
from qccf.reports.figures.builders import (
    BITS_LABEL,
    band_caption,
    bits_panels,
    client_bits,
    curves,
    energy_bars,
    grouped,
)
from qccf.reports.figures.chart import Chart, Panel, chart_to_json
from qccf.reports.figures.style import Styles
from qccf.rounds.feasibility import best_rates_bps, needed_rates_bps, why_never
from qccf.rounds.run import Run, health_sentences, run_labels
from qccf.rounds.setup import check_scenario
from qccf.rounds.world import draw_dataset_sizes, scenario_cell
from qccf.runtimes.planner import plan_run, plan_summary, planned_scenarios, planned_world
from qccf.service.answers import RefusedError
from qccf.service.requests import PlanBody, ScenarioBody, requested_scenario
from qccf.service.setup import Setup
from qccf.settings.loading import Scenario

OnProgress = Callable[[dict[str, Any]], None]


def planned_runs(body: PlanBody, setup: Setup, on_progress: OnProgress) -> list[Run]:
    """Every policy with every codec in the same cells; `on_progress` is called after each round and may raise."""
    names = [*(body.policies or []), *(body.codecs or [])]
    scenario = requested_scenario(body, setup, names)
    policies = list(dict.fromkeys(body.policies or PAPERS_POLICIES))
    scenarios = planned_scenarios(scenario, body.codecs)
    num_runs, rounds = len(scenarios) * len(policies) * body.seeds, scenario.federation.rounds
    _require_size(scenario, num_runs, setup)
    for one in scenarios:
        for name in policies:
            check_scenario(one.replaced(policy={"name": name}))
    runs: list[Run] = []
    for one in scenarios:
        first = one.federation.seed
        for seed in range(first, first + body.seeds):
            world = planned_world(one, seed)
            for policy in policies:

                def report(done: int, policy: str = policy, seed: int = seed) -> None:
                    total = num_runs * rounds
                    on_progress({"done": len(runs) * rounds + done, "total": total, "policy": policy, "seed": seed})

                report(0)
                runs.append(plan_run(world, policy, on_round=report))
    order = {(one.codec.name, policy): k for k, (one, policy) in enumerate((s, p) for s in scenarios for p in policies)}
    return sorted(runs, key=lambda run: order[run.codec, run.policy])


def _require_size(scenario: Scenario, runs: int, setup: Setup) -> None:
    size, limit = scenario.federation.num_clients * scenario.federation.rounds * runs, setup.limits.client_rounds
    if size > limit:
        raise RefusedError(
            413,
            f"{counted(scenario.federation.num_clients, 'client')} × {counted(scenario.federation.rounds, 'round')} × "
            f"{counted(runs, 'run')} is above the limit of {limit:,}: plan fewer rounds, cells or policies.",
        )


def plan_answer(runs: Sequence[Run]) -> dict[str, Any]:
    """The summary of a plan, its table with 95 % intervals, its findings and its figures."""
    return {
        "summary": plan_summary(runs),
        "rows": _rows(runs),
        "health": health_sentences(runs),
        "chart": chart_to_json(_chart(runs)),
        "clients": _clients(runs),
    }


def _rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per policy and codec: mean and the half of the 95 % interval over cells of each number."""
    rows = []
    styles = Styles(runs)
    for label, group in grouped(runs).items():
        uploads = [float(run.by_round("participated").sum()) for run in group]
        numbers: dict[str, list[float]] = {
            "energy_j": [float(run.energy_j[-1]) for run in group],
            "upload_j": [
                float(run.energy_j[-1]) / count if count else np.nan for run, count in zip(group, uploads, strict=True)
            ],
            "bits": [run.mean_upload_bits() for run in group],
            "participation": [float(run.by_round("participated").mean()) for run in group],
            "latency_s": [float(run.round_columns["latency_s"].mean()) for run in group],
            "missed": [run.missed_share() for run in group],
        }
        style = styles.of(label, group[0])
        rows.append(
            {"label": label, "policy": group[0].policy, "codec": group[0].codec, "seeds": len(group)}
            | {"colour": style.colour, "marker": style.marker}
            | {name: _interval(values) for name, values in numbers.items()}
        )
    return rows


def _interval(values: Sequence[float]) -> dict[str, float | None]:
    known = estimate(value for value in values if np.isfinite(value))
    return {"mean": known.mean if known.count else None, "half": known.half if known.known else None}


def _chart(runs: Sequence[Run]) -> Chart:
    groups, styles = grouped(runs), Styles(runs)

    def participants(run: Run) -> FloatArray:
        return np.asarray(run.round_columns["participants"], dtype=float)

    def latency_ms(run: Run) -> FloatArray:
        return 1e3 * np.asarray(run.round_columns["latency_s"], dtype=float)

    bars = energy_bars(groups, styles)
    everybody = (0.0, 1.05 * runs[0].scenario.federation.num_clients)
    taking_part = curves(groups, participants, styles)
    over_rounds, over_sizes = bits_panels(groups, styles)
    panels = (
        Panel("Energy of the whole run", "", "energy (J)", bars, categories=tuple(groups)),
        Panel("Bits over rounds", "round", BITS_LABEL, over_rounds.series, integers=True),
        Panel("Bits over dataset sizes", over_sizes.x_label, BITS_LABEL, over_sizes.series),
        Panel("Participants", "round", "clients", taking_part, integers=True, y_range=everybody),
        Panel("Latency of a round", "round", "latency (ms)", curves(groups, latency_ms, styles), integers=True),
    )
    return Chart("plan", "Plan", band_caption(groups), panels)


def _clients(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What each client does in the first cell, per policy and codec."""
    first = runs[0].seed
    shown = [(label, run) for label, run in zip(run_labels(runs), runs, strict=True) if run.seed == first]
    return [
        {
            "label": label,
            "bits": [None if np.isnan(one) else float(one) for one in client_bits(run)],
            "uploads": run.by_round("participated").sum(axis=0).tolist(),
            "missed": run.by_round("missed").sum(axis=0).tolist(),
            "able": run.by_round("able").mean(axis=0).tolist(),
        }
        for label, run in shown
    ]


def cell_answer(body: ScenarioBody, setup: Setup) -> dict[str, Any]:
    """The clients of the first cell: positions, samples, rates, and who can never upload and why."""
    scenario = requested_scenario(body, setup)
    seed = scenario.federation.seed
    cell, sizes = scenario_cell(scenario, seed), draw_dataset_sizes(scenario, seed)
    radio = cell.radio
    never = why_never(scenario, cell, sizes)
    needed = needed_rates_bps(scenario, sizes)
    return {
        "radius_m": scenario.cell.radius_m,
        "distance_min_m": scenario.cell.distance_min_m,
        "positions_m": np.round(cell.positions_m, 1),
        "dataset_sizes": sizes,
        "mean_rates_bps": radio.rates_bps(cell.mean_gains * radio.fading_mean_power),
        "best_rates_bps": best_rates_bps(cell),
        "needed_rates_bps": needed,
        "never": [{"client": client, "why": why} for client, why in never.items()],
    }
