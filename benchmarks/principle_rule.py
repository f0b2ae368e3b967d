"""Final bits of the policy principle for other values of ψ and φ, computed from the losses of recorded runs.

The rule of principle raises the level when the running loss stalls. ψ is the smoothing of that loss, φ the number of
rounds over which it is compared. More bits would have changed the losses a little, which is ignored here.

Run: python -m benchmarks.principle_rule DIR…        folders with runs of principle
"""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from qccf.policies.principle import Principle
from qccf.settings.loading import load_scenario

SMOOTHINGS = (0.0, 0.5, 0.9)
PATIENCES = (2, 3, 6, 10)


def final_level(folder: Path, smoothing: float, patience: int) -> int:
    """The level after the last round."""
    scenario = load_scenario(folder / "scenario.toml")
    rule = Principle(scenario.constants(), rounds=scenario.federation.rounds, smoothing=smoothing, patience=patience)
    nothing: Any = None
    state = rule.init(nothing)
    for _, uploads in pd.read_parquet(folder / "clients.parquet").groupby("round"):
        sizes, losses = (uploads[name].to_numpy(float) for name in ("dataset_size", "loss"))
        outcome: Any = SimpleNamespace(losses=losses, statistics=SimpleNamespace(dataset_sizes=sizes))
        state = rule.update(state, nothing, outcome)
    return int(state["level"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    summaries = sorted(path for folder in parser.parse_args().folders for path in folder.rglob("summary.json"))
    runs = [p.parent for p in summaries if json.loads(p.read_text(encoding="utf-8"))["policy"] == "principle"]
    print(f"{len(runs)} runs; bits after the last round, minimum to maximum\n")
    print("| ψ | " + " | ".join(f"φ = {patience}" for patience in PATIENCES) + " |")
    print("|---|" + "---|" * len(PATIENCES))
    for smoothing in SMOOTHINGS:
        cells = []
        for patience in PATIENCES:
            levels = np.array([final_level(folder, smoothing, patience) for folder in runs])
            cells.append(f"{levels.min()} to {levels.max()}" if np.ptp(levels) else f"{levels[0]}")
        print(f"| {smoothing:g} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
