"""How the time and the memory of a decision grow with the number of clients, drawn from a sweep.

Run on a quiet machine: qccf sweep benchmarks/growth.toml, then python -m benchmarks.growth [DIR] [--out FILE.png]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from qccf.report.figures.style import new_figure, run_style

SIZE, CHANNELS = "federation.num_clients", "radio.num_channels"


def grown(results: pd.DataFrame) -> pd.DataFrame:
    """One row a policy and size: median, least and most over the cells, in seconds and MiB."""
    results = results.assign(
        seconds=results["decision_s"],
        start_mib=results["start_memory_bytes"] / 2**20,
        peak_mib=results["peak_memory_bytes"] / 2**20,
        added_mib=(results["peak_memory_bytes"] - results["start_memory_bytes"]) / 2**20,
    )
    measured = ["seconds", "start_mib", "peak_mib", "added_mib"]
    table = results.groupby(["policy", SIZE, CHANNELS])[measured].agg(["median", "min", "max"])
    table.columns = [f"{what}_{which}" for what, which in table.columns]
    return table.assign(cells=results.groupby(["policy", SIZE, CHANNELS]).size()).reset_index()


def draw(table: pd.DataFrame, out: Path) -> None:
    figure, axes = new_figure(9.0, 3.6, 1, 2)
    for k, (policy, mine) in enumerate(table.groupby("policy")):
        _curve(axes[0], mine, "seconds", str(policy), k)
        _curve(axes[1], mine, "peak_mib", str(policy), k)
    axes[1].axhline(table["start_mib_median"].median(), color="0.4", ls=":")
    for one in axes:
        one.set(xscale="log", yscale="log", xlabel="clients")
    axes[0].set(ylabel="time of a decision (s)", title="Time (line: median over cells, band: least to most)")
    axes[1].set(ylabel="peak memory of a run (MiB)", title="Memory (dotted: before the run, all libraries loaded)")
    axes[0].legend(fontsize=8)
    figure.savefig(out)


def _curve(axes: Axes, rows: pd.DataFrame, what: str, label: str, k: int) -> None:
    colour, marker = run_style(label, k)
    sizes = rows[SIZE]
    axes.fill_between(sizes, rows[f"{what}_min"], rows[f"{what}_max"], color=colour, alpha=0.2, lw=0)
    axes.plot(sizes, rows[f"{what}_median"], color=colour, marker=marker, ms=4, label=label)


def show(table: pd.DataFrame) -> None:
    print("| policy | clients × channels | cells | a decision | least to most | memory added |")
    print("|---|---|---|---|---|---|")
    for row in table.to_dict("records"):
        ms = [row[f"seconds_{which}"] * 1e3 for which in ("median", "min", "max")]
        print(
            f"| {row['policy']} | {row[SIZE]:,} × {row[CHANNELS]:,} | {row['cells']} | {ms[0]:,.1f} ms | "
            f"{ms[1]:,.1f} to {ms[2]:,.1f} ms | {row['added_mib_median']:,.0f} MiB |"
        )
    for policy, mine in table.groupby("policy"):
        large = mine[mine[SIZE] >= 1000]
        if len(large) > 1:
            slopes = [
                np.polyfit(np.log(large[SIZE]), np.log(large[f"{what}_median"]), 1)[0]
                for what in ("seconds", "added_mib")
            ]
            print(f"\n{policy}, from 1,000 clients: time grows as clients^{slopes[0]:.1f}, memory as ^{slopes[1]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/sweep-growth"))
    parser.add_argument("--out", type=Path, help="default growth.png in the folder")
    options = parser.parse_args()
    table = grown(pd.read_parquet(options.folder / "results.parquet"))
    show(table)
    out = options.out or options.folder / "growth.png"
    draw(table, out)
    print(f"\nWritten: {out}")


if __name__ == "__main__":
    main()
