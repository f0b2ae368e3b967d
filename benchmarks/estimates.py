"""What it costs to decide with an estimate of the channels: uploads that are lost, and what a back-off saves.

Run: python -m benchmarks.estimates [--seeds 5] [--rounds 40] [--out FILE.png]

Each row is a plan of the preset `femnist` with policy `qccf`. With the paper's codec the deadline binds, so that a
channel worse than its estimate loses the upload; with the default codec uploads are small, and time is left.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from qccf.core.intervals import estimate
from qccf.reports.figures.builders import BAND, estimated
from qccf.reports.figures.chart import Chart, Panel
from qccf.reports.figures.drawing import save_chart
from qccf.reports.figures.style import Style
from qccf.rounds.run import Run
from qccf.runtimes.planner import plan
from qccf.settings.loading import load_scenario

KNOWLEDGE = {
    "one round old": ("radio.estimate_age=1",),
    "error 2 dB": ("radio.estimate_error_db=2",),
    "both": ("radio.estimate_age=1", "radio.estimate_error_db=2"),
}
BACKOFFS_DB = (0.0, 1.0, 2.0, 4.0, 6.0, 8.0)
STYLES = {
    "one round old": Style("#0072B2", "o"),
    "error 2 dB": Style("#D55E00", "s"),
    "both": Style("#009E73", "^"),
}
PAPERS, OURS = "model", "update+entropy"


def planned(codec: str, rounds: int, seeds: int, *settings: str) -> list[Run]:
    """Fading that is correlated by 0.9 from round to round, so that an old estimate is worth something."""
    common = [f"codec.name={codec}", f"federation.rounds={rounds}", "radio.fading_correlation=0.9"]
    return plan(load_scenario("femnist", [*common, *settings]), ["qccf"], seeds)


def lost_share(run: Run) -> float:
    return run.missed_share()


def energy_per_arrival_j(run: Run) -> float:
    return float(run.energy_j[-1] / max(run.client_columns["arrived"].sum(), 1))


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def show_row(name: str, codec: str, backoff_db: float, runs: Sequence[Run], perfect: Sequence[Run]) -> None:
    energy, known = (mean([energy_per_arrival_j(run) for run in mine]) for mine in (runs, perfect))
    found = sorted({finding.kind for run in runs for finding in run.findings})
    print(
        f"| {name} | {codec} | {backoff_db:g} | {mean([lost_share(run) for run in runs]):.1%} | {energy * 1e3:.2f} | "
        f"{energy / known:.2f} | {mean([run.mean_upload_bits() for run in runs]):.2f} | {', '.join(found) or '–'} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("estimates.png"))
    options = parser.parse_args()
    length = (options.rounds, options.seeds)
    print("| known | codec | back-off dB | lost | mJ per upload that arrives | to perfect | bits | health |")
    print("|---|---|---|---|---|---|---|---|")
    perfect = {codec: planned(codec, *length) for codec in (PAPERS, OURS)}
    for codec, runs in perfect.items():
        show_row("perfectly", codec, 0.0, runs, runs)
    curves: dict[str, list[list[Run]]] = {}
    for name, settings in KNOWLEDGE.items():
        show_row(name, OURS, 0.0, planned(OURS, *length, *settings), perfect[OURS])
        for backoff_db in BACKOFFS_DB:
            runs = planned(PAPERS, *length, *settings, f"radio.backoff_db={backoff_db}")
            curves.setdefault(name, []).append(runs)
            show_row(name, PAPERS, backoff_db, runs, perfect[PAPERS])
    known_mj = 1e3 * mean([energy_per_arrival_j(run) for run in perfect[PAPERS]])
    known_bits = mean([run.mean_upload_bits() for run in perfect[PAPERS]])
    panels = []
    for title, label, value, percent, references in (
        ("(a) Lost uploads", "share of uploads that are lost", lost_share, True, ()),
        (
            "(b) Energy",
            "energy per upload that arrives (mJ)",
            lambda run: 1e3 * energy_per_arrival_j(run),
            False,
            ((known_mj, "perfect knowledge"),),
        ),
        ("(c) Bits", "bits per parameter", Run.mean_upload_bits, False, ((known_bits, "perfect knowledge"),)),
    ):
        series = tuple(
            estimated(
                name,
                list(BACKOFFS_DB),
                [estimate([value(run) for run in runs]) for runs in found],
                STYLES[name],
                limits=(0.0, np.inf),
            )
            for name, found in curves.items()
        )
        log = title == "(b) Energy"
        panels.append(Panel(title, "back-off (dB)", label, series, percent=percent, references=references, y_log=log))
    save_chart(Chart("estimates", "Estimates", BAND, tuple(panels), panel_size_inch=(3.6, 3.2), columns=3), options.out)
    print(f"\nWritten: {options.out}")


if __name__ == "__main__":
    main()
