"""Time and memory of a decision over the number of clients, from a sweep.

Run on an idle machine: qccf sweep benchmarks/growth.toml, then python -m benchmarks.growth [DIR] [--out FILE.png]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from qccf.core.intervals import estimate
from qccf.reports.figures.builders import BAND, estimated
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import Styles

SIZE, CHANNELS = "federation.num_clients", "radio.num_channels"
BEFORE = "before the run, all libraries loaded"


def by_size(results: pd.DataFrame) -> pd.DataFrame:
    """One row per policy and size: median, minimum and maximum over the cells, in seconds and MiB."""
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


def growth_chart(results: pd.DataFrame) -> Chart:
    """Time and memory against the number of clients, with the memory before the run as a dotted line."""
    styles = Styles()
    before_mib = float(results["start_memory_bytes"].median()) / 2**20
    panels = []
    for title, label, column, scale, references in (
        ("(a) Time", "time per decision (s)", "decision_s", 1.0, ()),
        ("(b) Memory", "peak memory of a run (MiB)", "peak_memory_bytes", 2.0**-20, ((before_mib, BEFORE),)),
    ):
        series = []
        for policy, rows in results.groupby("policy"):
            values = {float(size): group * scale for size, group in rows.groupby(SIZE)[column]}
            estimates = [estimate(group) for group in values.values()]
            series.append(estimated(str(policy), list(values), estimates, styles.policies[str(policy)]))
        panels.append(Panel(title, "clients", label, tuple(series), x_log=True, y_log=True, references=references))
    return Chart("growth", "Growth", BAND, tuple(panels), panel_size_inch=(4.5, 3.4))


def show(table: pd.DataFrame) -> None:
    print("| policy | clients × channels | cells | time per decision | minimum to maximum | added memory |")
    print("|---|---|---|---|---|---|")
    for row in table.to_dict("records"):
        ms = [row[f"seconds_{which}"] * 1e3 for which in ("median", "min", "max")]
        print(
            f"| {row['policy']} | {row[SIZE]:,} × {row[CHANNELS]:,} | {row['cells']} | {ms[0]:,.1f} ms | "
            f"{ms[1]:,.1f} to {ms[2]:,.1f} ms | {row['added_mib_median']:,.0f} MiB |"
        )
    for policy, rows in table.groupby("policy"):
        large = rows[rows[SIZE] >= 1000]
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
    results = pd.read_parquet(options.folder / "results.parquet")
    show(by_size(results))
    out = options.out or options.folder / "growth.png"
    save_chart(growth_chart(results), out)
    print(f"\nWritten: {out}")


if __name__ == "__main__":
    main()
