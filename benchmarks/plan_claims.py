"""The paper's claims about its policies, compared with runs without training, with 95 % intervals over cells.

Run: python -m benchmarks.plan_claims [--seeds 20]
"""

import argparse

import numpy as np
from scipy.stats import t

from qccf.core.correlation import rank_correlation, relation_within_rounds
from qccf.rounds.run import Run
from qccf.runtimes.planner import plan
from qccf.settings.loading import load_scenario

POLICIES = ["qccf", "no-quantization", "channel-allocate", "principle", "same-size"]
MODELS = {
    "constant θ": ["statistics.model=constant"],
    "growing θ": ["statistics.model=trace", "statistics.trace=growing-weights"],
}


def interval(values: np.ndarray, form: str = ".2f", scale: float = 1.0) -> str:
    """Mean with the half-width of its 95 % interval."""
    values = np.asarray(values) * scale
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():{form}} ± {half:{form}}"


def size_correlation(run: Run, binding: bool | None) -> float:
    """Rank correlation of bits with data within a round, over uploads, all or by whether the deadline binds."""
    used = run.by_round("latency_s") >= 0.999 * run.scenario.device.deadline_s
    on = run.by_round("participated")
    rounds, clients = np.nonzero(on if binding is None else on & (used == binding))
    return relation_within_rounds(rounds, run.dataset_sizes[clients], run.by_round("num_bits")[rounds, clients])


def round_correlation(run: Run) -> float:
    return rank_correlation(np.arange(run.num_rounds), run.mean_bits)


def by_policy(runs: list[Run]) -> dict[str, list[Run]]:
    return {name: [run for run in runs if run.policy == name] for name in POLICIES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    energies: dict[tuple[str, int], dict[str, np.ndarray]] = {}
    for model, overrides in MODELS.items():
        for beta in (150, 300):
            scenario = load_scenario(
                "femnist", ["control.form=paper", "codec.name=model", f"data.dataset_size_std={beta}", *overrides]
            )
            runs = by_policy(plan(scenario, POLICIES, seeds))
            totals = {name: np.array([run.energy_j[-1] for run in mine]) for name, mine in runs.items()}
            energies[model, beta] = totals
            print(f"\n{model}, β = {beta}, {scenario.federation.rounds} rounds, {seeds} cells\n")
            heads = ["policy", "energy (J)", "QCCF saves (%)", "missed (%)", "bits, first → last tenth"]
            print("| " + " | ".join([*heads, "bits ~ round", "bits ~ D"]) + " |")
            print("|---|---|---|---|---|---|---|")
            for name, mine in runs.items():
                saving = "–" if name == "qccf" else interval(1 - totals["qccf"] / totals[name], ".1f", 100)
                missed = 100 * np.mean([r.missed_share() for r in mine])
                first = np.mean([np.nanmean(r.mean_bits[:10]) for r in mine])
                last = np.mean([np.nanmean(r.mean_bits[-10:]) for r in mine])
                over_rounds = np.array([round_correlation(r) for r in mine])
                over_sizes = np.array([size_correlation(r, None) for r in mine])
                cells = [interval(v) if np.isfinite(v).all() else "–" for v in (over_rounds, over_sizes)]
                print(
                    f"| {name} | {interval(totals[name])} | {saving} | {missed:.0f} | {first:.2f} → {last:.2f} | "
                    f"{cells[0]} | {cells[1]} |",
                    flush=True,
                )
            for binding, words in ((True, "binds"), (False, "does not bind")):
                values = np.array([size_correlation(run, binding) for run in runs["qccf"]])
                values = values[np.isfinite(values)]
                shown = interval(values) if len(values) > 2 else "too few uploads"
                print(f"\nQCCF, bits ~ D over uploads where the deadline {words}: {shown} ({len(values)} cells)")
    print("\nEnergy with β = 300 over energy with β = 150, paired by cell\n")
    print("| policy | " + " | ".join(MODELS) + " |")
    print("|---|" + "---|" * len(MODELS))
    for name in POLICIES:
        ratios = [interval(energies[model, 300][name] / energies[model, 150][name], ".3f") for model in MODELS]
        print(f"| {name} | " + " | ".join(ratios) + " |")


if __name__ == "__main__":
    main()
