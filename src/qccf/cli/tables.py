"""Tables and numbers for the terminal."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

NOTHING = "–"
"""Shown where there is no value."""


def results_table(title: str, labels: Sequence[str], summaries: Sequence[dict[str, Any]]) -> Table:
    """One row per label: means ± standard deviations over seeds, and the difference to the first row."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for label, summary in zip(labels, summaries, strict=True):
        rows.setdefault(label, []).append(summary)
    first = rows[labels[0]]
    difference = ("Δ energy\n%", "Δ accuracy\npoints") if len(rows) > 1 else ()
    table = _table(title, "", ("accuracy\n%", "energy\nJ", *difference, "bits"))
    if difference:
        table.caption = "Δ: difference from the first row, paired by seed"
    for label, mine in rows.items():
        table.add_row(
            label,
            _over_seeds([100.0 * s["test_accuracy"] for s in mine if s["test_accuracy"] is not None], 1),
            _over_seeds([s["energy_j"] for s in mine], 3),
            *(() if not difference else ("", "") if mine is first else _differences(mine, first)),
            number(_mean(_present(mine, "mean_bits")), ".1f"),
        )
    return table


def _differences(mine: list[dict[str, Any]], first: list[dict[str, Any]]) -> tuple[str, str]:
    """Energy in per cent and accuracy in percentage points against the first row, paired by seed."""
    pairs = [(a, b) for a in mine for b in first if a["seed"] == b["seed"]]
    energy = [100.0 * (a["energy_j"] / b["energy_j"] - 1.0) for a, b in pairs if b["energy_j"]]
    known = [(a, b) for a, b in pairs if a["test_accuracy"] is not None and b["test_accuracy"] is not None]
    points = [100.0 * (a["test_accuracy"] - b["test_accuracy"]) for a, b in known]
    return _over_seeds(energy, 1, "+"), _over_seeds(points, 2, "+")


def plan_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """One row per policy; ± is the standard deviation over cells, uploads or rounds."""
    headings = ("energy\nJ", "upload\nmJ", "round\nms", "bits\nfirst→last", "bits\nvs size")
    table = _table(title, "policy", headings)
    for row in rows:
        ends = "→".join(number(row[f"bits_{part}_tenth"], ".1f") for part in ("first", "last"))
        correlation = row["bits_size_correlation"]
        table.add_row(
            row["policy"],
            _mean_and_std(row["energy_j"]),
            _mean_and_std(row["energy_per_upload_j"], 1e3),
            _mean_and_std(row["round_latency_s"], 1e3),
            ends + _std(row["bits"]),
            number(correlation and correlation["mean"], "+.2f"),
        )
    return table


SERVICE = {
    "active\n%": ("participation", 100.0, ".0f"),
    "late\n%": ("missed", 100.0, ".0f"),
    "empty\nrounds": ("empty_rounds", 1.0, ".3g"),
    "active /\nfair share": ("participation_ratio", 1.0, ".2f"),
    "Jain's\nindex": ("jain", 1.0, ".2f"),
    "error /\nbudget": ("error_ratio", 1.0, ".2f"),
}
"""Columns of the second table: key of the summary, scale and format."""


def service_table(labels: Sequence[str], summaries: Sequence[dict[str, Any]]) -> Table:
    """One row per label: how its clients and its error budget were served, means over seeds."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for label, summary in zip(labels, summaries, strict=True):
        rows.setdefault(label, []).append(summary)
    table = _table("Clients and error budget", "", tuple(SERVICE))
    for label, mine in rows.items():
        cells = ((_mean(_present(mine, key)), scale, form) for key, scale, form in SERVICE.values())
        table.add_row(label, *(number(None if mean is None else scale * mean, form) for mean, scale, form in cells))
    return table


def print_health(console: Console, sentences: Sequence[str]) -> None:
    """What is wrong, one sentence per line; nothing where all is well."""
    for sentence in sentences:
        console.print(Text(f"Health: {sentence}", style="yellow"), soft_wrap=True)


def _present(summaries: list[dict[str, Any]], key: str) -> list[float]:
    return [summary[key] for summary in summaries if summary.get(key) is not None]


def number(value: float | None, form: str = ".3g") -> str:
    return NOTHING if value is None or math.isnan(value) else f"{value:{form}}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _table(title: str, first: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _over_seeds(values: list[float], decimals: int, sign: str = "") -> str:
    spread = f"±{statistics.stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return number(_mean(values), f"{sign}.{decimals}f") + spread


def _mean_and_std(value: dict[str, float] | None, scale: float = 1.0) -> str:
    return NOTHING if value is None else f"{value['mean'] * scale:.3g}{_std(value, scale)}"


def _std(value: dict[str, float] | None, scale: float = 1.0) -> str:
    """Empty if there is no spread; less than a thousandth of the mean is rounding."""
    if value is None or value["std"] <= 1e-3 * abs(value["mean"]):
        return ""
    return f"±{value['std'] * scale:.2g}"
