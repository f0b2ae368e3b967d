"""Ledgers made up so that the truth about every claim is known."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from qccf.paper.families import Family, families
from qccf.paper.studies import FACTORS
from qccf.rounds.run import Run
from qccf.settings.loading import Scenario, load_scenario

ROUNDS, CLIENTS, SEEDS = 40, 10, 16
SIZES = np.linspace(800, 1600, CLIENTS).round()


def made_record(policy: str, seed: int, *, beta: float = 150.0, weight: float = 100.0, **truth) -> Run:
    """One run. `energy` a round, `speed` and `ceiling` of learning, bits as `first`, `rise` a round and `slope` over
    the sizes, and `lost`: whether the largest clients' uploads are late in the end."""
    rng = np.random.default_rng([seed, int(beta), int(weight), len(policy)])
    t = {
        "energy": 1.0,
        "speed": 0.1,
        "ceiling": 0.8,
        "first": 3.0,
        "rise": 0.05,
        "slope": 0.0,
        "lost": 0.0,
        "noise": 0.3,
    } | truth
    n = np.arange(ROUNDS)
    learned = t["ceiling"] * (1 - np.exp(-t["speed"] * (n + 1))) * (1 + 0.002 * rng.normal(size=ROUNDS))
    learned = np.minimum(learned, np.where(n > 25, learned[25] + 0.002, 1.0)) if t["lost"] else learned
    rank = (SIZES - SIZES.mean()) / np.ptp(SIZES)
    noise = t["noise"] * rng.normal(size=(ROUNDS, CLIENTS))
    bits = np.clip(np.round(t["first"] + t["rise"] * n[:, None] + t["slope"] * rank + noise), 1, 32)
    missed = (n[:, None] / ROUNDS > 0.5) & (np.arange(CLIENTS) >= CLIENTS - 4) & (t["lost"] > 0)
    energy = t["energy"] * (1 + 0.01 * rng.normal(size=ROUNDS)) * (1 + 0.01 * seed)
    rounds = pd.DataFrame(
        {
            "round": n,
            "test_accuracy": learned,
            "compute_energy_j": 0.25 * energy,
            "upload_energy_j": 0.75 * energy,
            "cumulative_energy_j": np.cumsum(energy),
            "mean_bits": bits.mean(axis=1),
            "missed": missed.sum(axis=1),
            "participants": np.full(ROUNDS, CLIENTS),
            "latency_s": np.full(ROUNDS, 0.02),
        }
    )
    clients = pd.DataFrame(
        {
            "round": np.repeat(n, CLIENTS),
            "client": np.tile(np.arange(CLIENTS), ROUNDS),
            "dataset_size": np.tile(SIZES, ROUNDS),
            "num_bits": bits.reshape(-1).astype(int),
            "participated": True,
            "missed": missed.reshape(-1),
        }
    )
    summary = {"policy": policy, "seed": seed, "data": "made up for a test", "synthetic": False, "finished": True}
    scenario = made_scenario(beta, weight).replaced(policy={"name": policy}, federation={"seed": seed})
    tables = [{str(name): frame[name].to_numpy() for name in frame} for frame in (rounds, clients)]
    return Run(scenario, summary, *tables, folder=Path(f"{policy}-{beta:g}-{weight:g}-{seed}"))


def cut_run(run: Run, rounds: int) -> Run:
    """The first rounds of a run."""
    kept = {name: column[:rounds] for name, column in run.round_columns.items()}
    early = run.client_columns["round"] < rounds
    return replace(run, round_columns=kept, client_columns={n: c[early] for n, c in run.client_columns.items()})


def first_rounds(run: Run, rounds: int) -> Run:
    """The run as it was after that many rounds."""
    tables = (
        {name: column[columns["round"] < rounds] for name, column in columns.items()}
        for columns in (run.round_columns, run.client_columns)
    )
    return replace(run, **dict(zip(("round_columns", "client_columns"), tables, strict=True)))


@cache
def made_scenario(beta: float, weight: float) -> Scenario:
    return load_scenario(
        "femnist",
        [f"data.dataset_size_std={beta}", f"control.paper.energy_weight={weight}", "control.form=paper",
         f"federation.rounds={ROUNDS}", "codec.name=model", "data.dataset=emnist"],
    )  # fmt: skip


# The world that the paper describes, and one in which everything is the other way round.
AS_CLAIMED = {
    "qccf": {"energy": 1.0, "speed": 0.12, "slope": -2.0},
    "same-size": {"energy": 1.0 / (1 - 0.3542), "slope": 0.0, "speed": 0.1},
    "principle": {"energy": 1.0 / (1 - 0.4821), "slope": 2.0, "rise": 0.2, "lost": 1.0, "speed": 0.1},
    "channel-allocate": {"energy": 3.0, "rise": 0.0, "slope": -2.0, "first": 6.0, "speed": 0.1},
    "no-quantization": {"energy": 4.0, "first": 40.0, "rise": 0.0, "speed": 0.1},
}
REVERSED = {
    "qccf": {"energy": 4.0, "speed": 0.06, "rise": -0.03, "slope": 2.0, "first": 6.0},
    "same-size": {"energy": 1.0, "rise": -0.03, "slope": 2.0, "first": 5.0},
    "principle": {"energy": 1.0, "speed": 0.03, "rise": -0.03, "slope": -2.0, "first": 3.0},
    "channel-allocate": {"energy": 1.0, "rise": 0.2, "slope": 2.0},
    "no-quantization": {"energy": 1.0, "first": 40.0, "rise": 0.0},
}


def made_family(world: dict[str, dict], *, reverse: bool = False, seeds: int = SEEDS) -> Family:
    records = []
    for seed in range(seeds):
        for policy, truth in world.items():
            for beta in (150.0, 300.0):
                wide = beta == 300.0
                more = truth["energy"]
                if wide and policy in ("same-size", "principle"):
                    more *= 0.8 if reverse else 1.06
                if wide and policy == "qccf" and reverse:
                    more *= 1.5
                records.append(made_record(policy, seed, beta=beta, **truth | {"energy": more}))
        for weight in (1.0, 10.0, 1000.0, 10000.0):
            step = np.log10(weight) - 2.0
            fall = -0.1 * max(step, 0.0) if not reverse else 0.1 * step
            # Flat below the knee and yet falling: by less than a point in all.
            gentle = 0.0 if reverse else -0.001 * step
            truth = world["qccf"] | {
                "energy": 1.0 * (2.0**step if reverse else 0.7**step),
                "ceiling": 0.8 + fall + gentle,
                "speed": 0.12,
            }
            records.append(made_record("qccf", seed, weight=weight, **truth))
    (family,) = families(records)
    return family


def made_studies() -> list[dict]:
    """QCCF's savings at every value of every factor, in two cells."""
    return [
        {
            "study": "savings", "factor": factor.name, "value": value, "rounds": 10,
            "energy_j": {"qccf": [1.0, 1.1], "principle": [2.0 + 0.1 * k, 2.0], "same-size": [1.5, 1.4]},
        }
        for factor in FACTORS
        for k, value in enumerate(factor.values)
    ]  # fmt: skip
